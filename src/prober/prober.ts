/**
 * Tries members that no client should be the first to try: unproven ones of the free product, and, where a check is
 * configured, those that have rested and those through which nobody got for a while.
 *
 * A probe goes the way of a client's request, with the same protocols and credentials. With a check it proves that the
 * site's answer comes through; without, that the member answers in its protocol at all. A member is blamed for a failing
 * site only when another one reaches it afterwards: a dead site, or a check that is wrong, costs nobody anything.
 */
import type { Clock } from '../core/clock.ts';
import { Deadlines } from '../core/deadlines.ts';
import type { EventBus } from '../core/events.ts';
import { type FaultCode, NoriaError } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import type { MemberDialer } from '../dialer/dialer.ts';
import type { Lease, LeaseReport } from '../pool/lease.ts';
import { type CheckSite, readCheckSite } from './check-site.ts';
import { Probe, type ProbeOutcome } from './probe.ts';

/** The pool as the prober sees it. */
export interface ProbeLeases {
  /** Members that need a probe, unproven ones first; with `staleMs` also those through which nobody got for so long. */
  acquireForProbe(limit: number, staleMs?: number): readonly Lease[];
  report(report: LeaseReport): void;
}

export interface CheckSettings {
  /** http or https; checked where it was configured. */
  readonly url: string;
  readonly everyMs: number;
  /** For the whole probe, connection included. */
  readonly timeoutMs: number;
  readonly expectStatus: number;
}

export interface ProberSettings {
  /** `undefined`: off; unproven members are then asked for a sign of life alone. */
  readonly check: CheckSettings | undefined;
  /** Sources whose members join unproven. */
  readonly unprovenSources: ReadonlySet<string>;
}

export interface ProberOptions extends ProberSettings {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly pool: ProbeLeases;
  readonly dialer: Pick<MemberDialer, 'attempt'>;
}

/** How often the pool is asked for members to probe, give or take a fifth. */
const ROUND_MS = 1_000;
const JITTER = 0.2;
const MOST_AT_ONCE = 32;
/** Longer than any dead member needs to show that it is dead, and than most living ones need to answer. */
const SIGN_OF_LIFE_TIMEOUT_MS = 5_000;
/** Members remembered as having been let in. */
const MOST_ADMITTED = 4_096;
const TICK_MS = 50;

/** A member for which the site failed: whose fault that is shows when another one reaches it. */
interface Suspect {
  readonly lease: Lease;
  readonly fault: FaultCode;
  readonly alive: boolean;
  readonly sinceAt: number;
}

