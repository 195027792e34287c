/**
 * Plans the draws of a source: decides whether the source draws now, how many members it requests, and when it checks
 * again. The inputs come from the pool, the pace, the options and the results of earlier draws.
 */
import type { Clock } from '../core/clock.ts';
import { roughDuration } from '../core/words.ts';
import type { Demand } from '../pool/drawn-member.ts';
import { type DrawRow, OPERATIONS } from '../service/operations.ts';
import type { DrawHistory } from './draw-history.ts';
import type { InstanceReports } from './instance-report.ts';
import type { DrawSourceOptions, RefillPool } from './options.ts';
import { type Pace, type Paces, paceKey } from './pace.ts';
import { PACE_SLACK_MS } from './pace-rule.ts';
import type { SourceState } from './phase.ts';
import type { SourceStatistics } from './source-statistics.ts';

export interface PlannerContext {
  readonly clock: Clock;
  readonly pool: RefillPool;
  readonly paces: Paces;
  /** Returns the current settings, which a reload may change. */
  readonly settings: () => { readonly idleAfterMs: number; readonly callTimeoutMs: number };
  /** Whether a source with a smaller priority number can serve the clients, so that this source must not draw. */
  readonly isPreferredServing: (options: DrawSourceOptions) => boolean;
}

/** The parts of a source that its planner and its turns use. */
export interface SourceParts {
  /** The settings of the source. A reload may replace them. */
  options: DrawSourceOptions;
  readonly statistics: SourceStatistics;
  readonly history: DrawHistory;
  readonly reports: InstanceReports;
  readonly state: SourceState;
}

export class DrawPlanner {
  readonly #context: PlannerContext;
  readonly #parts: SourceParts;

  constructor(context: PlannerContext, parts: SourceParts) {
    this.#context = context;
    this.#parts = parts;
  }

  get pace(): Pace {
    return this.#context.paces.of(paceKey(this.#parts.options.call));
  }

  /** The time in ms from the answer of one call to the next call. */
  get gapMs(): number {
    return this.#parts.options.intervalMs + PACE_SLACK_MS;
  }

  /** The time in ms from the answer of one call until the members of the next call are usable. */
  get aheadMs(): number {
    return this.gapMs + this.#parts.statistics.latencyMs;
  }

  /**
   * Plans the next draw. The pace may not allow its call yet. Plans no draw while a source with a smaller priority
   * number can serve the clients, unless the operator requested the draw.
   */
  plan(): DrawPlan {
    const plan = this.#planAfter(this.pace.nextInMs);
    const { refillRequested } = this.#parts.state;
    if (plan.kind !== 'draw' || refillRequested || !this.#context.isPreferredServing(this.#parts.options))
      return plan;
    return { kind: 'idle', reason: 'a source with a smaller priority number can serve the clients' };
  }

  /**
   * Plans a draw again. Call it when the pace allows the draw's call. Unlike `plan`, it ignores sources
   * with a smaller priority number.
   */
  planNow(): DrawPlan {
    return this.#planAfter(0);
  }

  /** @param startInMs - the time in ms until the call may start. */
  #planAfter(startInMs: number): DrawPlan {
    const { clock, pool, settings } = this.#context;
    const { statistics, history, state } = this.#parts;
    const { name, size, dailyBudget, call, count } = this.#parts.options;
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
      callCycleMs: this.aheadMs,
      latencyMs: statistics.latencyMs,
      maxPerCall: Math.min(count ?? defaultMax, max, history.maxPerCall),
      quotaLeft: statistics.quotaLeft(dailyBudget, clock.now()),
      despiteNoDemand: state.drawsWithoutDemand || history.mayRecover,
    });
  }
}

/** The members of one source in the pool. See `RefillPool` for the methods. */
interface Stock {
  countedAt(moment: number): number;
  heldAt(moment: number): number;
  nextLossAt(moment: number): number | undefined;
}

export interface DrawInputs {
  readonly now: number;
  readonly stock: Stock;
  readonly demand: Demand;
  readonly size: number;
  /** Drawing stops if no client has sent a request for this time. With 0, it never stops. */
  readonly idleAfterMs: number;
  /** The time in ms until the next call may start. */
  readonly startInMs: number;
  /** The time in ms from the start of one call to the start of the next. */
  readonly callCycleMs: number;
  /** The usual time in ms from the start of a call until its members are usable. */
  readonly latencyMs: number;
  /** The maximum number of members to request in one call. */
  readonly maxPerCall: number;
  /** How many distinct IPs the daily budget and the service's quota still allow; Infinity without a limit. */
  readonly quotaLeft: number;
  /** Whether the source replaces missing members even without client requests. */
  readonly despiteNoDemand: boolean;
}

