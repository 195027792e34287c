/**
 * Probes unproven members before their first use, and members that failed for only one client; with a check, also
 * those whose quarantine has ended or that had no success for a while. A member that does not reach the site is
 * blamed only after another one has reached it, so a dead site or a wrong check does no harm. A member without a sign
 * of life is blamed only after a working member has given one.
 */

import type { Clock } from '../core/clock.ts';
import { Deadlines } from '../core/deadlines.ts';
import { MINUTE_MS } from '../core/duration.ts';
import type { EventBus } from '../core/events.ts';
import { type FaultCode, NoriaError } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import type { MemberDialer } from '../dialer/dialer.ts';
import type { DrawnMember } from '../pool/drawn-member.ts';
import type { Lease, ProbeLease } from '../pool/lease.ts';
import type { Pool } from '../pool/pool.ts';
import { type Asks, type CheckSite, exitThrough, Probe, type ProbeOutcome, readCheckSite } from './probe.ts';

interface CheckSettings {
  readonly url: string;
  readonly everyMs: number;
  readonly timeoutMs: number;
  readonly expectStatus: number;
}

export interface ProberSettings {
  readonly check: CheckSettings | undefined;
  readonly unprovenSources: ReadonlySet<string>;
}

export interface ProberOptions extends ProberSettings {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly pool: Pick<Pool, 'acquireForProbe' | 'acquireForComparison' | 'report'>;
  readonly dialer: Pick<MemberDialer, 'attempt'>;
}

/** Longer or shorter by a random part of up to JITTER. */
const ROUND_MS = 1_000;
const JITTER = 0.2;
const MAX_PROBES = 32;
/** Long enough for most working members, short enough to find dead ones soon. */
const SIGN_OF_LIFE_TIMEOUT_MS = 5_000;
/** `#compare` probes only a member that had a success within this time, in ms. */
const WORKED_MS = 10 * MINUTE_MS;
const TICK_MS = 50;
/** The id of a lease that the pool has not granted. */
const NO_LEASE = -1;

/** Its lease is kept until another member shows whether the site works. */
interface Suspect {
  readonly lease: ProbeLease;
  readonly fault: FaultCode;
  readonly alive: boolean;
  readonly sinceAt: number;
}

