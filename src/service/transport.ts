/**
 * One HTTP exchange with the service, over a connection of its own: from the first packet to the last byte of the body.
 *
 * Follows no redirect and obeys no proxy variable of the environment: the key would go to whoever they name, and a desktop's
 * proxy setting may name noria itself. One deadline covers everything; when it is over, nothing stays open.
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
  /** Gives the exchange up: it fails with `shutting-down`. */
  readonly signal: AbortSignal;
  /** Resolves the service's name; the machine's own resolver when left out. */
  readonly lookup?: LookupFunction | undefined;
}

export interface Exchange {
  readonly status: number;
  /** Host that a redirect points to; absent when there is none. */
  readonly redirectsTo?: string;
  readonly body: Uint8Array;
  /** Monotonic moment just before connecting. */
  readonly sentAt: number;
  readonly tookMs: number;
}

/** Largest body read; a full answer of 1,000 entries is a fifth of it. */
export const MAX_BODY_BYTES = 1024 * 1024;

/** A name with several addresses: how long one of them is tried before the next. */
const ADDRESS_ATTEMPT_MS = 2_000;

/**
 * Sends a request and reads the whole answer, whatever its status.
 *
 * @throws NoriaError service-transport when no whole answer came, service-blocked when it is not HTTP, service-protocol when
 * it is larger than 1 MiB, shutting-down when `signal` gave it up.
 */
export async function exchange(request: ServiceRequest, options: ExchangeOptions): Promise<Exchange> {
  const { clock, signal, timeoutMs } = options;
  const sentAt = clock.monotonic();
  const progress: ExchangeProgress = { host: request.url.host, phase: 'connection', startedAt: sentAt };
  if (signal.aborted) throw givenUp(progress);

  let socket: Socket | undefined;
  const client = new Client(request.url.origin, {
    connect: (target, done) => {
      socket = connectSocket(target, options.lookup ?? dns.lookup, (connected) => {
        progress.phase = 'answer';
        done(null, connected);
      });
      socket.once('error', (error) => done(error, null));
    },
    pipelining: 0, // one request, then the connection ends
    allowH2: false,
    headersTimeout: 0, // one deadline of ours covers it all
    bodyTimeout: 0,
    maxResponseSize: MAX_BODY_BYTES,
  });
  // The request fails with the reason for which its client is destroyed, whatever it was waiting for.
  const timer = clock.after(timeoutMs, () => void client.destroy(timedOut(progress, timeoutMs)));
  const giveUp = () => void client.destroy(givenUp(progress));
  signal.addEventListener('abort', giveUp);
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
    signal.removeEventListener('abort', giveUp);
    socket?.destroy(); // undici would leave one that is still connecting to itself
    await client.destroy();
  }
}

function headersOf(request: ServiceRequest): Record<string, string> {
  const form = request.body === undefined ? {} : { 'content-type': 'application/x-www-form-urlencoded' };
  return { accept: '*/*', 'user-agent': 'noria', ...form };
}

/** Connects, with TLS where the address says https. An error comes as the socket's own event. */
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
 * Only the IPv4 addresses of a name that has any: the service authorises callers and clients of its proxies by address, and
 * members are reached over IPv4, so the calls must leave by the same address.
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
  answer: 'the beginning of an answer',
  body: 'the end of the answer',
} as const;

function timedOut({ host, phase }: ExchangeProgress, timeoutMs: number): NoriaError {
  return new NoriaError(
    'service-transport',
    `${host} gave no answer within ${timeoutMs} ms, waiting for ${WAITED_FOR[phase]}; check the network, or raise service.timeout`,
    { context: { host, phase, ms: timeoutMs } },
  );
}

function givenUp({ host, phase }: ExchangeProgress): NoriaError {
  return new NoriaError('shutting-down', `the call to ${host} was given up`, { context: { host, phase } });
}