export class Prober implements AsyncDisposable {
  readonly #options: ProberOptions;
  readonly #deadlines: Deadlines;
  readonly #joining: Disposable;
  readonly #probes = new Map<Probe, Promise<void>>();
  /** Members of unproven sources that a probe has let in: later a sign of life is not enough for them. */
  readonly #admitted = new Set<string>();
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
    this.#joining = options.bus.on('member.joined', ({ source, renewed }) => {
      // Not at once: the pool is in the middle of taking in what was drawn.
      if (!renewed && this.#settings.unprovenSources.has(source)) this.#wakeAfter(0);
    });
    this.#wakeAfter(0);
  }

  /** @throws NoriaError `bad-config` like the constructor; the settings are then unchanged. */
  configure(settings: ProberSettings): void {
    this.#site = siteOf(settings);
    this.#settings = settings;
    this.#wakeAfter(0);
  }

  /** Cancels all probes without reporting on their members. Idempotent. Close the prober before the dialer. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#timer?.[Symbol.dispose]();
    this.#joining[Symbol.dispose]();
    for (const probe of this.#probes.keys()) probe.cancel();
    await Promise.all(this.#probes.values());
    for (const { lease } of this.#suspects) this.#giveBack(lease);
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
    const { check } = this.#settings;
    const heldMs = check?.everyMs ?? 0;
    const now = this.#options.clock.monotonic();
    const isOld = ({ sinceAt }: Suspect) => now - sinceAt >= heldMs;
    this.#release(this.#suspects.filter(isOld));
    this.#suspects = this.#suspects.filter((suspect) => !isOld(suspect));
    this.#fill();
    const jitter = 1 + (2 * this.#options.random() - 1) * JITTER;
    this.#wakeAfter(ROUND_MS * jitter);
  }

  /** Starts as many probes as there is room for. */
  #fill(): void {
    const { check, unprovenSources } = this.#settings;
    const room = MOST_AT_ONCE - this.#probes.size;
    if (this.#closed || room <= 0 || (check === undefined && unprovenSources.size === 0)) return;
    for (const lease of this.#options.pool.acquireForProbe(room, check?.everyMs)) {
      if (check !== undefined || this.#isNew(lease)) this.#start(lease);
      else this.#giveBack(lease); // it rests after a fault: only a client's request can clear it of that
    }
  }

  #start(lease: Lease): void {
    const { check } = this.#settings;
    const site =
      check === undefined || this.#site === undefined
        ? undefined
        : { at: this.#site, expectStatus: check.expectStatus };
    const timeoutMs = check?.timeoutMs ?? SIGN_OF_LIFE_TIMEOUT_MS;
    const { clock, dialer } = this.#options;
    const probe = new Probe({ clock, dialer, deadlines: this.#deadlines }, { lease, site, timeoutMs });
    const finished = probe.run().then((outcome) => {
      this.#probes.delete(probe);
      this.#settle(lease, outcome);
      this.#fill();
    });
    this.#probes.set(probe, finished);
  }

  #settle(lease: Lease, outcome: ProbeOutcome): void {
    const { pool, clock } = this.#options;
    switch (outcome.kind) {
      case 'passed':
        this.#admit(lease, outcome.latencyMs);
        if (this.#site !== undefined) this.#convict();
        return;
      case 'failed':
        pool.report({ lease: lease.id, kind: 'failed', blame: outcome.blame, fault: outcome.fault });
        return;
      case 'suspect': {
        const { fault, alive } = outcome;
        this.#suspects = [...this.#suspects, { lease, fault, alive, sinceAt: clock.monotonic() }];
        return;
      }
      case 'cancelled':
        this.#giveBack(lease);
    }
  }

  #admit(lease: Lease, latencyMs: number | undefined): void {
    const { pool } = this.#options;
    this.#remember(lease);
    const latency = latencyMs === undefined ? {} : { latencyMs };
    pool.report({ lease: lease.id, kind: 'accepted', ...latency });
    pool.report({ lease: lease.id, kind: 'closed', cut: false });
  }

  /** The site works, for another member: those for which it did not are at fault. */
  #convict(): void {
    for (const { lease, fault } of this.#suspects) {
      this.#options.pool.report({ lease: lease.id, kind: 'failed', blame: 'member', fault });
    }
    this.#suspects = [];
  }

  /** Nobody reached the site: no fault of theirs. New ones that spoke their protocol are let in as without a check. */
  #release(suspects: readonly Suspect[]): void {
    for (const { lease, alive } of suspects) {
      if (alive && this.#isNew(lease)) this.#admit(lease, undefined);
      else this.#giveBack(lease);
    }
  }

  #giveBack(lease: Lease): void {
    this.#options.pool.report({ lease: lease.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
  }

  #isNew({ source, member }: Lease): boolean {
    return this.#settings.unprovenSources.has(source) && !this.#admitted.has(member);
  }

  #remember({ member }: Lease): void {
    this.#admitted.add(member);
    if (this.#admitted.size <= MOST_ADMITTED) return;
    for (const oldest of this.#admitted) {
      this.#admitted.delete(oldest);
      return;
    }
  }
}

function siteOf({ check }: ProberSettings): CheckSite | undefined {
  if (check === undefined) return undefined;
  const site = readCheckSite(check.url);
  if (site === undefined)
    throw new NoriaError('bad-config', `health.check.url is no http or https URL: ${check.url}`);
  return site;
}
