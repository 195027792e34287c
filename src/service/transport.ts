/**
 * One HTTP exchange with the service on a new connection. Opening it and sending the request are two steps, so that
 * refill can record the call between them. noria follows no redirect, because another host would get the key, and
 * ignores the proxy variables of the environment, which may point to noria itself.
 */
import dns from 'node:dns';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import net, { type LookupFunction, type Socket } from 'node:net';
import tls from 'node:tls';
import type { Clock } from '../core/clock.ts';
import { formatDuration } from '../core/duration.ts';
import { describeError, errnoOf, type FaultCode, NoriaError } from '../core/faults.ts';
import { type HostPort, hostPort } from '../core/host-port.ts';
import { oneLine } from './fields.ts';
import type { ServiceRequest } from './request.ts';

export interface TransportOptions {
  /** Covers opening the connection, and the exchange. The time between these two steps does not count. */
  readonly timeoutMs: number;
  readonly clock: Clock;
  readonly signal: AbortSignal;
  readonly lookup?: LookupFunction | undefined;
  readonly openTunnel?: OpenTunnel | undefined;
}

/** @param done - called once, with the error if the connection failed. */
export type OpenTunnel = (
  server: HostPort,
  done: (error: NoriaError | undefined) => void,
) => {
  readonly socket: Socket;
  /** Called `ms` after the start. Returns the error if the connection is still not open. */
  timedOut(ms: number): NoriaError | undefined;
};

export interface WriteGate {
  /** Called synchronously right before the first byte of the request. If it throws, noria writes nothing. */
  beforeWrite(): void;
  answered(): void;
}

export interface Exchange {
  readonly status: number;
  readonly redirectsTo?: string;
  readonly etag?: string;
  readonly body: Uint8Array;
  /** The monotonic moment just before noria wrote the request. */
  readonly sentAt: number;
}

/** The maximum length of a body: about five times the length of a full answer with 1,000 entries. */
export const MAX_BODY_BYTES = 1024 * 1024;

/** If one of several addresses does not accept the connection within this time, noria tries the next address. */
const ADDRESS_ATTEMPT_MS = 2_000;

/**
 * Without a usable answer, `open` and `exchange` reject with front-proxy-failed, service-transport, service-blocked,
 * service-protocol, bad-config (unusable address) or shutting-down (cancelled).
 */
export class Transport {
  readonly clock: Clock;
  /** `raw` carries `socket`, which is the same one without TLS. */
  readonly #connection: { readonly raw: Socket; readonly socket: Socket };
  readonly #options: TransportOptions;
  /** The part of the time limit, in ms, that is left after the connection was opened. */
  readonly #leftMs: number;
  /** True from the writing of the request to the beginning of its answer. */
  #isUnanswered = false;

  private constructor(
    connection: { raw: Socket; socket: Socket },
    options: TransportOptions,
    leftMs: number,
  ) {
    this.clock = options.clock;
    this.#connection = connection;
    this.#options = options;
    this.#leftMs = leftMs;
  }

  /** Aborting `signal` cancels the opening and the exchange. */
  static async open(url: URL, options: TransportOptions): Promise<Transport> {
    const { clock, timeoutMs, signal, openTunnel, lookup = dns.lookup } = options;
    const startedAt = clock.monotonic();
    const progress: ExchangeProgress = { host: url.host, phase: 'connection', startedAt };
    if (signal.aborted) throw cancelled(progress);
    const { promise, resolve, reject } = Promise.withResolvers<Socket>();
    const connected = () => {
      if (url.protocol !== 'https:') return resolve(raw);
      const socket = connectTls(raw, url, () => resolve(socket));
      socket.on('error', reject);
    };
    const tunnel = openTunnel?.(serverOf(url), (error) => {
      if (error !== undefined) return reject(error);
      raw.on('error', reject);
      return connected();
    });
    // The `error` handler remains: without it, an error during or after the exchange would end the process.
    const raw = tunnel?.socket ?? connectTcp(url, lookup, connected).on('error', reject);
    const limit = limited(options, progress, timeoutMs, (error) =>
      reject((!signal.aborted && tunnel?.timedOut(timeoutMs)) || error),
    );
    try {
      const socket = await promise;
      return new Transport({ raw, socket }, options, timeoutMs - (clock.monotonic() - startedAt));
    } catch (error) {
      raw.destroy();
      throw error instanceof NoriaError ? error : transportError(error, progress, clock.monotonic());
    } finally {
      limit[Symbol.dispose]();
    }
  }

