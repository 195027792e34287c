/**
 * One probe of one member: a request to the site of `health.check` or, without a check, one or two attempts. A sign
 * of life is any reply that only a working proxy gives. The probe owns its connection; the prober owns the lease.
 */
import { isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Clock } from '../core/clock.ts';
import type { Deadlines } from '../core/deadlines.ts';
import type { Blame } from '../core/events.ts';
import type { FaultCode } from '../core/faults.ts';
import { type HostPort, hostPort, parseHostPort } from '../core/host-port.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import { memberHandshake, type RawConnection } from '../dialer/attempt.ts';
import { MAX_RESPONSE_HEAD_BYTES, readResponseHead } from '../dialer/connect-handshake.ts';
import type { MemberDialer, SingleAttempt, SingleAttemptResult } from '../dialer/dialer.ts';
import type { Lease } from '../pool/lease.ts';

export interface CheckSite {
  readonly target: HostPort;
  /** Whether the request uses TLS inside the tunnel. The check of the certificate then detects a man in the middle. */
  readonly tls: boolean;
  readonly url: string;
  /** Without the default port (RFC 9110 §7.2). */
  readonly authority: string;
  readonly path: string;
}

export type ProbeOutcome =
  /** `latencyMs`: only with a site. `relays`: the member relayed bytes of a target. */
  | { readonly kind: 'passed'; readonly latencyMs?: number; readonly relays: boolean }
  | { readonly kind: 'failed'; readonly fault: FaultCode; readonly blame: Blame }
  /** It closed every connection without an answer, or never answered. */
  | { readonly kind: 'lifeless'; readonly fault: FaultCode }
  /** It did not connect to its own address, at which it listens, or relayed nothing from there. */
  | { readonly kind: 'unconnected'; readonly fault: FaultCode }
  /** If another member reaches the site, this one is at fault. `alive`: it speaks its protocol. */
  | { readonly kind: 'suspect'; readonly fault: FaultCode; readonly alive: boolean }
  | { readonly kind: 'cancelled' };

interface ProbeParts {
  readonly clock: Clock;
  readonly deadlines: Deadlines;
  readonly dialer: Pick<MemberDialer, 'attempt'>;
}

export type Asks = { readonly at: CheckSite; readonly expectStatus: number } | 'sign-of-life' | 'own-address';

interface Wait {
  readonly deadlines: Deadlines;
  readonly timeoutMs: number;
}

const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

/** Names under `.invalid` never resolve (RFC 6761): a working proxy reports that it cannot reach the target. */
const NOWHERE: HostPort = {
  host: 'probe.invalid',
  port: 443,
  kind: 'name',
  text: 'probe.invalid:443',
};

/** Only a working member says that it cannot reach the target. */
const SIGNS_OF_LIFE: ReadonlySet<FaultCode> = new Set(['target-doubted', 'member-refused']);

const SITE_FAULTS = {
  silent: 'member-silent',
  closed: 'member-closed',
  garbage: 'member-protocol',
} as const satisfies Record<string, FaultCode>;

export class Probe {
  readonly lease: Lease;
  readonly #asks: Asks;
  readonly #timeoutMs: number;
  readonly #parts: ProbeParts;
  #attempt: SingleAttempt | undefined;
  #socket: Socket | undefined;
  #cancelled = false;

  /** @param timeoutMs - of the whole probe if it asks a site, otherwise of each step. */
  constructor(lease: Lease, asks: Asks, timeoutMs: number, parts: ProbeParts) {
    this.lease = lease;
    this.#asks = asks;
    this.#timeoutMs = timeoutMs;
    this.#parts = parts;
  }

  cancel(): void {
    this.#cancelled = true;
    this.#attempt?.cancel();
    this.#socket?.destroy();
  }

  run(): Promise<ProbeOutcome> {
    const asks = this.#asks;
    return typeof asks === 'object'
      ? this.#askForSite(asks.at, asks.expectStatus)
      : this.#askForSignOfLife(asks);
  }

