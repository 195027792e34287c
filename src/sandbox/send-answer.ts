/** Sends the answer to a call. A fault may change the answer or replace it. */
import type { ServerResponse } from 'node:http';
import { type Clock, pause } from '../core/clock.ts';
import { type Answer, type Layout, type Printed, print } from './layouts.ts';
import type { ServiceFault } from './scenario.ts';
import { htmlPage, send, type WebServer } from './web-server.ts';

export interface AnswerContext {
  readonly response: ServerResponse;
  /** The path and the query of the call. */
  readonly path: string;
  readonly server: WebServer;
  readonly clock: Clock;
}

const DEFAULT_REFUSAL_MS = 1000;
const DEFAULT_HUGE_BYTES = 8 * 1024 * 1024;
const SLICES = 20;
/** Bytes that are neither UTF-8 nor JSON nor XML. */
const GARBAGE = Buffer.from(Array.from({ length: 512 }, (_, at) => (at * 197 + 131) % 256));
const FILLER = 'x'.repeat(65_536);

/** Faults that change the service's answer. All other faults replace it: the service then does not process the call. */
type AlteringFault = Extract<
  ServiceFault,
  { fault: 'delay' | 'slow' | 'wrong-format' | 'bom' | 'truncated' }
>;
type ReplacingFault = Exclude<ServiceFault, AlteringFault>;

export function replacesAnswer(fault: ServiceFault): fault is ReplacingFault {
  return !['delay', 'slow', 'wrong-format', 'bom', 'truncated'].includes(fault.fault);
}

export async function sendFault(
  { response, path, server }: AnswerContext,
  fault: ReplacingFault,
): Promise<void> {
  switch (fault.fault) {
    case 'refuse':
      server.refuseFor(fault.forMs ?? DEFAULT_REFUSAL_MS);
      return;
    case 'reset':
      response.socket?.resetAndDestroy();
      return;
    case 'close':
      response.socket?.end();
      return;
    case 'hang': // sends nothing: the call ends when the caller gives up or the server closes
      return;
    case 'status':
      return send(response, fault.status, { type: 'text/html', body: htmlPage(fault.status) });
    case 'garbage':
      return send(response, 200, { type: 'application/octet-stream', body: GARBAGE });
    case 'redirect':
      response.writeHead(302, { Location: fault.to ?? `/moved${path}`, 'Content-Length': 0 });
      response.end();
      return;
    case 'huge':
      return sendHuge(response, fault.bytes ?? DEFAULT_HUGE_BYTES);
    default:
      fault satisfies never;
  }
}

/** @param fault - undefined if the answer is sent unchanged. */
export async function sendAnswer(
  { response, server, clock }: AnswerContext,
  {
    answer,
    layout,
    fault,
  }: { readonly answer: Answer; readonly layout: Layout; readonly fault?: AlteringFault | undefined },
): Promise<void> {
  const { body, contentType } = print(answer, fault?.fault === 'wrong-format' ? otherFormat(layout) : layout);
  switch (fault?.fault) {
    case undefined:
    case 'wrong-format':
      return send(response, 200, { type: contentType, body });
    case 'bom':
      return send(response, 200, { type: contentType, body: `\uFEFF${body}` });
    case 'delay':
      await pause(clock, fault.ms, server.signal);
      return send(response, 200, { type: contentType, body });
    case 'slow':
      return sendSlowly({ body, contentType }, response, () =>
        pause(clock, fault.ms / SLICES, server.signal),
      );
    case 'truncated': {
      const bytes = Buffer.from(body);
      response.writeHead(200, { 'Content-Type': contentType, 'Content-Length': bytes.length });
      response.write(bytes.subarray(0, Math.floor(bytes.length / 2)), () => response.destroy());
      return;
    }
    default:
      fault satisfies never;
  }
}

function otherFormat(layout: Layout): Layout {
  return { ...layout, format: layout.format === 'xml' ? 'json' : 'xml' };
}

async function sendSlowly(
  { body, contentType }: Printed,
  response: ServerResponse,
  wait: () => Promise<void>,
): Promise<void> {
  const bytes = Buffer.from(body);
  response.writeHead(200, { 'Content-Type': contentType, 'Content-Length': bytes.length });
  const startOf = (slice: number) => Math.floor((slice * bytes.length) / SLICES);
  for (let slice = 0; slice < SLICES && !response.destroyed; slice += 1) {
    response.write(bytes.subarray(startOf(slice), startOf(slice + 1)));
    await wait();
  }
  response.end();
}

async function sendHuge(response: ServerResponse, bytes: number): Promise<void> {
  response.writeHead(200, { 'Content-Type': 'application/json; charset=utf-8' });
  response.write('{"code":"10001","msg":"');
  for (let sent = 0; sent < bytes && !response.destroyed; sent += FILLER.length) {
    await new Promise<void>((next) => response.write(FILLER, () => next()));
  }
  response.end('"}');
}