  /** Sends the request, reads the whole answer with any status, and closes the connection. */
  async exchange(request: ServiceRequest, gate?: WriteGate): Promise<Exchange> {
    const { clock } = this;
    const { socket } = this.#connection;
    let sentAt = clock.monotonic();
    const progress: ExchangeProgress = { host: request.url.host, phase: 'answer', startedAt: sentAt };
    if (this.#options.signal.aborted) throw cancelled(progress);
    if (socket.destroyed) throw transportError(socket.errored ?? CLOSED_EARLY, progress, sentAt);
    guardFirstWrite(socket, () => {
      gate?.beforeWrite();
      sentAt = clock.monotonic();
      this.#isUnanswered = true;
    });
    let reason: NoriaError | undefined;
    const limit = limited(this.#options, progress, this.#leftMs, (error) => {
      reason = error;
      this.close();
    });
    try {
      const { answer, failure } = await sendOn(socket, request);
      gate?.answered();
      this.#isUnanswered = false;
      progress.phase = 'body';
      const body = await Promise.race([readBody(answer), failure]);
      const { etag, location } = answer.headers;
      const redirectsTo = redirectHost(location, request.url);
      return {
        status: answer.statusCode ?? 0,
        ...(redirectsTo === undefined ? {} : { redirectsTo }),
        ...(etag !== undefined && { etag }),
        body,
        sentAt,
      };
    } catch (error) {
      if (reason !== undefined) throw reason;
      throw error instanceof NoriaError ? error : transportError(error, progress, clock.monotonic());
    } finally {
      limit[Symbol.dispose]();
      this.close();
    }
  }