  async #askForSite(at: CheckSite, expectStatus: number): Promise<ProbeOutcome> {
    const { clock, deadlines } = this.#parts;
    const startedAt = clock.monotonic();
    // A check of an http site may use absolute form, like a client's plain request.
    const result = await this.#try(at.target, at.tls ? 'tunnel' : 'forward');
    if (result.kind === 'cancelled') return result;
    if (result.kind === 'failed') {
      const { failure, blame } = result;
      const { fault } = failure;
      if (blame !== undefined) return { kind: 'failed', fault, blame };
      return { kind: 'suspect', fault, alive: SIGNS_OF_LIFE.has(fault) };
    }
    const leftMs = Math.max(0, this.#timeoutMs - (clock.monotonic() - startedAt));
    const answer = await askSite(result.connection, at, { deadlines, timeoutMs: leftMs });
    if (this.#cancelled) return { kind: 'cancelled' };
    if (answer === expectStatus) return { kind: 'passed', latencyMs: result.ms, relays: true };
    const fault = typeof answer === 'number' ? 'target-doubted' : SITE_FAULTS[answer];
    return { kind: 'suspect', fault, alive: true };
  }

  /**
   * Most working members report `NOWHERE` as unreachable; some close the connection or wait for their resolver. A
   * working member can usually reach its own address.
   * @param asks - which of the two comes first; after `own-address`, the member must also relay bytes from there.
   */
  async #askForSignOfLife(asks: 'sign-of-life' | 'own-address'): Promise<ProbeOutcome> {
    const { host, port } = this.lease;
    const own = hostPort(host, port) ?? NOWHERE;
    let lastFault: FaultCode = 'member-silent';
    for (const target of asks === 'own-address' ? [own, NOWHERE] : [NOWHERE, own]) {
      const mustRelay = asks === 'own-address' && target === own;
      const result = await this.#try(target, 'tunnel');
      if (result.kind === 'cancelled') return result;
      if (result.kind === 'accepted') {
        if (mustRelay) return this.#checkRelay(result.connection);
        result.connection.socket.destroy();
        return { kind: 'passed', relays: false };
      }
      const { blame } = result;
      const { fault } = result.failure;
      if (blame !== undefined) return { kind: 'failed', fault, blame };
      if (mustRelay && fault === 'target-doubted') return { kind: 'unconnected', fault };
      if (SIGNS_OF_LIFE.has(fault)) return { kind: 'passed', relays: false };
      lastFault = fault;
    }
    return { kind: 'lifeless', fault: lastFault };
  }

  async #checkRelay(connection: RawConnection): Promise<ProbeOutcome> {
    const { protocol } = this.lease;
    const relays = await isRelayed(connection, protocol, {
      deadlines: this.#parts.deadlines,
      timeoutMs: this.#timeoutMs,
    });
    if (this.#cancelled) return { kind: 'cancelled' };
    return relays ? { kind: 'passed', relays } : { kind: 'unconnected', fault: 'member-cut' };
  }

  async #try(target: HostPort, use: 'tunnel' | 'forward'): Promise<SingleAttemptResult> {
    if (this.#cancelled) return { kind: 'cancelled' };
    this.#attempt = this.#parts.dialer.attempt({
      lease: this.lease,
      target,
      use,
      timeoutMs: this.#timeoutMs,
    });
    const result = await this.#attempt.result;
    if (result.kind !== 'accepted') return result;
    this.#socket = result.connection.socket;
    if (!this.#cancelled) return result;
    result.connection.socket.destroy();
    return { kind: 'cancelled' };
  }
}

