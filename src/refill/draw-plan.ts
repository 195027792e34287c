/**
 * Whether a source should draw now, how much, and when to look again: pure, asked whenever something changed.
 *
 * The rule: a draw goes out when, without it, fewer members than wanted would be usable at the moment the draw *after*
 * it could land. So a member is replaced before it expires and not after, and only by as many as will be missing.
 */
import type { Demand } from '../pool/drawn-member.ts';

/** What a source holds, as its pool tells. Moments are monotonic ms. */
export interface Stock {
  usableAt(atMs: number): number;
  /** Those that rest included. */
  heldAt(atMs: number): number;
  /** The next moment after `afterMs` at which one is lost; undefined when none will be. */
  nextLossAt(afterMs: number): number | undefined;
}

export interface DrawInputs {
  readonly now: number;
  readonly stock: Stock;
  readonly demand: Demand;
  /** Usable members to hold. */
  readonly size: number;
  /** Without a client for so long nothing is drawn; 0: it never stops. */
  readonly idleAfterMs: number;
  /** Until the next call may start. */
  readonly startInMs: number;
  /** From the start of one call to the start of the next. */
  readonly gapMs: number;
  /** From the start of a call to its members being usable, as usual. */
  readonly latencyMs: number;
  /** The most to ask for in one call. */
  readonly mostPerCall: number;
  /** Distinct IPs that budget and quota still allow; Infinity where nothing limits them. */
  readonly allowance: number;
  /** A person asked for it: also while no client comes. */
  readonly asked: boolean;
}

export type Plan =
  /** Nobody wants members. A client that comes is told of. */
  | { readonly kind: 'idle'; readonly reason: string }
  /** As many as wanted. `lookAt`: when that may have changed by itself; Infinity: not by itself. */
  | { readonly kind: 'served'; readonly lookAt: number }
  /** Wanted, and neither budget nor quota allows it. */
  | { readonly kind: 'spent'; readonly missing: number }
  | { readonly kind: 'draw'; readonly count: number; readonly urgent: boolean };

/** The least time between two looks that nothing but the passing of time causes. */
const LOOK_SPACING_MS = 50;

export function planDraw(need: DrawInputs): Plan {
  const { now, demand, idleAfterMs } = need;
  const idleAt = idleAfterMs === 0 || demand.waiting > 0 ? Infinity : demand.lastWantedAt + idleAfterMs;
  if (now >= idleAt && !need.asked) return { kind: 'idle', reason: 'no client has come lately' };

  const { missing, urgent } = shortfall(need);
  if (missing <= 0) {
    const lookAt = Math.min(idleAt, nextLook(need));
    return { kind: 'served', lookAt: Math.max(lookAt, now + LOOK_SPACING_MS) };
  }
  if (need.allowance < 1) return { kind: 'spent', missing };
  const count = Math.max(1, Math.floor(Math.min(missing, need.mostPerCall, need.allowance)));
  return { kind: 'draw', count, urgent };
}

/** Ms from now to the landing of the draw after the next one: how far ahead a shortfall must be seen. */
function horizonMs({ startInMs, gapMs, latencyMs }: DrawInputs): number {
  return startInMs + gapMs + latencyMs;
}

function shortfall(need: DrawInputs): { readonly missing: number; readonly urgent: boolean } {
  const { now, stock, demand, startInMs } = need;
  const lacking = Math.min(wanted(need) - stock.usableAt(now + horizonMs(need)), room(need));
  // Members that rest may be back at the horizon; who waits now cannot wait for that. One draw helps all who wait.
  const urgent = demand.waiting > 0 && stock.usableAt(now + startInMs + need.latencyMs) === 0;
  return { missing: urgent ? Math.max(lacking, Math.min(demand.waiting, need.size)) : lacking, urgent };
}

/** Those that will be lost are still there when their successors come, and those that rest may come back: never more than one draw too many. */
function room(need: DrawInputs): number {
  return wanted(need) + need.mostPerCall - need.stock.heldAt(need.now + need.startInMs);
}

function wanted(need: DrawInputs): number {
  return need.size + usedUpMeanwhile(need);
}

/** Members that clients will have used up before the draw after the next one lands. */
function usedUpMeanwhile(need: DrawInputs): number {
  return Math.ceil(need.demand.usedUpPerSecond * (horizonMs(need) / 1_000));
}

function nextLook(need: DrawInputs): number {
  const { now, stock } = need;
  const leadMs = horizonMs(need);
  const lossAt = stock.nextLossAt(now + leadMs);
  const byLoss = lossAt === undefined ? Infinity : lossAt - leadMs + 1; // just after it, not just before
  // Where there is no room for successors yet, there is some as soon as anyone is lost.
  const byRoom = room(need) > 0 ? Infinity : (stock.nextLossAt(now) ?? Infinity);
  // Using up follows the clients, so there is no moment to wait for: look again before the lead has passed.
  const byUse = need.demand.usedUpPerSecond > 0 ? now + leadMs : Infinity;
  return Math.min(byLoss, byRoom, byUse);
}
