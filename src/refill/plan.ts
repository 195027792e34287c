/**
 * Decides when a source draws and how many members it requests. All functions are pure: they know the demand, the stock,
 * the pace and the history of draws only as numbers. The daemon and `noria simulate` use them.
 */
import { formatCount, roughDuration } from '../core/words.ts';
import type { Demand } from '../pool/drawn-member.ts';

export interface HoldingInputs {
  readonly demand: Demand;
  readonly size: number;
  readonly fill: 'demand' | 'size';
  /** Without a request for this time, drawing stops. With 0, it never stops, and the pool is kept full. */
  readonly idleAfterMs: number;
  readonly lifetimeMs: number;
  /** The number of members to hold even without client requests. */
  readonly atLeast: number;
}

export interface DrawInputs extends HoldingInputs {
  readonly now: number;
  /** The members of the source in the pool. See `RefillPool` for the methods. */
  readonly stock: {
    countedAt(moment: number): number;
    heldAt(moment: number): number;
    nextLossAt(moment: number): number | undefined;
  };
  readonly startInMs: number;
  /** The time in ms from the start of one call to the start of the next. */
  readonly callCycleMs: number;
  /** The usual time in ms from the start of a call until its members are usable. */
  readonly latencyMs: number;
  readonly maxPerCall: number;
  /** The share of drawn members that fail before their first use, from 0 to below 1. */
  readonly deadShare: number;
  readonly failedInARow: number;
  /** How many distinct IPs the daily budget and the service's quota still allow; Infinity without a limit. */
  readonly quotaLeft: number;
}

export type DrawPlan =
  /** Do not draw: there is no demand, or a source with a smaller priority number can serve the clients. */
  | { readonly kind: 'idle'; readonly reason: string }
  /** With `checkAt: Infinity`, only a change needs another check. */
  | { readonly kind: 'enough'; readonly checkAt: number }
  /** Members are missing, but the budget or the quota is used up. */
  | { readonly kind: 'exhausted' }
  /** `urgent`: clients are waiting, and no member will be usable when the answer to the draw's call arrives. */
  | { readonly kind: 'draw'; readonly count: number; readonly urgent: boolean };

const MIN_CHECK_SPACING_MS = 50;
/**
 * A member is drawn for this number of requests in the life of a member, so that also light traffic has a few exits to rotate
 * over, and no IP is paid for one or two requests.
 */
const REQUESTS_PER_MEMBER = 4;
const ROTATED_MEMBERS = 4;
/**
 * Beyond these members, one is drawn for each time that clients make this number of requests. Lifetime, pace and tunnels do
 * not tell it: only sites say how many requests an exit can carry. Measured with sites that ban (*steady* of
 * docs/economy.md, two seeds): 12 costs 14 % more IPs; 27 saves 4 %, meets twice as many bans, and its p99 is above 6 s.
 * Sites that need more exits add to the demand when they ban.
 */
const REQUESTS_PER_FURTHER_MEMBER = 18;
/**
 * With fewer requests in the life of a member, no member is held ahead: a client that comes then waits for one call, and the
 * pace is free.
 */
const REQUESTS_WORTH_HOLDING = 2;
/** While requests follow each other this closely, their number grows without an event, so the plan is made again. */
const RECENT_MS = 2_000;
const RECHECK_MS = 1_000;
/** The most members that a draw adds because the latest members failed, beside those that clients need. */
const MAX_SPARES = 3;

/** The number of members that the demand uses in their lifetime, at most `size`. */
export function wantedMembers(inputs: HoldingInputs): number {
  const { demand, size, lifetimeMs, atLeast } = inputs;
  if (holdsSize(inputs)) return size;
  const { perSecond, held } = demand;
  const requests = perSecond * (lifetimeMs / 1_000);
  const rotated = Math.min(ROTATED_MEMBERS, requests / REQUESTS_PER_MEMBER);
  const byRate =
    requests < REQUESTS_WORTH_HOLDING
      ? 0
      : Math.floor(Math.max(1, rotated, requests / REQUESTS_PER_FURTHER_MEMBER));
  return Math.min(size, Math.max(byRate, held, atLeast));
}

/** Says what the source holds and why, such as `holds 3 of at most 20: 4 requests a minute, members live 3 min`. */
export function describeHolding(inputs: HoldingInputs, held: number): string {
  const { demand, size, lifetimeMs } = inputs;
  if (holdsSize(inputs)) return `holds ${held} of ${size}`;
  const members = `members live ${roughDuration(lifetimeMs)}`;
  return `holds ${held} of at most ${size}: ${rateText(demand.perSecond)}, ${members}`;
}

