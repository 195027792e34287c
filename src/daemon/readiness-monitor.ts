/**
 * Checks at least once a second, and when a source changes its state, whether noria is ready. Emits `readiness.changed`
 * after a change. Owns the timer of the checks.
 */
import type { Readiness } from '../admin/schemas.ts';
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { DataPlane } from '../plane/data-plane.ts';
import type { Pool } from '../pool/pool.ts';
import type { SourceCounts } from '../pool/views.ts';
import type { Refiller } from '../refill/refiller.ts';
import type { SourceStatus } from '../refill/status.ts';
import type { Fleet } from './fleet.ts';
import { decideReadiness, isSameReadiness, type ReadinessFacts, type SourceFacts } from './readiness.ts';
import type { SourceFaults } from './source-faults.ts';

interface ReadinessOptions {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly pool: Pick<Pool, 'counts'>;
  readonly refiller: () => Pick<Refiller, 'sources'>;
  readonly plane: Pick<DataPlane, 'listeners' | 'workers'>;
  /** Returns the time in epoch ms until which open tunnels may continue; undefined before a shutdown. */
  readonly drainEndsAt: () => number | undefined;
  readonly faults: Pick<SourceFaults, 'of'>;
  /** Returns the time limits of a client's wait and of a draw. Called for each check: a reload may change them. */
  readonly limits: () => Pick<ReadinessFacts, 'clientWaitMs' | 'drawTimeoutMs'>;
  readonly fleet: Pick<Fleet, 'shared'> | undefined;
}

/** The interval of checks in ms. Events alone are not enough, because members expire without an event. */
const CHECK_EVERY_MS = 1_000;

export class ReadinessMonitor {
  readonly #options: ReadinessOptions;
  readonly #subscriptions: readonly Disposable[];
  #verdict: ReturnType<typeof decideReadiness>;
  #failedRequests = 0;
  #timer: Disposable | undefined;
  #isCheckQueued = false;

  constructor(options: ReadinessOptions) {
    this.#options = options;
    this.#verdict = decideReadiness(this.#facts([], []));
    this.#subscriptions = [
      options.bus.on('source.moved', () => this.#checkSoon()),
      options.bus.on('fleet.store', () => this.#checkSoon()),
      options.bus.on('dial.ended', ({ outcome }) => {
        if (outcome === 'accepted') this.#failedRequests = 0;
        else if (outcome === 'members-failed') this.#failedRequests += 1;
      }),
    ];
    this.#arm();
  }

  /** Decides and returns the readiness. Emits `readiness.changed` if the state or the problems have changed. */
  check(
    statuses = this.#options.refiller().sources(),
    counts: readonly SourceCounts[] = this.#options.pool.counts(),
  ): Readiness {
    const before = this.#verdict;
    const verdict = decideReadiness(this.#facts(statuses, counts), before);
    this.#verdict = verdict;
    if (!isSameReadiness(before, verdict)) this.#report(before, verdict);
    const { since: _, ...readiness } = verdict;
    return readiness;
  }

  close(): void {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
  }

  #arm(): void {
    this.#timer = this.#options.clock.after(CHECK_EVERY_MS, () => {
      this.#arm();
      this.check();
    });
  }

  /** Schedules a check. It runs after all subscribers have handled the current event. */
  #checkSoon(): void {
    if (this.#isCheckQueued) return;
    this.#isCheckQueued = true;
    queueMicrotask(() => {
      this.#isCheckQueued = false;
      if (this.#timer !== undefined) this.check();
    });
  }

  #report(before: Readiness, now: Readiness): void {
    this.#options.bus.emit('readiness.changed', {
      from: before.state,
      to: now.state,
      ready: now.ready,
      reason: now.reason,
      ...(now.advice === null ? {} : { advice: now.advice }),
      problems: now.problems.map(({ source, reason }) => (source === null ? reason : `${source}: ${reason}`)),
      shuttingDown: now.problems.some(({ kind }) => kind === 'shutting-down'),
      cleared: before.problems.length > 0 && now.problems.length === 0,
    });
  }

  #facts(statuses: readonly SourceStatus[], counts: readonly SourceCounts[]): ReadinessFacts {
    const { clock, drainEndsAt, plane, faults, limits, fleet } = this.#options;
    const { fault, lostMs = 0 } = fleet?.shared ?? {};
    const bySource = new Map(counts.map((count) => [count.source, count]));
    return {
      now: clock.monotonic(),
      drainEndsAt: drainEndsAt(),
      listenerCount: plane.listeners.length,
      workers: plane.workers,
      failedRequests: this.#failedRequests,
      ...limits(),
      ...(fault !== undefined && { storeLost: { reason: fault.message, ms: lostMs } }),
      sources: statuses.map((status): SourceFacts => {
        const { ready = 0, joining = 0, blocked = null } = bySource.get(status.name) ?? {};
        const facts = { ...status, joining, usable: blocked === null ? ready : 0 };
        if (blocked === null) return facts;
        return { ...facts, blocked: { reason: blocked, advice: faults.of(status.name)?.advice ?? '' } };
      }),
    };
  }
}
