/**
 * Calls the extraction service. Each call is one attempt on a new connection; refill decides about retries. Every
 * failure is a NoriaError that names the host, what happened and what to do, and never contains a key.
 */
import type { LookupFunction } from 'node:net';
import type { Clock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import type { Secret } from '../core/secret.ts';
import { type AnswerOrigin, bodyText, type DrawAnswer, unexpectedStatus } from './answer.ts';
import { SUCCESS } from './codes.ts';
import { type DecodedDraw, type DecodedList, decodeDraw, decodeList, type RefuseAddress } from './decode.ts';
import { type DecodedLink, decodeLink, tooFastAnswer } from './link/decode-link.ts';
import {
  type AreasCall,
  areasRequest,
  extractRequest,
  type InstancesCall,
  instancesRequest,
  type LinkCall,
  type ListCall,
  listRequest,
  type ServiceAddress,
  type ServiceCall,
  type ServiceRequest,
  serviceUrl,
} from './request.ts';
import { type Exchange, type OpenTunnel, Transport, type WriteGate } from './transport.ts';

export interface ServiceClientOptions {
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly refuses: RefuseAddress;
  readonly lookup?: LookupFunction;
  readonly openTunnel?: OpenTunnel | undefined;
}

export interface CallOptions {
  /** Secrets that noria masks in the service's texts, in addition to the key of the call or the secrets of its link. */
  readonly secrets?: readonly Secret[];
  readonly gate?: WriteGate;
}

interface Timing {
  readonly sentAt: number;
}

export type ListAnswer = DecodedList & Timing;

/** The HTTP status with which many vendors refuse a call that comes too early (RFC 6585). */
const TOO_MANY_REQUESTS = 429;

type Decode<Decoded> = (body: Uint8Array, origin: AnswerOrigin, status: number) => Decoded;

/**
 * Without a usable answer, `connect` and the calls reject with front-proxy-failed, service-transport,
 * service-blocked, service-not-found, service-protocol, link-unreadable, bad-config (unusable address) or
 * shutting-down (cancelled).
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
    try {
      const transport = await Transport.open(url, { ...this.#options, signal: abort.signal });
      return new ServiceConnection(transport, this.#options, closed);
    } catch (error) {
      closed();
      throw error;
    }
  }

  close(): void {
    this.#isClosed = true;
    for (const call of this.#open) call.abort();
  }
}

export class ServiceConnection {
  readonly #transport: Transport;
  readonly #options: ServiceClientOptions;
  readonly #closed: () => void;

  constructor(transport: Transport, options: ServiceClientOptions, closed: () => void) {
    this.#transport = transport;
    this.#options = options;
    this.#closed = closed;
  }

  async extract(call: ServiceCall, options: CallOptions = {}): Promise<DrawAnswer> {
    if (call.product === 'link') return this.extractLink(call, options);
    const { refuses } = this.#options;
    const decode = (body: Uint8Array, origin: AnswerOrigin): DecodedDraw =>
      decodeDraw(body, { ...origin, ...call, refuses });
    return this.#call(extractRequest(call), withSecrets(options, call.key), decode);
  }

  async extractLink(call: LinkCall, options: CallOptions = {}): Promise<DecodedLink & Timing> {
    const { refuses, clock } = this.#options;
    const decode: Decode<DecodedLink> = (body, origin, status) =>
      status === TOO_MANY_REQUESTS
        ? tooFastAnswer(body, origin)
        : decodeLink(body, { ...call, ...origin, refuses, wallAt: clock.now() });
    return this.#call(extractRequest(call), withSecrets(options, ...call.secrets), decode);
  }

  /** @param etag - of the list that noria knows: the server then sends only a changed list. */
  fetch(call: Pick<ListCall, 'url'>, etag: string | undefined, gate?: WriteGate): Promise<Exchange> {
    return this.#transport.exchange(listRequest(call, etag), gate);
  }

  /** Operation 9: the area lines from which an exclusive instance can get more servers. */
  async areas(call: AreasCall, options: CallOptions = {}): Promise<ListAnswer> {
    return this.#call(areasRequest(call), withSecrets(options, call.key), (body, origin) =>
      decodeList('areas', body, origin),
    );
  }

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

function withSecrets(options: CallOptions, ...own: readonly Secret[]): CallOptions {
  return { ...options, secrets: [...own, ...(options.secrets ?? [])] };
}

/**
 * The specification names no HTTP status for errors, so an error code counts with any status. A success needs 200.
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
