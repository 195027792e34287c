/**
 * Prints the answers of the service as JSON, XML or Text, in the layouts that the specification describes and existing
 * clients read, and sends them. A fault may change an answer or replace it. In the Text format, a refusal is printed as
 * JSON, because clients look for its `msg`. Source: the service's specification, Resources and their fields.
 */
import type { ServerResponse } from 'node:http';
import { type AnswerFormat, SUCCESS_CODE } from './operations.ts';
import type { ServiceFault } from './scenario.ts';
import { htmlPage, send, type WebServer } from './web-server.ts';

const DEFAULT_REFUSAL_MS = 1000;
const DEFAULT_HUGE_BYTES = 8 * 1024 * 1024;
const SLICES = 20;
const GARBAGE = Buffer.from(Array.from({ length: 512 }, (_, at) => (at * 197 + 131) % 256));
const FILLER = 'x'.repeat(65_536);

/** Faults that change the service's answer. All other faults replace it: the service then does not process the call. */
const ALTERING = ['delay', 'slow', 'wrong-format', 'bom', 'truncated'] as const;
type AlteringFault = Extract<ServiceFault, { fault: (typeof ALTERING)[number] }>;
type ReplacingFault = Exclude<ServiceFault, AlteringFault>;

export function replacesAnswer(fault: ServiceFault): fault is ReplacingFault {
  return !ALTERING.some((altering) => altering === fault.fault);
}

export async function sendFault(
  response: ServerResponse,
  server: WebServer,
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
      response.writeHead(302, { Location: fault.to ?? `/moved${response.req.url}`, 'Content-Length': 0 });
      response.end();
      return;
    case 'huge':
      return sendHuge(response, fault.bytes ?? DEFAULT_HUGE_BYTES);
    default:
      fault satisfies never;
  }
}

export async function sendAnswer(
  response: ServerResponse,
  server: WebServer,
  { body, contentType }: Printed,
  fault: AlteringFault | undefined,
): Promise<void> {
  switch (fault?.fault) {
    case undefined:
    case 'wrong-format':
      return send(response, 200, { type: contentType, body });
    case 'bom':
      return send(response, 200, { type: contentType, body: `\uFEFF${body}` });
    case 'delay':
      await server.pause(fault.ms);
      return send(response, 200, { type: contentType, body });
    case 'slow':
      return sendSlowly(response, { body, contentType }, () => server.pause(fault.ms / SLICES));
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

async function sendSlowly(
  response: ServerResponse,
  { body, contentType }: Printed,
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

export type Value = string | number | boolean;
export type Entry = Readonly<Record<string, Value>>;

export interface Answer {
  readonly code: string;
  readonly msg: string;
  readonly data?: { readonly counters: Readonly<Record<string, number>>; readonly entries: readonly Entry[] };
  readonly list?: { readonly name: 'serverList' | 'instance_list'; readonly items: readonly Entry[] };
}

export interface Layout {
  readonly format: AnswerFormat;
  readonly line: (entry: Entry) => string;
  readonly fields?: readonly string[] | undefined;
}

interface Printed {
  readonly body: string;
  readonly contentType: string;
}

const CONTENT_TYPES: Readonly<Record<AnswerFormat, string>> = {
  json: 'application/json; charset=utf-8',
  xml: 'text/xml; charset=utf-8',
  text: 'text/plain; charset=utf-8',
};

/** @param isWrong - whether to print another format than the layout's. */
export function print(answer: Answer, { format, line, fields }: Layout, isWrong: boolean): Printed {
  const printed = !isWrong ? format : format === 'xml' ? 'json' : 'xml';
  const contentType = CONTENT_TYPES[printed];
  if (printed === 'text' && answer.code === SUCCESS_CODE && answer.data !== undefined)
    return { body: answer.data.entries.map(line).join('\r\n'), contentType };
  const selected = selectFields(answer, fields);
  return { body: printed === 'xml' ? printXml(selected) : printJson(selected), contentType };
}

function selectFields(answer: Answer, fields: readonly string[] | undefined): Answer {
  if (answer.data === undefined || fields === undefined) return answer;
  const entries = answer.data.entries.map((entry) =>
    Object.fromEntries(Object.entries(entry).filter(([name]) => fields.includes(name))),
  );
  return { ...answer, data: { ...answer.data, entries } };
}

export function plainLine({ ip, port }: Entry): string {
  return `${ip}:${port}`;
}

export function freeLine({ level, ip, port, protocol, adr }: Entry): string {
  return `[${level}]${ip}:${port}@${protocol}#${adr}`;
}

/** Unknown tags stay as they are. */
export function customLine(layout: string): (entry: Entry) => string {
  return (entry) => layout.replace(/\{(\w+)\}/g, (tag, name: string) => String(entry[name] ?? tag));
}

function printJson({ code, msg, data, list }: Answer): string {
  return JSON.stringify({
    code,
    msg,
    ...(data && { data: { count: data.entries.length, ...data.counters, proxy_list: data.entries } }),
    ...(list && { [list.name]: list.items }),
  });
}

function printXml({ code, msg, data }: Answer): string {
  const counters = data && { count: data.entries.length, ...data.counters };
  const proxies = data?.entries.map((entry) => element('proxy', elements(entry))).join('') ?? '';
  const body = counters && element('data', elements(counters) + element('proxy_list', proxies));
  return `<?xml version="1.0" encoding="utf-8"?>\n${element('result', elements({ code, msg }) + (body ?? ''))}\n`;
}

function elements(fields: Readonly<Record<string, Value>>): string {
  return Object.entries(fields)
    .map(([name, value]) => element(name, escapeXml(String(value))))
    .join('');
}

function element(name: string, content: string): string {
  return `<${name}>${content}</${name}>`;
}

const XML_ESCAPES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
};

function escapeXml(text: string): string {
  return text.replace(/[&<>"]/g, (character) => XML_ESCAPES[character] ?? character);
}