function rateText(perSecond: number): string {
  const [count, unit] =
    perSecond >= 1
      ? [perSecond, 'second']
      : perSecond * 60 >= 1
        ? [perSecond * 60, 'minute']
        : [perSecond * 3_600, 'hour'];
  return `${formatCount(Math.round(count), 'request')} ${unit === 'hour' ? 'an' : 'a'} ${unit}`;
}

/** Plans the next call that the pace allows: the members that would be missing before the following call can deliver. */
export function planDraw(inputs: DrawInputs): DrawPlan {
  const { now, demand, idleAfterMs, maxPerCall, quotaLeft, atLeast } = inputs;
  const idleAt = idleAfterMs === 0 || demand.waiting > 0 ? Infinity : demand.lastWantedAt + idleAfterMs;
  if (now >= idleAt && atLeast === 0) {
    const reason =
      demand.lastWantedAt === -Infinity
        ? 'no client request yet; the next request starts a draw'
        : `no client request for ${roughDuration(idleAfterMs)}; the next request starts a draw`;
    return { kind: 'idle', reason };
  }
  const { missing, urgent } = deficit(inputs);
  if (missing > 0) {
    if (quotaLeft < 1) return { kind: 'exhausted' };
    const count = Math.max(1, Math.floor(Math.min(missing, maxPerCall, quotaLeft)));
    return { kind: 'draw', count, urgent };
  }
  if (inputs.stock.heldAt(now) === 0) {
    return {
      kind: 'idle',
      reason: 'too few client requests to hold a member; the next request starts a draw',
    };
  }
  const checkAt = Math.min(idleAt, nextCheckAt(inputs));
  return { kind: 'enough', checkAt: Math.max(checkAt, now + MIN_CHECK_SPACING_MS) };
}

function deficit(inputs: DrawInputs): { readonly missing: number; readonly urgent: boolean } {
  const { now, stock, demand, startInMs, latencyMs, size } = inputs;
  const waiting = Math.min(demand.waiting, size);
  const lacking = wantedMembers(inputs) + usedUp(inputs) - stock.countedAt(now + horizonMs(inputs));
  // An urgent draw may request more members than the pool has room for. Quarantined members take up room, but waiting
  // clients cannot use them now.
  const urgent = waiting > 0 && stock.countedAt(now + startInMs + latencyMs) === 0;
  if (holdsSize(inputs)) {
    const missing = Math.min(lacking, room(inputs));
    return { missing: urgent ? Math.max(missing, waiting) : missing, urgent };
  }
  const needed = Math.max(lacking, waiting);
  // A single missing member gets no spare: if it is dead, the next one comes with the next call.
  const spares = needed === 1 ? 0 : Math.ceil(needed / (1 - inputs.deadShare)) - needed;
  const missing = needed + Math.max(spares, urgent ? Math.min(inputs.failedInARow, MAX_SPARES) : 0);
  return { missing: urgent ? missing : Math.min(missing, room(inputs)), urgent };
}

function holdsSize({ fill, idleAfterMs }: HoldingInputs): boolean {
  return fill === 'size' || idleAfterMs === 0;
}

/** How far the plan looks ahead, in ms: until the call after the next one delivers its members. */
function horizonMs({ startInMs, callCycleMs, latencyMs }: DrawInputs): number {
  return startInMs + callCycleMs + latencyMs;
}

/** The number of members that `maxUsesPerMember` or `perHostSpacing` makes unusable within `horizonMs`. */
function usedUp(inputs: DrawInputs): number {
  return Math.ceil(inputs.demand.usedUpPerSecond * (horizonMs(inputs) / 1_000));
}

/**
 * The pool may hold its size plus one full draw, because replacements arrive before the members that they replace expire,
 * and because quarantined members may become usable again.
 */
function room(inputs: DrawInputs): number {
  const held = inputs.stock.heldAt(inputs.now + inputs.startInMs);
  return inputs.size + usedUp(inputs) + inputs.maxPerCall - held;
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
  const mayGrow = wantedMembers(inputs) < inputs.size && now - demand.lastWantedAt < RECENT_MS;
  return Math.min(byLoss, byRoom, byUse, mayGrow ? now + RECHECK_MS : Infinity);
}
