/**
 * The rules that decide when noria may send the next call to an instance, and which turn sends it. A turn is the wait
 * of one caller in the queue for the right to make one call. All functions are pure, and work on entries of the pace
 * store.
 *
 * The service measures when calls arrive, but noria does not see that. So the pace counts from the latest moment at
 * which the previous call can have arrived. For an answered call, that is the moment of the first byte of the answer.
 * For an unanswered call, that is the moment at which the call ended. If the process was killed during its call, noria
 * assumes that the call lasted as long as a call may last.
 */
import type { Random } from '../core/random.ts';
import { elapsedBetween, type Moment, type ProcessIdentity } from '../state/moment.ts';
import {
  type LastCall,
  type PaceDecision,
  type PaceEntry,
  type QueuedTurn,
  type Refusals,
  sinceLatestArrival,
} from '../state/pace-file.ts';

export interface PaceRule {
  /** The minimum time in ms between the arrivals of two calls at the service, as configured. */
  readonly intervalMs: number;
  readonly callTimeoutMs: number;
}

export interface Turn {
  readonly id: string;
  readonly rule: PaceRule;
  readonly process?: ProcessIdentity | undefined;
}

export type Settlement =
  | { readonly kind: 'done' }
  /** The call came too early (12002). `minMs`: the minimum interval that the answer names. */
  | { readonly kind: 'refused'; readonly minMs: number | undefined }
  /** No call may be sent for `ms`, counted from now. */
  | { readonly kind: 'silence'; readonly ms: number };

export type Claim =
  | {
      readonly granted: true;
      readonly before: LastCall | undefined;
      /** A lower bound, in ms, of the time since the previous call arrived at the service; undefined if unknown. */
      readonly sinceArrivalMs: number | undefined;
    }
  | { readonly granted: false; readonly waitMs: number };

export const PACE_UNCHANGED: Settlement = { kind: 'done' };

/**
 * Added to every interval. The service's clock may run slower than noria's, and the service may count the interval from
 * a moment after the first byte of its answer.
 */
export const PACE_SLACK_MS = 250;
export const PERMIT_VALID_MS = 2_000;

/** A place that is not renewed for this time after its wait is lost: its process may have ended unseen, on another machine. */
const PLACE_GRACE_MS = 3_000;
/** Must be above KEEP_PLACE_EVERY_MS, so that no place expires between two calls of `askTurn`. */
const PLACE_RENEWED_AT_MS = 1_500;
export const KEEP_PLACE_EVERY_MS = 1_000;

/** Each refusal (12002) makes the interval this much longer, each hour without one this much shorter. */
const WIDEN_STEP = 1.1;
const MAX_WIDENING = 4;
const NARROW_EVERY_MS = 3_600_000;
/** After the k-th refusal in a row, the next call waits 2^k times the interval, and up to JITTER of that longer. */
const MAX_DOUBLINGS = 4;
const JITTER = 0.2;

/**
 * Adds a turn to the queue. If the turn is already in the queue, renews its place.
 *
 * @returns `waitMs`: the time until this turn may make its call, if all turns ahead of it make theirs; 0: now.
 * `askInMs`: the time until the caller should ask again. It may be shorter, because the first turn in the queue may lose
 * its place by then, and this turn then waits less.
 */
export function askTurn(
  entry: PaceEntry | undefined,
  now: Moment,
  turn: Turn,
): PaceDecision<{ readonly waitMs: number; readonly askInMs: number }> {
  const current = currentEntry(entry, now);
  const ahead = turnsAhead(current, turn);
  const waitMs = waitInQueue(current, now, { ahead, rule: turn.rule });
  const [next] = ahead;
  const untilNextMs = next === undefined ? Infinity : waitBefore(current, now, next) + PLACE_GRACE_MS;
  const result = { waitMs, askInMs: Math.min(waitMs, untilNextMs) };
  const queued = current.queue.find(({ id }) => id === turn.id);
  if (queued !== undefined && validForMs(queued, now) >= waitMs + PLACE_RENEWED_AT_MS) return { result };
  const validMs = waitMs + PLACE_GRACE_MS;
  const { id, rule, process } = turn;
  const renewed = { id, intervalMs: rule.intervalMs, renewedAt: now, validMs, ...(process && { process }) };
  const behind = current.queue.slice(ahead.length + 1);
  return { newEntry: { ...current, queue: [...ahead, renewed, ...behind] }, result };
}

