/**
 * Calls the extraction service: one call, one attempt, one decoded answer. Pace, retries and reactions belong to refill.
 *
 * Every failure is a NoriaError that names the host, what happened and what to do. It never contains a key.
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
  /** For one whole call: connecting, waiting and reading. */
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly refuses: RefuseAddress;
  /** Resolves the service's name; default: the system resolver. */
  readonly lookup?: LookupFunction;
}

export interface CallOptions {
  /** Cancels the call, which then fails with `shutting-down`. */
  readonly signal?: AbortSignal;
  /** Masked in every kept text of the answer, in addition to the key. */
  readonly secrets?: readonly Secret[];
}

export interface Timing {
  /** Monotonic moment just before connecting. */
  readonly sentAt: number;
  readonly tookMs: number;
}

/** An answer of operation 9 or 10. */
export type ListAnswer = DecodedList & Timing;

type Decode<Decoded> = (body: Uint8Array, origin: AnswerOrigin) => Decoded;

/**
 * A call resolves with the service's answer, whatever its code, and rejects with a NoriaError when there is none:
 * service-transport (no complete answer), service-blocked (a web page, a redirect or a status other than 200),
 * service-protocol (not understood), bad-config (unusable address), shutting-down (cancelled).
 *
 * The client keeps no connection between calls.
 */
export class ServiceClient {
  readonly #options: ServiceClientOptions;
  readonly #inFlight = new Set<AbortController>();
  #isClosed = false;

  constructor(options: ServiceClientOptions) {
    this.#options = options;
  }

  /** One draw: operations 1 to 8. */
  async extract(call: ExtractCall, options: CallOptions = {}): Promise<DrawAnswer> {
    const { refuses } = this.#options;
    return this.#call(extractRequest(call), call.key, options, (body, origin) =>
      decodeDraw(body, { ...origin, ...call, refuses }),
    );
  }

  /** Operation 9: the area lines that can be added to the exclusive pool. */
  async areas(call: AreasCall, options: CallOptions = {}): Promise<ListAnswer> {
    return this.#call(areasRequest(call), call.key, options, (body, origin) =>
      decodeList('areas', body, origin),
    );
  }

  /** Operation 10: the exclusive-pool instances of an account. */
  async instances(call: InstancesCall, options: CallOptions = {}): Promise<ListAnswer> {
    return this.#call(instancesRequest(call), call.key, options, (body, origin) =>
      decodeList('instances', body, origin),
    );
  }

  /** Cancels the calls in flight and rejects later ones. Idempotent. */
  close(): void {
    this.#isClosed = true;
    for (const call of this.#inFlight) call.abort();
  }

  async #call<Decoded extends { readonly code: string }>(
    request: ServiceRequest,
    key: Secret,
    { signal, secrets = [] }: CallOptions,
    decode: Decode<Decoded>,
  ): Promise<Decoded & Timing> {
    const reply = await this.#send(request, signal);
    const decoded = decodeReply(reply, { host: request.url.host, secrets: [key, ...secrets] }, decode);
    return { ...decoded, sentAt: reply.sentAt, tookMs: reply.tookMs };
  }

  /** `close` and the caller's signal can cancel it. It removes its listener, because the signal may live long. */
  async #send(request: ServiceRequest, signal: AbortSignal | undefined): Promise<Exchange> {
    const call = new AbortController();
    const abort = () => call.abort();
    if (this.#isClosed || signal?.aborted) abort();
    signal?.addEventListener('abort', abort);
    this.#inFlight.add(call);
    try {
      return await exchange(request, { ...this.#options, signal: call.signal });
    } finally {
      this.#inFlight.delete(call);
      signal?.removeEventListener('abort', abort);
    }
  }
}

/** The specification names no status for errors, so a code of the service is valid with any status. A success needs 200. */
function decodeReply<Decoded extends { readonly code: string }>(
  { status, redirectsTo, body }: Exchange,
  origin: AnswerOrigin,
  decode: Decode<Decoded>,
): Decoded {
  if (status === 200) return decode(body, origin);
  try {
    const decoded = decode(body, origin);
    if (decoded.code !== SUCCESS) return decoded;
  } catch (error) {
    if (!(error instanceof NoriaError)) throw error;
    // ignored: without a code, the status is the better explanation
  }
  throw unexpectedStatus(status, redirectsTo, bodyText(body), origin);
}
