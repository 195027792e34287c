/**
 * Calls the extraction service. Each call is one attempt and returns one decoded answer; refill decides about
 * retries.
 *
 * Every failure is a NoriaError that names the host, what happened and what to do. The error never contains a key.
 */
import type { LookupFunction } from 'node:net';
import type { Clock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import type { Secret } from '../core/secret.ts';
import type { DrawAnswer } from './answer.ts';
import { type AnswerOrigin, bodyText, unexpectedStatus } from './body.ts';
import { SUCCESS } from './codes.ts';
import { type DecodedDraw, decodeDraw, type RefuseAddress } from './decode.ts';
import { type DecodedList, decodeList } from './decode-list.ts';
import { type DecodedLink, decodeLink, tooFastAnswer } from './link/decode-link.ts';
import {
  type AreasCall,
  areasRequest,
  type DrawCall,
  extractRequest,
  type InstancesCall,
  instancesRequest,
  type LinkCall,
  type ServiceAddress,
  type ServiceRequest,
  serviceUrl,
} from './request.ts';
import { type Exchange, type OpenTunnel, Transport, type WriteGate } from './transport.ts';

export interface ServiceClientOptions {
  /** The time limit in ms of one whole call: connecting, waiting for the answer, and reading it. */
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly refuses: RefuseAddress;
  /** Resolves the host name of the service. Default: the system resolver. */
  readonly lookup?: LookupFunction;
  /** Connects through the front proxy. If absent, noria connects directly. */
  readonly openTunnel?: OpenTunnel | undefined;
}

export interface CallOptions {
  /** Secrets that noria masks in the service's texts, in addition to the key of the call or the secrets of its link. */
  readonly secrets?: readonly Secret[];
  readonly gate?: WriteGate;
}

interface Timing {
  /** The monotonic moment just before noria wrote the request. */
  readonly sentAt: number;
}

export type ListAnswer = DecodedList & Timing;

/** The HTTP status with which many vendors refuse a call that comes too early (RFC 6585). */
const TOO_MANY_REQUESTS = 429;

type Decode<Decoded> = (body: Uint8Array, origin: AnswerOrigin, status: number) => Decoded;

/**
 * Opens a new connection for each call.
 *
 * If noria gets no usable answer, `connect` and the calls reject with a NoriaError: front-proxy-failed,
 * service-transport (no complete answer), service-blocked (a web page, a redirect or a status other than 200),
 * service-not-found (status 404, 405, 410 or 501), service-protocol or link-unreadable (noria cannot read the answer),
 * bad-config (unusable address), shutting-down (cancelled).
 */
export class ServiceClient {
  readonly #options: ServiceClientOptions;
  readonly #open = new Set<AbortController>();
  #isClosed = false;

  constructor(options: ServiceClientOptions) {
    this.#options = options;
  }

  /** Opens the connection of one call. The caller closes it. Aborting `signal` cancels the opening and the call. */
  async connect(address: ServiceAddress, signal?: AbortSignal): Promise<ServiceConnection> {
    const url = serviceUrl(address);
    const abort = new AbortController();
    const cancel = () => abort.abort();
    if (this.#isClosed || signal?.aborted) cancel();
    signal?.addEventListener('abort', cancel);
    this.#open.add(abort);
    // A signal may outlive many connections, so each closed connection removes its `abort` handler from the signal.
    const closed = () => {
      this.#open.delete(abort);
      signal?.removeEventListener('abort', cancel);
    };
    const { timeoutMs, clock, lookup, openTunnel, refuses } = this.#options;
    try {
      const transport = await Transport.open(url, {
        timeoutMs,
        clock,
        lookup,
        openTunnel,
        signal: abort.signal,
      });
      return new ServiceConnection(transport, { refuses, clock }, closed);
    } catch (error) {
      closed();
      throw error;
    }
  }

  /** Cancels all calls and rejects later calls. Idempotent. */
  close(): void {
    this.#isClosed = true;
    for (const call of this.#open) call.abort();
  }
}

/**
 * A connection to the service for one call. The call resolves with the service's answer, even if its code is an
 * error.
 */
export class ServiceConnection {
  readonly #transport: Transport;
  readonly #parts: Pick<ServiceClientOptions, 'refuses' | 'clock'>;
  readonly #closed: () => void;

  constructor(
    transport: Transport,
    parts: Pick<ServiceClientOptions, 'refuses' | 'clock'>,
    closed: () => void,
  ) {
    this.#transport = transport;
    this.#parts = parts;
    this.#closed = closed;
  }

  /** Makes one draw: operations 1 to 8, or a link. */
  async extract(call: DrawCall, options: CallOptions = {}): Promise<DrawAnswer> {
    if (call.product === 'link') return this.extractLink(call, options);
    const { refuses } = this.#parts;
    const decode = (body: Uint8Array, origin: AnswerOrigin): DecodedDraw =>
      decodeDraw(body, { ...origin, ...call, refuses });
    return this.#call(extractRequest(call), withSecrets(options, call.key), decode);
  }

  /** Makes one draw from a link. The result also contains what noria recognised in the answer. */
  async extractLink(call: LinkCall, options: CallOptions = {}): Promise<DecodedLink & Timing> {
    const { refuses, clock } = this.#parts;
    const decode: Decode<DecodedLink> = (body, origin, status) =>
      status === TOO_MANY_REQUESTS
        ? tooFastAnswer(body, origin)
        : decodeLink(body, { ...call, ...origin, refuses, wallAt: clock.now() });
    return this.#call(extractRequest(call), withSecrets(options, ...call.secrets), decode);
  }

  /** Operation 9: the area lines from which an exclusive instance can get more servers. */
  async areas(call: AreasCall, options: CallOptions = {}): Promise<ListAnswer> {
    return this.#call(areasRequest(call), withSecrets(options, call.key), (body, origin) =>
      decodeList('areas', body, origin),
    );
  }

  /** Operation 10: the exclusive instances of an account. */
  async instances(call: InstancesCall, options: CallOptions = {}): Promise<ListAnswer> {
    return this.#call(instancesRequest(call), withSecrets(options, call.key), (body, origin) =>
      decodeList('instances', body, origin),
    );
  }

  close(): void {
    this.#transport.close();
    this.#closed();
  }

  async #call<Decoded extends { readonly code: string }>(
    request: ServiceRequest,
    { gate, secrets = [] }: CallOptions,
    decode: Decode<Decoded>,
  ): Promise<Decoded & Timing> {
    const reply = await this.#transport.exchange(request, gate);
    const decoded = decodeReply(reply, { host: request.url.host, secrets }, decode);
    return { ...decoded, sentAt: reply.sentAt };
  }
}

/** Adds the secrets of a call to those that noria masks. */
function withSecrets(options: CallOptions, ...own: readonly Secret[]): CallOptions {
  return { ...options, secrets: [...own, ...(options.secrets ?? [])] };
}

/**
 * The specification names no HTTP status for errors, so noria accepts an error code of the service with any status. A
 * success needs status 200.
 */
function decodeReply<Decoded extends { readonly code: string }>(
  reply: Exchange,
  origin: AnswerOrigin,
  decode: Decode<Decoded>,
): Decoded {
  const { status, body } = reply;
  if (status === 200) return decode(body, origin, status);
  try {
    const decoded = decode(body, origin, status);
    if (decoded.code !== SUCCESS) return decoded;
  } catch (error) {
    if (!(error instanceof NoriaError)) throw error;
    // ignored: the caller gets the error for the HTTP status, which explains more
  }
  throw unexpectedStatus(reply, bodyText(body), origin);
}