/** If the wait of the turn has ended, records that it makes the next call (a claim), and removes it from the queue. */
export function claimCall(entry: PaceEntry | undefined, now: Moment, turn: Turn): PaceDecision<Claim> {
  const current = currentEntry(entry, now);
  const waitMs = waitInQueue(current, now, { ahead: turnsAhead(current, turn), rule: turn.rule });
  if (waitMs > 0) return { result: { granted: false, waitMs } };
  const { call: before, refusals } = current;
  const call: LastCall = {
    id: turn.id,
    claimedAt: now,
    arrivedWithinMs: PERMIT_VALID_MS + turn.rule.callTimeoutMs,
    holdMs: 0,
    fate: 'pending',
  };
  const next = { call, queue: current.queue.filter(({ id }) => id !== turn.id), refusals };
  const sinceArrivalMs = before?.fate === 'answered' ? sinceLatestArrival(before, now) : undefined;
  return { newEntry: next, result: { granted: true, before, sinceArrivalMs } };
}

/** No-op if another turn has claimed a call since then. */
export function releaseClaim(
  entry: PaceEntry | undefined,
  turn: Turn,
  before: LastCall | undefined,
): PaceDecision<PaceEntry | undefined> {
  if (entry?.call?.id !== turn.id) return { result: entry };
  const next = { ...entry, call: before };
  return { newEntry: next, result: next };
}

export function leaveQueue(entry: PaceEntry | undefined, { id }: Turn): PaceDecision<undefined> {
  if (!entry?.queue.some((turn) => turn.id === id)) return { result: undefined };
  return { newEntry: { ...entry, queue: entry.queue.filter((turn) => turn.id !== id) }, result: undefined };
}

interface SentCall {
  readonly turn: Turn;
  /** The moment at which the answer began; undefined if the call ended without an answer. */
  readonly answeredAt: Moment | undefined;
  readonly settlement: Settlement;
  readonly random: Random;
}

/**
 * Records how a call ended. No-op if another turn has claimed a later call: noria had already assumed that this call
 * was lost.
 */
export function settleCall(
  entry: PaceEntry | undefined,
  now: Moment,
  ended: SentCall,
): PaceDecision<PaceEntry | undefined> {
  if (entry?.call?.id !== ended.turn.id) return { result: entry };
  const { answeredAt } = ended;
  const arrivedAt = answeredAt ?? now;
  const { holdMs, refusals } = consequences(entry.refusals, now, ended);
  const call: LastCall = {
    ...entry.call,
    arrivedWithinMs: Math.max(0, elapsedBetween(entry.call.claimedAt, arrivedAt)),
    holdMs,
    fate: answeredAt === undefined ? 'unanswered' : 'answered',
  };
  const next = { call, queue: entry.queue, refusals };
  return { newEntry: next, result: next };
}

/**
 * The time in ms until the pace allows the next call; 0: now. A call in flight may still reach the service, so noria
 * assumes that it arrives now.
 */
export function waitBefore(
  entry: PaceEntry,
  now: Moment,
  { intervalMs }: Pick<PaceRule, 'intervalMs'>,
): number {
  const { call, refusals } = entry;
  if (call === undefined) return 0;
  const gapMs = gapOf(intervalMs, refusals, now);
  const sinceMs = sinceLatestArrival(call, now);
  const countedMs = call.fate === 'pending' ? Math.max(0, sinceMs) : sinceMs;
  // Rounds up: after a wait that is a fraction of a millisecond too short, the turn would have to wait again.
  return Math.max(0, Math.ceil(Math.max(gapMs, call.holdMs + PACE_SLACK_MS) - countedMs));
}

