/**
 * The extraction service as noria sees it: one call, made once, decoded. Pace, retries and what follows are refill's.
 *
 * Whatever goes wrong is a NoriaError that names the host, what happened and what to do; a key is never in it.
 */
import type { LookupFunction } from 'node:net';
import type { Clock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import type { Secret } from '../core/secret.ts';
import type { DrawAnswer } from './answer.ts';
import { type AnswerOrigin, bodyText, unexpectedStatus } from './body.ts';
import { SUCCESS } from './codes.ts';
import { decodeDraw, type RefuseAddress } from './decode.ts';
import { type DecodedList, decodeList } from './decode-list.ts';
import {
  type AreasCall,
  areasRequest,
  type ExtractCall,
  extractRequest,
  type InstancesCall,
  instancesRequest,
  type ServiceRequest,
} from './request.ts';
import { type Exchange, exchange } from './transport.ts';

export interface ServiceClientOptions {
  /** For one call: connecting, waiting and reading together. */
  readonly timeoutMs: number;
  readonly clock: Clock;
  /** Which addresses are no members: private ones, unless allowed, and noria's own. */
  readonly refuses: RefuseAddress;
  /** Resolves the service's name; the machine's own resolver when left out. */
  readonly lookup?: LookupFunction;
}

export interface CallOptions {
  /** Gives the call up; it then fails with `shutting-down`. */
  readonly signal?: AbortSignal;
  /** Masked, besides the key, in whatever text of the answer is kept: the instance's plain password. */
  readonly secrets?: readonly Secret[];
}

/** When it was sent, and how long it took. */
export interface Timing {
  /** Monotonic moment just before connecting. */
  readonly sentAt: number;
  readonly tookMs: number;
}

/** An answer of operation 9 or 10. */
export type ListAnswer = DecodedList & Timing;

/**
 * Every method resolves with whatever code the service gave, and rejects with a NoriaError when it gave none:
 * service-transport (no whole answer), service-blocked (something else answered: a web page, a status other than 200, a
 * redirect), service-protocol (not understood), bad-config (no usable address), shutting-down (given up).
 */
export interface ServiceClient {
  /** One draw: operations 1 to 8. */
  extract(call: ExtractCall, options?: CallOptions): Promise<DrawAnswer>;
  /** Operation 9: the area lines that can be added to the exclusive pool. */
  areas(call: AreasCall, options?: CallOptions): Promise<ListAnswer>;
  /** Operation 10: the exclusive-pool instances of an account. */
  instances(call: InstancesCall, options?: CallOptions): Promise<ListAnswer>;
  /** Gives up the calls under way and takes no more. Safe to call twice. */
  close(): void;
}

/** Opens a client. It holds no connection between calls. */
export function openServiceClient(options: ServiceClientOptions): ServiceClient {
  const { refuses } = options;
  const underWay = new Set<AbortController>();
  let closed = false;

  /** One exchange that `close` and the caller's signal can both give up; no listener stays on a long-lived signal. */
  async function send(request: ServiceRequest, signal: AbortSignal | undefined): Promise<Exchange> {
    const giveUp = new AbortController();
    const abort = () => giveUp.abort();
    if (closed || signal?.aborted) abort();
    signal?.addEventListener('abort', abort);
    underWay.add(giveUp);
    try {
      return await exchange(request, { ...options, signal: giveUp.signal });
    } finally {
      underWay.delete(giveUp);
      signal?.removeEventListener('abort', abort);
    }
  }

  async function call<Decoded extends { readonly code: string }>(
    request: ServiceRequest,
    key: Secret,
    { signal, secrets = [] }: CallOptions,
    decode: (body: Uint8Array, origin: AnswerOrigin) => Decoded,
  ): Promise<Decoded & Timing> {
    const reply = await send(request, signal);
    const decoded = decodeReply(reply, { host: request.url.host, secrets: [key, ...secrets] }, decode);
    return { ...decoded, sentAt: reply.sentAt, tookMs: reply.tookMs };
  }

  return {
    extract: async (draw, callOptions = {}) =>
      call(extractRequest(draw), draw.key, callOptions, (body, origin) =>
        decodeDraw(body, { ...origin, ...draw, refuses }),
      ),
    areas: async (list, callOptions = {}) =>
      call(areasRequest(list), list.key, callOptions, (body, origin) => decodeList('areas', body, origin)),
    instances: async (list, callOptions = {}) =>
      call(instancesRequest(list), list.key, callOptions, (body, origin) =>
        decodeList('instances', body, origin),
      ),
    close() {
      closed = true;
      for (const giveUp of underWay) giveUp.abort();
    },
  };
}

/** The specification shows no status for errors, so a code of the service counts whatever the status; success needs 200. */
function decodeReply<Decoded extends { readonly code: string }>(
  { status, redirectsTo, body }: Exchange,
  origin: AnswerOrigin,
  decode: (body: Uint8Array, origin: AnswerOrigin) => Decoded,
): Decoded {
  if (status === 200) return decode(body, origin);
  try {
    const decoded = decode(body, origin);
    if (decoded.code !== SUCCESS) return decoded;
  } catch (error) {
    if (!(error instanceof NoriaError)) throw error;
    // handled: no code in it, so the status is what there is to tell
  }
  throw unexpectedStatus(status, redirectsTo, bodyText(body), origin);
}