/** The most bytes of an answer that noria reads to find an address in it. */
const MAX_ANSWER_BYTES = 64 * 1024;
const ADDRESS = /(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|[\da-f]{0,4}(?::[\da-f]{0,4}){2,7}/gi;

/**
 * Asks a site through a member, and returns the first IP address in the body of its answer; undefined if there is none.
 * The lease need not be one of the pool.
 */
export async function exitThrough(
  lease: Lease,
  site: CheckSite,
  { clock, deadlines, dialer, timeoutMs, signal }: ProbeParts & Wait & { readonly signal: AbortSignal },
): Promise<string | undefined> {
  const startedAt = clock.monotonic();
  const use = site.tls ? 'tunnel' : 'forward';
  const attempt = dialer.attempt({ lease, target: site.target, use, timeoutMs });
  signal.addEventListener('abort', attempt.cancel);
  const result = await attempt.result;
  signal.removeEventListener('abort', attempt.cancel);
  if (result.kind !== 'accepted') return undefined;
  const { connection } = result;
  const cancel = () => connection.socket.destroy();
  if (signal.aborted) cancel();
  signal.addEventListener('abort', cancel);
  let text = '';
  const leftMs = Math.max(0, timeoutMs - (clock.monotonic() - startedAt));
  await ask(connection, site, { deadlines, timeoutMs: leftMs }, (held) => {
    text = held.toString('latin1');
    return held.length > MAX_ANSWER_BYTES ? 'long' : undefined;
  });
  signal.removeEventListener('abort', cancel);
  const [head = '', ...body] = text.split('\r\n\r\n');
  if (!/^HTTP\/1\.[01] 2/.test(head)) return undefined;
  return body
    .join('\r\n')
    .match(ADDRESS)
    ?.find((found) => isIP(found) !== 0);
}

/** Sends the first message of a client to the member's own address, through the member, and waits for any byte. */
async function isRelayed(connection: RawConnection, protocol: MemberProtocol, wait: Wait): Promise<boolean> {
  const { opening } = memberHandshake(protocol, NOWHERE, undefined);
  const answer = await exchange(connection.socket, opening, connection.early, { ...wait, read: () => true });
  return answer === true;
}

export function readCheckSite(text: string): CheckSite | undefined {
  const url = URL.parse(text);
  const defaultPort = url === null ? undefined : DEFAULT_PORTS[url.protocol];
  if (url === null || defaultPort === undefined) return undefined;
  const target = parseHostPort(url.host, defaultPort);
  if (target === undefined) return undefined;
  url.hash = '';
  const path = `${url.pathname}${url.search}`;
  return { target, tls: url.protocol === 'https:', url: url.href, authority: url.host, path };
}

function askSite(connection: RawConnection, site: CheckSite, wait: Wait) {
  return ask(connection, site, wait, (held) => {
    const head = readResponseHead(held);
    if (head === 'garbage' || held.length > MAX_RESPONSE_HEAD_BYTES) return 'garbage';
    return head === 'more' ? undefined : head.status;
  });
}

function ask<Answer>(
  connection: RawConnection,
  site: CheckSite,
  wait: Wait,
  read: (held: Buffer) => Answer | undefined,
) {
  const socket = site.tls ? overTls(connection.socket, site.target) : connection.socket;
  return exchange(socket, requestFor(site, connection), connection.early, { ...wait, read });
}

/**
 * Resolves with the first defined result of `read`, or why there is none. Always closes the connection. Never
 * rejects.
 */
function exchange<Answer>(
  socket: Socket,
  opening: string | Buffer,
  early: Buffer,
  { deadlines, timeoutMs, read }: Wait & { readonly read: (held: Buffer) => Answer | undefined },
): Promise<Answer | 'silent' | 'closed'> {
  return new Promise((resolve) => {
    let held = early;
    const end = (answer: Answer | 'silent' | 'closed') => {
      deadlines.clear(deadline);
      socket.off('data', onData).off('end', onEnd).off('close', onEnd);
      socket.destroy(); // if the socket is a TLS socket, this also closes the TCP connection
      resolve(answer);
    };
    const deadline = deadlines.set(timeoutMs, () => end('silent'));
    const onEnd = () => end('closed');
    const onData = (bytes: Buffer) => {
      held = Buffer.concat([held, bytes]);
      const answer = read(held);
      if (answer !== undefined) end(answer);
    };
    socket.on('data', onData).on('end', onEnd).on('close', onEnd);
    socket.write(opening, 'latin1');
    socket.resume();
    if (early.length > 0) onData(Buffer.alloc(0));
  });
}

function overTls(socket: Socket, { host, kind }: HostPort): Socket {
  const tls = connectTls({ socket, ...(kind === 'name' ? { servername: host } : {}) });
  return tls.on('error', () => {}); // ignored: 'close' follows every error, and its handler ends the request
}

function requestFor({ authority, url, path }: CheckSite, { forwardMode, login }: RawConnection): string {
  const absolute = forwardMode === 'absolute';
  const credentials = absolute ? login?.authorization.reveal() : undefined;
  const lines = [
    `GET ${absolute ? url : path} HTTP/1.1`,
    `Host: ${authority}`,
    'Accept: */*',
    'Connection: close',
    ...(credentials === undefined ? [] : [`Proxy-Authorization: ${credentials}`]),
  ];
  return `${lines.join('\r\n')}\r\n\r\n`;
}