/** The time in ms until a turn may call, if every turn ahead of it calls. */
function waitInQueue(
  entry: PaceEntry,
  now: Moment,
  { ahead, rule }: { readonly ahead: readonly QueuedTurn[]; readonly rule: PaceRule },
): number {
  const [first = rule, ...others] = [...ahead, rule];
  const laterMs = others.map(({ intervalMs }) => Math.ceil(gapOf(intervalMs, entry.refusals, now)));
  return laterMs.reduce((sum, ms) => sum + ms, waitBefore(entry, now, first));
}

function turnsAhead({ queue }: PaceEntry, { id }: Turn): readonly QueuedTurn[] {
  const index = queue.findIndex((turn) => turn.id === id);
  return index < 0 ? queue : queue.slice(0, index);
}

function gapOf(intervalMs: number, refusals: Refusals | undefined, now: Moment): number {
  return intervalMs * widening(refusals, now) + PACE_SLACK_MS;
}

/**
 * Returns the entry without the turns that lost their place.
 *
 * If the wall clock was set back during a reboot, a claim may be in the future. Such a claim counts as made now, so
 * that the next call waits for one interval, not for years.
 */
function currentEntry(entry: PaceEntry | undefined, now: Moment): PaceEntry {
  if (entry === undefined) return { queue: [] };
  const { call } = entry;
  const queue = entry.queue.filter((turn) => validForMs(turn, now) > 0);
  const isInFuture = call !== undefined && elapsedBetween(call.claimedAt, now) < 0;
  return { ...entry, queue, call: isInFuture ? { ...call, claimedAt: now } : call };
}

function validForMs({ renewedAt, validMs }: QueuedTurn, now: Moment): number {
  const elapsedMs = elapsedBetween(renewedAt, now);
  return elapsedMs < 0 ? 0 : validMs - elapsedMs;
}

function consequences(
  refusals: Refusals | undefined,
  now: Moment,
  { turn, answeredAt = now, settlement, random }: SentCall,
): { readonly holdMs: number; readonly refusals: Refusals | undefined } {
  switch (settlement.kind) {
    case 'done':
      return { holdMs: 0, refusals: withoutStreak(refusals, now) };
    case 'silence': {
      const tookMs = Math.max(0, elapsedBetween(answeredAt, now));
      return { holdMs: tookMs + settlement.ms, refusals: withoutStreak(refusals, now) };
    }
    case 'refused': {
      const next = withRefusal(refusals, now);
      const baseMs = Math.max(turn.rule.intervalMs * next.widening, settlement.minMs ?? 0);
      const doubledMs = baseMs * 2 ** Math.min(next.inARow, MAX_DOUBLINGS);
      return { holdMs: doubledMs * (1 + JITTER * random()), refusals: next };
    }
  }
}

function withRefusal(refusals: Refusals | undefined, now: Moment): Refusals {
  return {
    inARow: (refusals?.inARow ?? 0) + 1,
    widening: Math.min(MAX_WIDENING, widening(refusals, now) * WIDEN_STEP),
    lastAt: now,
  };
}

/** Keeps the longer interval, which becomes shorter only with each hour without a refusal. */
function withoutStreak(refusals: Refusals | undefined, now: Moment): Refusals | undefined {
  if (refusals === undefined || widening(refusals, now) === 1) return undefined;
  return { ...refusals, inARow: 0 };
}

function widening(refusals: Refusals | undefined, now: Moment): number {
  if (refusals === undefined) return 1;
  const quietHours = Math.floor(Math.max(0, elapsedBetween(refusals.lastAt, now)) / NARROW_EVERY_MS);
  return Math.max(1, refusals.widening / WIDEN_STEP ** quietHours);
}
