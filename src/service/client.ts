/**
 * Calls the extraction service or the link of another vendor, once on an open connection; refill decides about retries.
 * Every failure is a NoriaError that names the host, what happened and what to do, and never contains a key: code
 * service-blocked, service-not-found, service-protocol or link-unreadable, or one of `Transport`.
 */
import { NoriaError } from '../core/faults.ts';
import type { Secret } from '../core/secret.ts';
import { type AnswerOrigin, bodyText, type DrawAnswer, unexpectedStatus } from './answer.ts';
import { SUCCESS } from './codes.ts';
import { type DecodedList, decodeDraw, decodeList, type RefuseAddress } from './decode.ts';
import { type DecodedLink, decodeLink, tooFastAnswer } from './link/decode-link.ts';
import {
  type AreasCall,
  areasRequest,
  extractRequest,
  type InstancesCall,
  instancesRequest,
  type LinkCall,
  type ServiceCall,
  type ServiceRequest,
} from './request.ts';
import type { Transport, WriteGate } from './transport.ts';

interface ExtractOptions {
  readonly refuses: RefuseAddress;
  /** Secrets that noria masks in the service's texts, in addition to the key of the call or the secrets of its link. */
  readonly secrets?: readonly Secret[];
  readonly gate?: WriteGate;
}

/** The HTTP status with which many vendors refuse a call that comes too early (RFC 6585). */
const TOO_MANY_REQUESTS = 429;

export async function extract(
  transport: Transport,
  call: ServiceCall,
  options: ExtractOptions,
): Promise<DrawAnswer> {
  if (call.product === 'link') return extractLink(transport, call, options);
  const { refuses, secrets = [], gate } = options;
  return answerTo(
    transport,
    extractRequest(call),
    { secrets: [call.key, ...secrets], gate },
    (body, origin) => decodeDraw(body, { ...origin, ...call, refuses }),
  );
}

export async function extractLink(
  transport: Transport,
  call: LinkCall,
  { refuses, secrets = [], gate }: ExtractOptions,
): Promise<DecodedLink & { readonly sentAt: number }> {
  const asked = { secrets: [...call.secrets, ...secrets], gate };
  return answerTo(transport, extractRequest(call), asked, (body, origin, status) =>
    status === TOO_MANY_REQUESTS
      ? tooFastAnswer(body, origin)
      : decodeLink(body, { ...call, ...origin, refuses, wallAt: transport.clock.now() }),
  );
}

/** Operation 9: the area lines from which an exclusive instance can get more servers. */
export function areas(transport: Transport, call: AreasCall, gate?: WriteGate): Promise<DecodedList> {
  return answerTo(transport, areasRequest(call), { secrets: [call.key], gate }, (body, origin) =>
    decodeList('areas', body, origin),
  );
}

export function instances(transport: Transport, call: InstancesCall, gate?: WriteGate): Promise<DecodedList> {
  return answerTo(transport, instancesRequest(call), { secrets: [call.key], gate }, (body, origin) =>
    decodeList('instances', body, origin),
  );
}

/** The specification names no HTTP status for errors, so an error code counts with any status. A success needs 200. */
async function answerTo<Decoded extends { readonly code: string }>(
  transport: Transport,
  request: ServiceRequest,
  { secrets, gate }: { readonly secrets: readonly Secret[]; readonly gate: WriteGate | undefined },
  decode: (body: Uint8Array, origin: AnswerOrigin, status: number) => Decoded,
): Promise<Decoded & { readonly sentAt: number }> {
  const reply = await transport.exchange(request, gate);
  const { status, body, sentAt } = reply;
  const origin = { host: request.url.host, secrets };
  try {
    const decoded = decode(body, origin, status);
    if (status === 200 || decoded.code !== SUCCESS) return { ...decoded, sentAt };
  } catch (error) {
    if (status === 200 || !(error instanceof NoriaError)) throw error;
    // ignored: the caller gets the error for the HTTP status, which explains more
  }
  throw unexpectedStatus(reply, bodyText(body), origin);
}
