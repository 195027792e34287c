/**
 * Probes unproven members before their first use, and members that failed for only one client; with a check, also
 * those whose quarantine has ended or that had no success for a while. A probe is a request to the site of
 * `health.check` or, without a check, one or two attempts. A member that does not reach the site is blamed only after
 * another one has reached it, so a dead site or a wrong check does no harm. A member without a sign of life, a reply
 * that only a working proxy gives, is blamed only after a working member has given one.
 */
import { isIP, type Socket } from 'node:net';
import { addAbortSignal } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import type { Clock } from '../core/clock.ts';
import { Deadlines } from '../core/deadlines.ts';
import { MINUTE_MS } from '../core/duration.ts';
import type { Blame, EventBus } from '../core/events.ts';
import { type FaultCode, NoriaError } from '../core/faults.ts';
import { type HostPort, hostPort, parseHostPort } from '../core/host-port.ts';
import type { Random } from '../core/random.ts';
import type { RawConnection } from '../dialer/attempt.ts';
import type { MemberDialer, SingleAttemptResult } from '../dialer/dialer.ts';
import { MAX_RESPONSE_HEAD_BYTES, memberHandshake, NO_BYTES, readResponseHead } from '../dialer/handshake.ts';
import type { DrawnMember } from '../pool/drawn-member.ts';
import type { Lease, ProbeLease } from '../pool/lease.ts';
import type { Pool } from '../pool/pool.ts';

export interface ProberSettings {
  readonly check:
    | {
        readonly url: string;
        readonly everyMs: number;
        readonly timeoutMs: number;
        readonly expectStatus: number;
      }
    | undefined;
  readonly unprovenSources: ReadonlySet<string>;
}

export interface ProberOptions extends ProberSettings {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly pool: Pick<Pool, 'acquireForProbe' | 'acquireForComparison' | 'report'>;
  readonly dialer: Pick<MemberDialer, 'attempt'>;
}

type ProbeOutcome =
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

/** Longer or shorter by a random part of up to JITTER. */
const ROUND_MS = 1_000;
const JITTER = 0.2;
const MAX_PROBES = 32;
/** Of each step. Long enough for most working members, short enough to find dead ones soon. */
const SIGN_OF_LIFE_TIMEOUT_MS = 5_000;
/** `#compare` probes only a member that had a success within this time, in ms. */
const WORKED_MS = 10 * MINUTE_MS;
const TICK_MS = 50;
/** The id of a lease that the pool has not granted. */
const NO_LEASE = -1;

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

/** The most bytes of an answer that noria reads to find an address in it. */
const MAX_ANSWER_BYTES = 64 * 1024;
const ADDRESS = /(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}(?![\d.])|[\da-f]{0,4}(?::[\da-f]{0,4}){2,7}/gi;

/** Its lease is kept until another member shows whether the site works. */
type Suspect = Extract<ProbeOutcome, { kind: 'suspect' }> & {
  readonly lease: ProbeLease;
  readonly sinceAt: number;
};

export class Prober {
  readonly #options: ProberOptions;
  readonly #deadlines: Deadlines;
  readonly #joinObserver: Disposable;
  readonly #closing = new AbortController();
  readonly #probes = new Set<Promise<void>>();
  #settings: ProberSettings;
  #site: CheckSite | undefined;
  #suspects: Suspect[] = [];
  #timer: Disposable | undefined;

