/**
 * Plans the draws of a source. Collects the inputs of draw-plan.ts from the pool, the pace, the options and the
 * results of earlier draws.
 */
import type { Clock } from '../core/clock.ts';
import type { DrawRow } from '../service/operation.ts';
import { OPERATIONS } from '../service/operations.ts';
import type { DrawHistory } from './draw-history.ts';
import { type DrawPlan, planDraw } from './draw-plan.ts';
import type { InstanceReports } from './instance-report.ts';
import type { DrawSourceOptions, RefillPool } from './options.ts';
import { type Pace, type Paces, paceKey } from './pace.ts';
import { PACE_SLACK_MS } from './pace-rule.ts';
import type { SourceRecords } from './source-records.ts';
import type { SourceState } from './source-state.ts';

export interface PlannerContext {
  readonly clock: Clock;
  readonly pool: RefillPool;
  readonly paces: Paces;
  /** Returns the current settings, which a reload may change. */
  readonly settings: () => { readonly idleAfterMs: number; readonly callTimeoutMs: number };
  /** Whether a source of an earlier priority can serve the clients, so that this source must not draw. */
  readonly defersToEarlier: (options: DrawSourceOptions) => boolean;
}

/** The state that a source keeps between its draws. */
export interface DrawMemory {
  readonly records: SourceRecords;
  readonly history: DrawHistory;
  readonly reports: InstanceReports;
  readonly state: SourceState;
}

export class DrawPlanner {
  readonly #context: PlannerContext;
  readonly #memory: DrawMemory;
  /** A reload may replace the options. */
  options: DrawSourceOptions;

  constructor(context: PlannerContext, options: DrawSourceOptions, memory: DrawMemory) {
    this.#context = context;
    this.options = options;
    this.#memory = memory;
  }

  get pace(): Pace {
    return this.#context.paces.of(paceKey(this.options.call));
  }

  /** The time from the answer of one call to the next call. */
  get gapMs(): number {
    return this.options.intervalMs + PACE_SLACK_MS;
  }

  /** The time from the answer of one call until the members of the next call are usable. */
  get aheadMs(): number {
    return this.gapMs + this.#memory.records.latencyMs;
  }

  /** Plans a draw before the pace allows its call. */
  plan(): DrawPlan {
    const plan = this.#planAfter(this.pace.nextInMs);
    const { refillRequested } = this.#memory.state;
    if (plan.kind !== 'draw' || refillRequested || !this.#context.defersToEarlier(this.options)) return plan;
    return { kind: 'idle', reason: 'a source of an earlier priority can serve the clients' };
  }

  /**
   * Plans a draw whose call the pace allows now. At this point, the source draws even if a source of an earlier priority can
   * serve the clients.
   */
  planNow(): DrawPlan {
    return this.#planAfter(0);
  }

  /** @param startInMs - the time until the call may start. */
  #planAfter(startInMs: number): DrawPlan {
    const { clock, pool, settings } = this.#context;
    const { records, history, state } = this.#memory;
    const { name, size, dailyBudget, call, count } = this.options;
    const { defaultMax, max = Infinity }: DrawRow['count'] = OPERATIONS[call.product].count;
    return planDraw({
      now: clock.monotonic(),
      stock: {
        countedAt: (at) => pool.countedAt(name, at),
        heldAt: (at) => pool.heldAt(name, at),
        nextLossAt: (after) => pool.nextLossAt(name, after),
      },
      demand: pool.demand(name),
      size,
      idleAfterMs: settings().idleAfterMs,
      startInMs,
      gapMs: this.aheadMs,
      latencyMs: records.latencyMs,
      maxPerCall: Math.min(count ?? defaultMax, max, history.maxPerCall),
      quotaLeft: records.quotaLeft(dailyBudget, clock.now()),
      despiteNoDemand: state.drawsWithoutDemand || history.mayRecover,
    });
  }
}