export type DrawPlan =
  /** Do not draw: there is no demand, or a source with a smaller priority number can serve the clients. */
  | { readonly kind: 'idle'; readonly reason: string }
  /** There are enough members. Check again at the monotonic moment `checkAt`; with Infinity, only after a change. */
  | { readonly kind: 'enough'; readonly checkAt: number }
  /** Members are missing, but the budget or the quota is used up. */
  | { readonly kind: 'exhausted' }
  | PlannedDraw;

export interface PlannedDraw {
  readonly kind: 'draw';
  readonly count: number;
  /** Whether clients are waiting and no member will be usable when the answer to the draw's call arrives. */
  readonly urgent: boolean;
}

/** The minimum time in ms between two checks, if no event requires an earlier check. */
const MIN_CHECK_SPACING_MS = 50;

/**
 * Decides whether the source makes the next call that the pace allows. It makes this call if there will be too few
 * members before the following call can deliver. In this way, noria replaces members before they expire, and requests
 * only the members that will be missing.
 */
export function planDraw(inputs: DrawInputs): DrawPlan {
  const { now, demand, idleAfterMs, maxPerCall, quotaLeft } = inputs;
  const idleAt = idleAfterMs === 0 || demand.waiting > 0 ? Infinity : demand.lastWantedAt + idleAfterMs;
  if (now >= idleAt && !inputs.despiteNoDemand) {
    const since = demand.lastWantedAt === -Infinity ? 'yet' : `for ${roughDuration(idleAfterMs)}`;
    return { kind: 'idle', reason: `no client request ${since}; the next request starts a draw` };
  }
  const { missing, urgent } = deficit(inputs);
  if (missing <= 0) {
    const checkAt = Math.min(idleAt, nextCheckAt(inputs));
    return { kind: 'enough', checkAt: Math.max(checkAt, now + MIN_CHECK_SPACING_MS) };
  }
  if (quotaLeft < 1) return { kind: 'exhausted' };
  const count = Math.max(1, Math.floor(Math.min(missing, maxPerCall, quotaLeft)));
  return { kind: 'draw', count, urgent };
}

function deficit(inputs: DrawInputs): { readonly missing: number; readonly urgent: boolean } {
  const { now, stock, demand, startInMs, latencyMs, size } = inputs;
  const missing = Math.min(wanted(inputs) - stock.countedAt(now + horizonMs(inputs)), room(inputs));
  // An urgent draw may request more members than the pool has room for. Quarantined members take up room, but waiting
  // clients cannot use them now.
  const urgent = demand.waiting > 0 && stock.countedAt(now + startInMs + latencyMs) === 0;
  return { missing: urgent ? Math.max(missing, Math.min(demand.waiting, size)) : missing, urgent };
}

/** How far the plan looks ahead, in ms: until the call after the next one delivers its members. */
function horizonMs({ startInMs, callCycleMs, latencyMs }: DrawInputs): number {
  return startInMs + callCycleMs + latencyMs;
}

/**
 * The number of members that the pool needs after `horizonMs`: `size`, plus the members that `maxUsesPerMember` or
 * `perHostSpacing` makes unusable in this time.
 */
function wanted(inputs: DrawInputs): number {
  return inputs.size + Math.ceil(inputs.demand.usedUpPerSecond * (horizonMs(inputs) / 1_000));
}

/**
 * How many members the pool may still add. The pool may hold the wanted number of members plus one full draw. It needs
 * this room because replacements arrive before the members that they replace expire, and because quarantined members
 * may become usable again.
 */
function room(inputs: DrawInputs): number {
  return wanted(inputs) + inputs.maxPerCall - inputs.stock.heldAt(inputs.now + inputs.startInMs);
}

function nextCheckAt(inputs: DrawInputs): number {
  const { now, stock, demand } = inputs;
  const leadMs = horizonMs(inputs);
  const lossAt = stock.nextLossAt(now + leadMs);
  // The first moment at which a check notices the next loss of a member, because a check looks `leadMs` ahead.
  const byLoss = lossAt === undefined ? Infinity : lossAt - leadMs + 1;
  // A full pool has room again when the next member expires.
  const byRoom = room(inputs) > 0 ? Infinity : (stock.nextLossAt(now) ?? Infinity);
  // While clients use up members, the pool may need more members at any time. So the next check comes within `leadMs`.
  const byUse = demand.usedUpPerSecond > 0 ? now + leadMs : Infinity;
  return Math.min(byLoss, byRoom, byUse);
}