  /** @throws NoriaError `bad-config` when the URL of the check is not an http or https URL. */
  constructor(options: ProberOptions) {
    this.#options = options;
    this.#settings = options;
    this.#site = siteOf(options);
    this.#deadlines = new Deadlines(options.clock, TICK_MS);
    this.#joinObserver = options.bus.on('member.joined', ({ source, renewed }) => {
      // Asks the pool for members after the current event, because the pool is still adding the members of the draw.
      if (!renewed && this.#settings.unprovenSources.has(source)) this.#wakeAfter(0);
    });
    this.#wakeAfter(0);
  }

  /** @throws NoriaError `bad-config`. The previous settings then stay in use. */
  configure(settings: ProberSettings): void {
    this.#site = siteOf(settings);
    this.#settings = settings;
    this.#wakeAfter(0);
  }

  /**
   * Returns the IP address that the answer of `url` through a member of a source names; undefined if there is none. The
   * pool need not have the member.
   */
  async exitOf(
    source: string,
    { protocol, host, port, login }: Pick<DrawnMember, 'protocol' | 'host' | 'port' | 'login'>,
    url: string,
    signal: AbortSignal,
  ): Promise<string | undefined> {
    const site = readCheckSite(url);
    if (site === undefined) return undefined;
    const address = { source, protocol, host, port, exit: host, ...(login !== undefined && { login }) };
    const lease = { ...address, id: NO_LEASE, member: `${host}:${port}`, waitedMs: 0, doubtful: false };
    const timeoutMs = this.#settings.check?.timeoutMs ?? SIGN_OF_LIFE_TIMEOUT_MS;
    let text = '';
    await this.#ask({ lease, timeoutMs }, site, signal, (held) => {
      text = held.toString('latin1');
      return held.length > MAX_ANSWER_BYTES ? 'long' : undefined;
    });
    const [head = '', ...body] = text.split('\r\n\r\n');
    if (!/^HTTP\/1\.[01] 2/.test(head)) return undefined;
    const found = body.join('\r\n').match(ADDRESS) ?? [];
    return found.find((address) => isIP(address) !== 0);
  }

  /** Cancels all probes without blaming their members. Idempotent. The prober must close before the dialer. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#timer?.[Symbol.dispose]();
    this.#joinObserver[Symbol.dispose]();
    await Promise.all(this.#probes);
    for (const { lease } of this.#suspects) this.#release(lease);
    this.#suspects = [];
  }

  #wakeAfter(ms: number): void {
    if (this.#closing.signal.aborted) return;
    this.#timer?.[Symbol.dispose]();
    this.#timer = this.#options.clock.after(ms, () => this.#round());
  }

  #round(): void {
    const heldMs = this.#settings.check?.everyMs ?? 0;
    const now = this.#options.clock.monotonic();
    const isOld = ({ sinceAt }: Suspect) => now - sinceAt >= heldMs;
    // No other member reached the site either, so the site is at fault.
    for (const { lease, alive } of this.#suspects.filter(isOld)) {
      if (alive && lease.isNew) this.#admit(lease, undefined);
      else this.#release(lease);
    }
    this.#suspects = this.#suspects.filter((suspect) => !isOld(suspect));
    this.#startProbes();
    const jitter = 1 + (2 * this.#options.random() - 1) * JITTER;
    this.#wakeAfter(ROUND_MS * jitter);
  }

  #startProbes(): void {
    const { check } = this.#settings;
    const room = MAX_PROBES - this.#probes.size;
    if (this.#closing.signal.aborted || room <= 0) return;
    for (const lease of this.#options.pool.acquireForProbe(room, check?.everyMs)) {
      const probe =
        check !== undefined && this.#site !== undefined
          ? this.#askForStatus(lease, this.#site, check)
          : this.#askForSignOfLife(lease, lease.isNew);
      this.#start(probe, (outcome) => this.#onOutcome(lease, outcome));
    }
  }

  #start(probe: Promise<ProbeOutcome>, onOutcome: (outcome: ProbeOutcome) => void): void {
    const finished: Promise<void> = probe.then((outcome) => {
      this.#probes.delete(finished);
      onOutcome(outcome);
      this.#startProbes();
    });
    this.#probes.add(finished);
  }

  #onOutcome(lease: ProbeLease, outcome: ProbeOutcome): void {
    switch (outcome.kind) {
      case 'passed':
        // If no check is configured, a passed probe admits a new member, but only a client's request ends a quarantine.
        if (lease.isNew || this.#site !== undefined) this.#admit(lease, outcome.latencyMs);
        else if (outcome.relays) this.#release(lease);
        else this.#blame(lease, 'member-refused', 'unclear');
        if (this.#site === undefined) return;
        for (const suspect of this.#suspects) this.#blame(suspect.lease, suspect.fault, 'member');
        this.#suspects = [];
        return;
      case 'failed':
        this.#blame(lease, outcome.fault, outcome.blame);
        return;
      case 'lifeless':
      case 'unconnected':
        if (lease.isNew) this.#blame(lease, outcome.fault, 'member');
        else this.#compare(lease, outcome);
        return;
      case 'suspect':
        this.#suspects.push({ ...outcome, lease, sinceAt: this.#options.clock.monotonic() });
        return;
      case 'cancelled':
        this.#release(lease);
    }
  }

  /** Probes a working member of the same source, and blames the failed one if the working one gets further. */
  #compare(lease: Lease, { kind, fault }: Extract<ProbeOutcome, { kind: 'lifeless' | 'unconnected' }>): void {
    const { pool } = this.#options;
    const isClosing = this.#closing.signal.aborted;
    const other = isClosing ? undefined : pool.acquireForComparison(lease.source, WORKED_MS);
    if (other === undefined) {
      this.#blame(lease, fault, 'unclear');
      return;
    }
    this.#start(this.#askForSignOfLife(other, false), (outcome) => {
      const isBetter =
        outcome.kind === 'passed'
          ? outcome.relays || kind === 'lifeless'
          : outcome.kind === 'unconnected' && kind === 'lifeless';
      if (isBetter) this.#blame(lease, fault, 'member');
      else this.#release(lease);
      this.#release(other);
    });
  }

  #blame({ id }: Lease, fault: FaultCode, blame: Blame): void {
    this.#options.pool.report({ lease: id, kind: 'failed', blame, fault });
  }

  #release(lease: Lease): void {
    this.#blame(lease, 'client-gone', 'nobody');
  }

  #admit(lease: Lease, latencyMs: number | undefined): void {
    const { pool } = this.#options;
    const latency = latencyMs === undefined ? {} : { latencyMs };
    pool.report({ lease: lease.id, kind: 'accepted', ...latency });
    pool.report({ lease: lease.id, kind: 'closed', cut: false });
  }

  async #askForStatus(
    lease: Lease,
    site: CheckSite,
    { timeoutMs, expectStatus }: NonNullable<ProberSettings['check']>,
  ): Promise<ProbeOutcome> {
    const result = await this.#ask({ lease, timeoutMs }, site, this.#closing.signal, (held) => {
      const head = readResponseHead(held);
      if (head === 'garbage' || held.length > MAX_RESPONSE_HEAD_BYTES) return 'garbage';
      return head === 'more' ? undefined : head.status;
    });
    if (result.kind === 'cancelled') return result;
    if (result.kind === 'failed') {
      const { failure, blame } = result;
      const { fault } = failure;
      if (blame !== undefined) return { kind: 'failed', fault, blame };
      return { kind: 'suspect', fault, alive: SIGNS_OF_LIFE.has(fault) };
    }
    const { answer, ms } = result;
    if (answer === expectStatus) return { kind: 'passed', latencyMs: ms, relays: true };
    const fault = typeof answer === 'number' ? 'target-doubted' : SITE_FAULTS[answer];
    return { kind: 'suspect', fault, alive: true };
  }

  /**
   * Most working members report `NOWHERE` as unreachable; some close the connection or wait for their resolver. A
   * working member can usually reach its own address.
   * @param isNew - which of the two comes first; unless it is new, the member must also relay bytes from its address.
   */
  async #askForSignOfLife(lease: Lease, isNew: boolean): Promise<ProbeOutcome> {
    const { signal } = this.#closing;
    const timeoutMs = SIGN_OF_LIFE_TIMEOUT_MS;
    const own = hostPort(lease.host, lease.port) ?? NOWHERE;
    let lastFault: FaultCode = 'member-silent';
    for (const target of isNew ? [NOWHERE, own] : [own, NOWHERE]) {
      const mustRelay = !isNew && target === own;
      const result = await this.#connect({ lease, target, use: 'tunnel', timeoutMs }, signal);
      if (result.kind === 'cancelled') return result;
      if (result.kind === 'accepted') {
        if (mustRelay) return this.#checkRelay(lease, result.connection);
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

  /** Sends the first message of a client to the member's own address, through the member, and waits for any byte. */
  async #checkRelay({ protocol }: Lease, { socket, early }: RawConnection): Promise<ProbeOutcome> {
    const { opening } = memberHandshake(protocol, NOWHERE, undefined, false);
    socket.write(opening, 'latin1');
    const answer = await this.#read(socket, early, SIGN_OF_LIFE_TIMEOUT_MS, () => true);
    if (this.#closing.signal.aborted) return { kind: 'cancelled' };
    return answer === true ? { kind: 'passed', relays: true } : { kind: 'unconnected', fault: 'member-cut' };
  }

  /** @param timeoutMs - of the attempt and the answer together. */
  async #ask<Answer>(
    { lease, timeoutMs }: { readonly lease: Lease; readonly timeoutMs: number },
    site: CheckSite,
    signal: AbortSignal,
    read: (held: Buffer) => Answer | undefined,
  ) {
    const { clock } = this.#options;
    const startedAt = clock.monotonic();
    const { target, tls } = site;
    // A check of an http site may use absolute form, like a client's plain request.
    const use = tls ? 'tunnel' : 'forward';
    const result = await this.#connect({ lease, target, use, timeoutMs }, signal);
    if (result.kind !== 'accepted') return result;
    const { connection, ms } = result;
    const socket = tls ? overTls(connection.socket, target) : connection.socket;
    socket.write(requestFor(site, connection), 'latin1');
    const leftMs = Math.max(0, timeoutMs - (clock.monotonic() - startedAt));
    const answer = await this.#read(socket, connection.early, leftMs, read);
    return signal.aborted ? CANCELLED : ({ kind: 'answered', answer, ms } as const);
  }

  async #connect(
    task: Parameters<MemberDialer['attempt']>[0],
    signal: AbortSignal,
  ): Promise<SingleAttemptResult> {
    const result = await this.#options.dialer.attempt(task, signal);
    if (result.kind === 'accepted') addAbortSignal(signal, result.connection.socket);
    return signal.aborted ? CANCELLED : result;
  }

  /** Resolves with the first defined result of `read`, or why there is none. Always closes the socket. Never rejects. */
  #read<Answer>(
    socket: Socket,
    early: Buffer,
    timeoutMs: number,
    read: (held: Buffer) => Answer | undefined,
  ): Promise<Answer | 'silent' | 'closed'> {
    return new Promise((resolve) => {
      let held = early;
      const end = (answer: Answer | 'silent' | 'closed') => {
        this.#deadlines.clear(deadline);
        socket.off('data', onData).off('end', onEnd).off('close', onEnd);
        socket.destroy(); // if the socket is a TLS socket, this also closes the TCP connection
        resolve(answer);
      };
      const deadline = this.#deadlines.set(timeoutMs, () => end('silent'));
      const onEnd = () => end('closed');
      const onData = (bytes: Buffer) => {
        held = Buffer.concat([held, bytes]);
        const answer = read(held);
        if (answer !== undefined) end(answer);
      };
      socket.on('data', onData).on('end', onEnd).on('close', onEnd);
      socket.resume();
      if (early.length > 0) onData(NO_BYTES);
    });
  }
}

const CANCELLED = { kind: 'cancelled' } as const;

interface CheckSite {
  readonly target: HostPort;
  /** Whether the request uses TLS inside the tunnel. The check of the certificate then detects a man in the middle. */
  readonly tls: boolean;
  readonly url: string;
  /** Without the default port (RFC 9110 §7.2). */
  readonly authority: string;
  readonly path: string;
}

const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

function siteOf({ check }: ProberSettings): CheckSite | undefined {
  if (check === undefined) return undefined;
  const site = readCheckSite(check.url);
  if (site !== undefined) return site;
  throw new NoriaError('bad-config', `health.check.url is not an http or https URL: ${check.url}`);
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