export class Prober implements AsyncDisposable {
  readonly #options: ProberOptions;
  readonly #deadlines: Deadlines;
  readonly #joinObserver: Disposable;
  readonly #probes = new Map<Probe, Promise<void>>();
  #settings: ProberSettings;
  #site: CheckSite | undefined;
  #suspects: readonly Suspect[] = [];
  #timer: Disposable | undefined;
  #closed = false;

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
    const { clock, dialer } = this.#options;
    const site = readCheckSite(url);
    if (site === undefined) return undefined;
    const address = { source, protocol, host, port, ...(login !== undefined && { login }) };
    const lease = { ...address, id: NO_LEASE, member: `${host}:${port}`, waitedMs: 0, doubtful: false };
    const timeoutMs = this.#settings.check?.timeoutMs ?? SIGN_OF_LIFE_TIMEOUT_MS;
    return exitThrough(lease, site, { clock, deadlines: this.#deadlines, dialer, timeoutMs, signal });
  }

  /** Cancels all probes without blaming their members. Idempotent. The prober must close before the dialer. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#timer?.[Symbol.dispose]();
    this.#joinObserver[Symbol.dispose]();
    for (const probe of this.#probes.keys()) probe.cancel();
    await Promise.all(this.#probes.values());
    for (const { lease } of this.#suspects) this.#release(lease);
    this.#suspects = [];
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #wakeAfter(ms: number): void {
    if (this.#closed) return;
    this.#timer?.[Symbol.dispose]();
    this.#timer = this.#options.clock.after(ms, () => this.#round());
  }

  #round(): void {
    const heldMs = this.#settings.check?.everyMs ?? 0;
    const now = this.#options.clock.monotonic();
    const isOld = ({ sinceAt }: Suspect) => now - sinceAt >= heldMs;
    this.#releaseSuspects(this.#suspects.filter(isOld));
    this.#suspects = this.#suspects.filter((suspect) => !isOld(suspect));
    this.#startProbes();
    const jitter = 1 + (2 * this.#options.random() - 1) * JITTER;
    this.#wakeAfter(ROUND_MS * jitter);
  }

  #startProbes(): void {
    const { pool } = this.#options;
    const { check } = this.#settings;
    const room = MAX_PROBES - this.#probes.size;
    if (this.#closed || room <= 0) return;
    for (const lease of pool.acquireForProbe(room, check?.everyMs)) {
      const onOutcome = (outcome: ProbeOutcome) => this.#onOutcome(lease, outcome);
      if (check !== undefined && this.#site !== undefined) {
        this.#start(lease, { at: this.#site, expectStatus: check.expectStatus }, check.timeoutMs, onOutcome);
      } else {
        const asks = lease.isNew ? 'sign-of-life' : 'own-address';
        this.#start(lease, asks, SIGN_OF_LIFE_TIMEOUT_MS, onOutcome);
      }
    }
  }

  #start(lease: Lease, asks: Asks, timeoutMs: number, onOutcome: (outcome: ProbeOutcome) => void): void {
    const { clock, dialer } = this.#options;
    const probe = new Probe(lease, asks, timeoutMs, { clock, dialer, deadlines: this.#deadlines });
    const finished = probe.run().then((outcome) => {
      this.#probes.delete(probe);
      onOutcome(outcome);
      this.#startProbes();
    });
    this.#probes.set(probe, finished);
  }

  #onOutcome(lease: ProbeLease, outcome: ProbeOutcome): void {
    const { clock } = this.#options;
    switch (outcome.kind) {
      case 'passed':
        // If no check is configured, a passed probe admits a new member, but only a client's request ends a quarantine.
        if (lease.isNew || this.#site !== undefined) this.#admit(lease, outcome.latencyMs);
        else if (outcome.relays) this.#release(lease);
        else this.#blame(lease, { blame: 'unclear', fault: 'member-refused' });
        if (this.#site !== undefined) this.#blameSuspects();
        return;
      case 'failed':
        this.#blame(lease, outcome);
        return;
      case 'lifeless':
      case 'unconnected':
        if (lease.isNew) this.#blame(lease, { ...outcome, blame: 'member' });
        else this.#compare(lease, outcome);
        return;
      case 'suspect': {
        const { fault, alive } = outcome;
        this.#suspects = [...this.#suspects, { lease, fault, alive, sinceAt: clock.monotonic() }];
        return;
      }
      case 'cancelled':
        this.#release(lease);
    }
  }

  /** Probes a working member of the same source, and blames the failed one if the working one gets further. */
  #compare(lease: Lease, { kind, fault }: Extract<ProbeOutcome, { kind: 'lifeless' | 'unconnected' }>): void {
    const { pool } = this.#options;
    const other = this.#closed ? undefined : pool.acquireForComparison(lease.source, WORKED_MS);
    if (other === undefined) {
      this.#blame(lease, { blame: 'unclear', fault });
      return;
    }
    this.#start(other, 'own-address', SIGN_OF_LIFE_TIMEOUT_MS, (outcome) => {
      const isBetter =
        outcome.kind === 'passed'
          ? outcome.relays || kind === 'lifeless'
          : outcome.kind === 'unconnected' && kind === 'lifeless';
      if (isBetter) this.#blame(lease, { fault, blame: 'member' });
      else this.#release(lease);
      this.#release(other);
    });
  }

  #blame(
    { id }: Lease,
    { fault, blame }: Pick<Extract<ProbeOutcome, { kind: 'failed' }>, 'fault' | 'blame'>,
  ): void {
    this.#options.pool.report({ lease: id, kind: 'failed', blame, fault });
  }

  #admit(lease: Lease, latencyMs: number | undefined): void {
    const { pool } = this.#options;
    const latency = latencyMs === undefined ? {} : { latencyMs };
    pool.report({ lease: lease.id, kind: 'accepted', ...latency });
    pool.report({ lease: lease.id, kind: 'closed', cut: false });
  }

  #blameSuspects(): void {
    for (const { lease, fault } of this.#suspects) this.#blame(lease, { fault, blame: 'member' });
    this.#suspects = [];
  }

  /** No other member reached the site either, so the site is at fault. */
  #releaseSuspects(suspects: readonly Suspect[]): void {
    for (const { lease, alive } of suspects) {
      if (alive && lease.isNew) this.#admit(lease, undefined);
      else this.#release(lease);
    }
  }

  #release(lease: Lease): void {
    this.#options.pool.report({ lease: lease.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
  }
}

function siteOf({ check }: ProberSettings): CheckSite | undefined {
  if (check === undefined) return undefined;
  const site = readCheckSite(check.url);
  if (site !== undefined) return site;
  throw new NoriaError('bad-config', `health.check.url is not an http or https URL: ${check.url}`);
}
