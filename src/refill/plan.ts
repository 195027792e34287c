/**
 * Decides when a source draws and how many members it requests. `planDraw` is pure: it knows the demand, the stock, the
 * pace and the history of draws only as numbers. `DrawSpacing` is the history that lengthens the time between draws.
 */
import { roughDuration } from '../core/words.ts';
import type { Demand } from '../pool/drawn-member.ts';

export interface DrawInputs {
  readonly now: number;
  /** The members of the source in the pool. See `RefillPool` for the methods. */
  readonly stock: {
    countedAt(moment: number): number;
    heldAt(moment: number): number;
    nextLossAt(moment: number): number | undefined;
  };
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
  /** `urgent`: clients are waiting, and no member will be usable when the answer to the draw's call arrives. */
  | { readonly kind: 'draw'; readonly count: number; readonly urgent: boolean };

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

/** After this number of draws in a row that added no usable member, the time between draws grows. One is normal. */
const MAX_FRUITLESS_DRAWS = 3;
/** noria distrusts a source after this number of its members in a row have failed before their first use. */
const DISTRUST_AFTER = 10;
/** The same for members that need a probe. The number is higher because most free proxies do not work. */
const DISTRUST_AFTER_UNPROVEN = 100;
const MAX_SPACING_MS = 120_000;

/**
 * Lengthens the time between draws while draws bring no members, or only members that fail before their first use. So
 * even a whole day of fruitless draws costs only a few hundred calls and members.
 */
export class DrawSpacing {
  readonly #distrustAfter: number;
  /** The number of draws in a row that did not increase the number of usable members. */
  #fruitlessDraws = 0;
  #unusedFailures = 0;
  /** The number of draws since noria began to distrust the source. */
  #distrustedDraws = 0;
  #notBeforeAt = 0;

  /** @param unproven - whether members must pass a probe before their first use. */
  constructor(unproven: boolean) {
    this.#distrustAfter = unproven ? DISTRUST_AFTER_UNPROVEN : DISTRUST_AFTER;
  }

  /** Whether the next draw will probably bring usable members. */
  get isPromising(): boolean {
    return this.#fruitlessDraws === 0 && !this.#isDistrusted;
  }

  /** The number of members in a row that failed before their first use; undefined while noria trusts the source. */
  get unusedFailures(): number | undefined {
    return this.#isDistrusted ? this.#unusedFailures : undefined;
  }

  /** While noria distrusts the source, one member shows whether the members of the source work again. */
  get maxPerCall(): number {
    return this.#isDistrusted ? 1 : Infinity;
  }

  /**
   * The monotonic moment before which no draw should start. An urgent draw starts at once, unless noria distrusts the
   * source: its new members would probably fail.
   */
  notBeforeAt(urgent: boolean): number {
    return urgent && !this.#isDistrusted ? 0 : this.#notBeforeAt;
  }

  /**
   * Records an answered draw at the monotonic moment `now`.
   *
   * @param gained - how many more members are usable because of the draw.
   * @param gapMs - the time in ms from the answer of one call to the next call.
   */
  recordDraw(gained: number, now: number, gapMs: number): void {
    this.#fruitlessDraws = gained > 0 ? 0 : this.#fruitlessDraws + 1;
    this.#distrustedDraws = this.#isDistrusted ? this.#distrustedDraws + 1 : 0;
    const doublings = Math.max(this.#fruitlessDraws - MAX_FRUITLESS_DRAWS + 1, this.#distrustedDraws);
    this.#notBeforeAt = doublings > 0 ? now + Math.min(MAX_SPACING_MS, gapMs * 2 ** doublings) : 0;
  }

  /**
   * Records a member that failed before its first use.
   *
   * @returns the number of such members in a row if noria now begins to distrust the source, else undefined.
   */
  recordUnusedFailure(): number | undefined {
    this.#unusedFailures += 1;
    return this.#unusedFailures === this.#distrustAfter ? this.#unusedFailures : undefined;
  }

  /** Records that a member accepted a tunnel. Runs for every tunnel, so it must be fast. */
  recordUse(): void {
    if (this.#unusedFailures === 0) return;
    if (this.#isDistrusted) this.#notBeforeAt = 0;
    this.#unusedFailures = 0;
    this.#distrustedDraws = 0;
  }

  reset(): void {
    this.#fruitlessDraws = 0;
    this.#unusedFailures = 0;
    this.#distrustedDraws = 0;
    this.#notBeforeAt = 0;
  }

  get #isDistrusted(): boolean {
    return this.#unusedFailures >= this.#distrustAfter;
  }
}