  /**
   * Resets a connection without an answer, so that the kernel does not deliver the request after the call has ended.
   */
  close(): void {
    const { raw, socket } = this.#connection;
    if (this.#isUnanswered && !raw.destroyed) raw.resetAndDestroy();
    socket.destroy();
    raw.destroy();
  }
}

function limited(
  { clock, signal, timeoutMs }: TransportOptions,
  progress: ExchangeProgress,
  ms: number,
  end: (error: NoriaError) => void,
): Disposable {
  const timer = clock.after(ms, () => end(timedOut(progress, timeoutMs)));
  const cancel = () => end(cancelled(progress));
  signal.addEventListener('abort', cancel);
  return {
    [Symbol.dispose]: () => {
      timer[Symbol.dispose]();
      signal.removeEventListener('abort', cancel);
    },
  };
}

const CLOSED_EARLY = Object.assign(new Error('the service closed the connection'), { code: 'ECONNRESET' });

const TOO_LONG = Object.assign(new Error('the answer is too long'), { code: 'ERR_TOO_LONG' });

/**
 * Sends the request and resolves with the beginning of its answer. Node closes the connection after the answer.
 *
 * @returns `failure`: rejects when the rest of the answer breaks HTTP, and never resolves.
 */
async function sendOn(
  socket: Socket,
  request: ServiceRequest,
): Promise<{ readonly answer: IncomingMessage; readonly failure: Promise<never> }> {
  const { method, url, body, headers } = request;
  const type = body?.startsWith('{') ? 'application/json' : 'application/x-www-form-urlencoded';
  const answered = Promise.withResolvers<IncomingMessage>();
  const failed = Promise.withResolvers<never>();
  failed.promise.catch(() => {}); // ignored: after a complete answer nobody waits for it
  httpRequest({
    method,
    path: url.pathname + url.search,
    headers: {
      ...{ host: url.host, accept: '*/*', 'user-agent': 'noria' },
      ...(body !== undefined && { 'content-type': type }),
      ...headers,
    },
    createConnection: () => socket,
  })
    .on('response', answered.resolve)
    .on('error', failed.reject)
    .end(body);
  return { answer: await Promise.race([answered.promise, failed.promise]), failure: failed.promise };
}

async function readBody(answer: IncomingMessage): Promise<Uint8Array> {
  const chunks: Buffer[] = [];
  let length = 0;
  for await (const chunk of answer) {
    length += chunk.length;
    if (length > MAX_BODY_BYTES) throw TOO_LONG;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

/** Calls `allow` synchronously before the first byte is written. If `allow` throws, nothing is written and the exchange fails with that error. */
function guardFirstWrite(socket: Socket, allow: () => void): void {
  const { write } = socket;
  socket.write = (...written: unknown[]) => {
    socket.write = write;
    try {
      allow();
    } catch (error) {
      socket.write = () => false; // Node writes from an event, where nobody could catch the error
      socket.destroy(error instanceof Error ? error : new Error(String(error)));
      return false;
    }
    return Reflect.apply(write, socket, written);
  };
}

function serverOf({ hostname, port, protocol, host }: URL): HostPort {
  const server = hostPort(withoutBrackets(hostname), Number(port) || (protocol === 'https:' ? 443 : 80));
  if (server === undefined) throw new NoriaError('bad-config', `${host} is not a host and a port`);
  return server;
}

function connectTcp(url: URL, lookup: LookupFunction, connected: () => void): Socket {
  const { host, port } = serverOf(url);
  return net.connect(
    {
      host,
      port,
      lookup: ipv4First(lookup),
      autoSelectFamily: true,
      autoSelectFamilyAttemptTimeout: ADDRESS_ATTEMPT_MS,
    },
    connected,
  );
}

function connectTls(raw: Socket, { hostname }: URL, connected: () => void): Socket {
  const host = withoutBrackets(hostname);
  const servername = net.isIP(host) === 0 ? { servername: host } : {};
  return tls.connect({ socket: raw, host, ...servername, ALPNProtocols: ['http/1.1'] }, connected);
}

function withoutBrackets(hostname: string): string {
  return hostname.replace(/^\[|\]$/g, '');
}

/**
 * The service authorises one address of this machine, for calls and for connections to members. noria connects to
 * members over IPv4, so it must call the service over IPv4, too.
 */
function ipv4First(lookup: LookupFunction): LookupFunction {
  return (hostname, options, done) => {
    lookup(hostname, { ...options, all: true }, (error, found) => {
      if (error !== null || !Array.isArray(found)) return done(error, found);
      const ipv4 = found.filter(({ family }) => family === 4);
      const usable = ipv4.length > 0 ? ipv4 : found;
      const [first] = usable;
      if (options.all === true || first === undefined) done(null, usable);
      else done(null, first.address, first.family);
    });
  };
}

function redirectHost(location: string | string[] | undefined, from: URL): string | undefined {
  return typeof location === 'string' && URL.canParse(location, from.href)
    ? new URL(location, from.href).host
    : undefined;
}

const WAITED_FOR = {
  connection: 'the connection',
  answer: 'the start of the answer',
  body: 'the end of the answer',
} as const;

function timedOut({ host, phase }: ExchangeProgress, timeoutMs: number): NoriaError {
  return new NoriaError(
    'service-transport',
    `${host} did not answer within ${formatDuration(timeoutMs)} (waiting for ${WAITED_FOR[phase]}); check the network, or raise service.timeout`,
    { context: { host, phase, ms: timeoutMs } },
  );
}

function cancelled({ host, phase }: ExchangeProgress): NoriaError {
  return new NoriaError('shutting-down', `the call to ${host} was cancelled`, { context: { host, phase } });
}

interface ExchangeProgress {
  readonly host: string;
  phase: 'connection' | 'answer' | 'body';
  readonly startedAt: number;
}

const TLS_CODE = /^(?:EPROTO$|ERR_TLS|ERR_SSL)|CERT|SELF_SIGNED|^UNABLE_TO/;

/** It quotes nothing of the request, so it cannot contain the key. */
function transportError(
  error: unknown,
  { host, phase, startedAt }: ExchangeProgress,
  nowAt: number,
): NoriaError {
  const ms = Math.round(nowAt - startedAt);
  const errno = errnoOf(error);
  const [code, message] = faultOf(errno, error, { host, ms });
  const context = { host, phase, ms, ...(errno === undefined ? {} : { errno }) };
  // The error of the HTTP parser contains received bytes, which may quote the request with its key: it is no cause.
  const cause = isParserError(errno) ? {} : { cause: error };
  return new NoriaError(code, message, { ...cause, context });
}

function faultOf(
  errno: string | undefined,
  error: unknown,
  { host, ms }: { readonly host: string; readonly ms: number },
): readonly [code: FaultCode, message: string] {
  switch (errno) {
    case 'ECONNREFUSED':
      return [
        'service-transport',
        `${host} refused the connection after ${ms} ms; check service.baseUrl, or the source's own baseUrl, host or url, and whether the service is up`,
      ];
    case 'ECONNRESET':
    case 'EPIPE':
      return [
        'service-transport',
        `${host} closed the connection after ${ms} ms, before the answer was complete`,
      ];
    case 'ENOTFOUND':
    case 'EAI_AGAIN':
    case 'ENODATA':
      return [
        'service-transport',
        `could not resolve ${host} (after ${ms} ms); check the host name and this machine's DNS`,
      ];
    case 'EHOSTUNREACH':
    case 'ENETUNREACH':
    case 'EADDRNOTAVAIL':
    case 'ETIMEDOUT':
      return ['service-transport', `could not reach ${host} (after ${ms} ms); check this machine's network`];
    case 'ERR_TOO_LONG':
      return [
        'service-protocol',
        `${host} sent more than 1 MiB, the limit of an answer; check service.baseUrl, or the source's own baseUrl, host or url`,
      ];
    default:
      break;
  }
  if (isParserError(errno))
    return [
      'service-blocked',
      `${host} did not answer with HTTP; check the host, the port and http:// or https:// of the address`,
    ];
  const reason = errno ?? oneLine(describeError(error));
  return [
    'service-transport',
    errno !== undefined && TLS_CODE.test(errno)
      ? `the TLS handshake with ${host} failed after ${ms} ms (${reason}); check its certificate, and whether the address should begin with http://`
      : `the call to ${host} failed after ${ms} ms: ${reason}`,
  ];
}

function isParserError(errno: string | undefined): boolean {
  return errno?.startsWith('HPE_') === true;
}
