/**
 * Makes one HTTP exchange with the service on a new connection, and closes it.
 *
 * It follows no redirect and ignores the proxy variables of the environment: another host would get the key, and a proxy
 * variable may even point to noria itself. One timeout covers everything.
 */
import dns from 'node:dns';
import net, { type LookupFunction, type Socket } from 'node:net';
import tls from 'node:tls';
import { type buildConnector, Client } from 'undici';
import type { Clock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import type { ServiceRequest } from './request.ts';
import { type ExchangeProgress, transportError } from './transport-error.ts';

export interface ExchangeOptions {
  /** From the start of connecting to the end of the body. */
  readonly timeoutMs: number;
  readonly clock: Clock;
  /** Cancels the exchange, which then fails with `shutting-down`. */
  readonly signal: AbortSignal;
  /** Resolves the service's name; default: the system resolver. */
  readonly lookup?: LookupFunction | undefined;
}

export interface Exchange {
  readonly status: number;
  /** The target host of a redirect. */
  readonly redirectsTo?: string;
  readonly body: Uint8Array;
  /** Monotonic moment just before connecting. */
  readonly sentAt: number;
  readonly tookMs: number;
}

/** The largest accepted body: five times a full answer of 1,000 entries. */
export const MAX_BODY_BYTES = 1024 * 1024;

/** How long to try one of several addresses before the next. */
const ADDRESS_ATTEMPT_MS = 2_000;

/**
 * Sends a request and reads the whole answer, with any status.
 *
 * @throws NoriaError service-transport without a complete answer, service-blocked when it is not HTTP, service-protocol when
 * it is larger than 1 MiB, shutting-down when `signal` cancelled it.
 */
export async function exchange(request: ServiceRequest, options: ExchangeOptions): Promise<Exchange> {
  const { clock, signal, timeoutMs } = options;
  const sentAt = clock.monotonic();
  const progress: ExchangeProgress = { host: request.url.host, phase: 'connection', startedAt: sentAt };
  if (signal.aborted) throw cancelled(progress);

  let socket: Socket | undefined;
  const client = new Client(request.url.origin, {
    connect: (target, done) => {
      socket = connectSocket(target, options.lookup ?? dns.lookup, (connected) => {
        progress.phase = 'answer';
        done(null, connected);
      });
      socket.once('error', (error) => done(error, null));
    },
    pipelining: 0, // closes the connection after one request
    allowH2: false,
    headersTimeout: 0, // the timer below covers everything
    bodyTimeout: 0,
    maxResponseSize: MAX_BODY_BYTES,
  });
  // Destroying the client makes the request fail with the given reason, in any phase.
  const timer = clock.after(timeoutMs, () => void client.destroy(timedOut(progress, timeoutMs)));
  const cancel = () => void client.destroy(cancelled(progress));
  signal.addEventListener('abort', cancel);
  try {
    const answer = await client.request({
      method: request.method,
      path: request.url.pathname + request.url.search,
      headers: headersOf(request),
      body: request.body ?? null,
    });
    progress.phase = 'body';
    const body = await answer.body.bytes();
    const redirectsTo = redirectHost(answer.headers['location'], request.url);
    return {
      status: answer.statusCode,
      ...(redirectsTo === undefined ? {} : { redirectsTo }),
      body,
      sentAt,
      tookMs: clock.monotonic() - sentAt,
    };
  } catch (error) {
    throw error instanceof NoriaError ? error : transportError(error, progress, clock.monotonic());
  } finally {
    timer[Symbol.dispose]();
    signal.removeEventListener('abort', cancel);
    socket?.destroy(); // undici does not destroy a socket that is still connecting
    await client.destroy();
  }
}

function headersOf(request: ServiceRequest): Record<string, string> {
  const form = request.body === undefined ? {} : { 'content-type': 'application/x-www-form-urlencoded' };
  return { accept: '*/*', 'user-agent': 'noria', ...form };
}

/** Connects, with TLS for https. An error is emitted by the socket. */
function connectSocket(
  { hostname, port, protocol }: buildConnector.Options,
  lookup: LookupFunction,
  connected: (socket: Socket) => void,
): Socket {
  const secure = protocol === 'https:';
  const target = {
    host: hostname,
    port: Number(port) || (secure ? 443 : 80),
    lookup: ipv4First(lookup),
    autoSelectFamily: true,
    autoSelectFamilyAttemptTimeout: ADDRESS_ATTEMPT_MS,
  };
  if (!secure) {
    const socket: Socket = net.connect(target, () => connected(socket));
    return socket;
  }
  const servername = net.isIP(hostname) === 0 ? { servername: hostname } : {};
  const socket: tls.TLSSocket = tls.connect({ ...target, ...servername, ALPNProtocols: ['http/1.1'] }, () =>
    connected(socket),
  );
  return socket;
}

/**
 * Ignores the IPv6 addresses of a name that has IPv4 ones. The service authorises both calls and connections to members by
 * address. Members are connected over IPv4, so the calls must have the same source address.
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
    `${host} did not answer within ${timeoutMs} ms (waiting for ${WAITED_FOR[phase]}); check the network, or raise service.timeout`,
    { context: { host, phase, ms: timeoutMs } },
  );
}

function cancelled({ host, phase }: ExchangeProgress): NoriaError {
  return new NoriaError('shutting-down', `the call to ${host} was cancelled`, { context: { host, phase } });
}
