/**
 * The rules that decide when the next call to an instance may be sent, and which turn sends it. Pure: they work on the
 * entries of the pace file.
 *
 * The service measures when calls arrive, which noria does not see. So the pace counts from the latest moment at which
 * the previous call can have arrived: the first byte of its answer; without an answer its end, because until then its
 * bytes may have been on the way; and for a call of unknown fate (its process was killed) the longest time that a call
 * may take.
 */
import type { Random } from '../core/random.ts';
import { elapsedBetween, type Moment } from '../state/moment.ts';
import type { LastCall, PaceDecision, PaceEntry, QueuedTurn, Refusals } from '../state/pace-file.ts';

/** The pace of one caller. Two sources of one instance may have different paces. */
export interface PaceRule {
  /** The minimum time between two arrivals at the service, as configured. */
  readonly intervalMs: number;
  readonly callTimeoutMs: number;
}

/** One caller's turn: it waits in the queue, claims, and makes one call. */
export interface Turn {
  readonly id: string;
  readonly rule: PaceRule;
}

/** How an ended call affects the next one. */
export type Settlement =
  /** The next call follows the pace. */
  | { readonly kind: 'done' }
  /** The service said that calls come too often (12002), perhaps with the minimum interval that it accepts. */
  | { readonly kind: 'refused'; readonly leastMs: number | undefined }
  /** No call may be sent for `ms` from now on. */
  | { readonly kind: 'silence'; readonly ms: number };

export type Claim =
  | {
      readonly granted: true;
      /** The last call before the claim. */
      readonly before: LastCall | undefined;
      /** The service received noria's previous call at least this long ago; undefined: unknown. */
      readonly sinceArrivalMs: number | undefined;
    }
  | { readonly granted: false; readonly waitMs: number };

export const PACE_UNCHANGED: Settlement = { kind: 'done' };

/**
 * Added to every interval, because the service may measure with another clock, and a little after the first byte
 * arrives.
 */
export const PACE_SLACK_MS = 250;
/** A call must be sent within this time of its claim. */
export const USE_BY_MS = 2_000;

/** A turn loses its place if its process does not ask again within this time after the end of its wait. */
const PLACE_GRACE_MS = 3_000;
/**
 * A turn renews its place when less than this time is left before it loses the place. So it must ask more often than
 * that.
 */
const PLACE_RENEWED_AT_MS = 1_500;
/** How often to ask in order to keep the place. */
export const KEEP_PLACE_EVERY_MS = 1_000;

/** Each 12002 widens the interval by this factor; each hour without a 12002 removes one such factor. */
const WIDEN_STEP = 1.1;
const MAX_WIDENING = 4;
const NARROW_EVERY_MS = 3_600_000;
/** After the k-th 12002 in a row the next call waits the interval times 2^k, plus a random share of up to JITTER. */
const MAX_DOUBLINGS = 4;
const JITTER = 0.2;

export interface Outlook {
  /** The time until the turn may claim, if all turns before it make their calls; 0: now. */
  readonly waitMs: number;
  /** When to ask again. It may be sooner than `waitMs`, because a caller ahead in the queue may give up its turn. */
  readonly askInMs: number;
}

/** Enters the queue, or keeps the place in it. */
export function askTurn(entry: PaceEntry | undefined, now: Moment, turn: Turn): PaceDecision<Outlook> {
  const current = currentEntry(entry, now);
  const ahead = turnsAhead(current, turn);
  const waitMs = waitInQueue(current, now, ahead, turn);
  const [next] = ahead;
  const untilNextMs = next === undefined ? Infinity : waitBefore(current, now, next) + PLACE_GRACE_MS;
  const result = { waitMs, askInMs: Math.min(waitMs, untilNextMs) };
  const place = current.queue.find(({ id }) => id === turn.id);
  if (place !== undefined && validForMs(place, now) >= waitMs + PLACE_RENEWED_AT_MS) return { result };
  const validMs = waitMs + PLACE_GRACE_MS;
  const renewed = { id: turn.id, intervalMs: turn.rule.intervalMs, renewedAt: now, validMs };
  const behind = current.queue.slice(ahead.length + (place === undefined ? 0 : 1));
  return { next: { ...current, queue: [...ahead, renewed, ...behind] }, result };
}

/** Claims the call of a turn whose wait is over, and removes the turn from the queue. */
export function claimCall(entry: PaceEntry | undefined, now: Moment, turn: Turn): PaceDecision<Claim> {
  const current = currentEntry(entry, now);
  const waitMs = waitInQueue(current, now, turnsAhead(current, turn), turn);
  if (waitMs > 0) return { result: { granted: false, waitMs } };
  const { call: before, refusals } = current;
  const call: LastCall = {
    id: turn.id,
    claimedAt: now,
    arrivedWithinMs: USE_BY_MS + turn.rule.callTimeoutMs,
    holdMs: 0,
    fate: 'pending',
  };
  const next = { call, queue: current.queue.filter(({ id }) => id !== turn.id), refusals };
  const sinceArrivalMs = before?.fate === 'answered' ? sinceLatestArrival(before, now) : undefined;
  return { next, result: { granted: true, before, sinceArrivalMs } };
}

/** Restores the call before a claim that was not used. Does not change a later claim of another turn. */
export function giveBackClaim(
  entry: PaceEntry | undefined,
  turn: Turn,
  before: LastCall | undefined,
): PaceDecision<PaceEntry | undefined> {
  if (entry?.call?.id !== turn.id) return { result: entry };
  const next = { ...entry, call: before };
  return { next, result: next };
}

/** Removes a turn that ended without a claim. */
export function leaveQueue(entry: PaceEntry | undefined, { id }: Turn): PaceDecision<undefined> {
  const queue = entry?.queue.filter((turn) => turn.id !== id);
  if (entry === undefined || queue?.length === entry.queue.length) return { result: undefined };
  return { next: { ...entry, queue: queue ?? [] }, result: undefined };
}

export interface SentCall {
  readonly turn: Turn;
  /** When the answer began; undefined: the call ended without an answer. */
  readonly answeredAt: Moment | undefined;
  readonly settlement: Settlement;
}

/**
 * Records how a call ended. Does not change a later claim: another process may have assumed that this call had died.
 */
export function settleCall(
  entry: PaceEntry | undefined,
  now: Moment,
  ended: SentCall,
  random: Random,
): PaceDecision<PaceEntry | undefined> {
  if (entry?.call?.id !== ended.turn.id) return { result: entry };
  const { answeredAt, turn, settlement } = ended;
  const arrivedAt = answeredAt ?? now;
  const { holdMs, refusals } = consequences(entry.refusals, now, arrivedAt, { turn, settlement, random });
  const call: LastCall = {
    ...entry.call,
    arrivedWithinMs: Math.max(0, elapsedBetween(entry.call.claimedAt, arrivedAt)),
    holdMs,
    fate: answeredAt === undefined ? 'unanswered' : 'answered',
  };
  const next = { call, queue: entry.queue, refusals };
  return { next, result: next };
}

/** The time in ms until the entry allows a call; 0: now. A call in flight counts as if it arrived now. */
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
  // Rounded up: a wait that is too short by a fraction of a millisecond would be repeated again and again.
  return Math.max(0, Math.ceil(Math.max(gapMs, call.holdMs + PACE_SLACK_MS) - countedMs));
}

/** The time until all turns before this one have called, each at its own pace. */
function waitInQueue(entry: PaceEntry, now: Moment, ahead: readonly QueuedTurn[], { rule }: Turn): number {
  const [first = rule, ...others] = [...ahead, rule];
  const laterMs = others.map(({ intervalMs }) => Math.ceil(gapOf(intervalMs, entry.refusals, now)));
  return laterMs.reduce((sum, ms) => sum + ms, waitBefore(entry, now, first));
}

function turnsAhead({ queue }: PaceEntry, { id }: Turn): readonly QueuedTurn[] {
  const place = queue.findIndex((turn) => turn.id === id);
  return place < 0 ? queue : queue.slice(0, place);
}

/**
 * The time in ms since the latest moment at which the call can have reached the service; negative while that moment is
 * in the future.
 */
function sinceLatestArrival({ claimedAt, arrivedWithinMs }: LastCall, now: Moment): number {
  return elapsedBetween(claimedAt, now) - arrivedWithinMs;
}

function gapOf(intervalMs: number, refusals: Refusals | undefined, now: Moment): number {
  return intervalMs * widening(refusals, now) + PACE_SLACK_MS;
}

/**
 * The entry without turns that lost their place. If the wall clock was set back during a reboot, a claim may lie in the
 * future. It then counts as made now, which costs one interval instead of years.
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

interface CallEffect extends Pick<SentCall, 'turn' | 'settlement'> {
  readonly random: Random;
}

/** Computes the effects of a call that has ended now and reached the service at `arrivedAt` at the latest. */
function consequences(
  refusals: Refusals | undefined,
  now: Moment,
  arrivedAt: Moment,
  { turn, settlement, random }: CallEffect,
): { readonly holdMs: number; readonly refusals: Refusals | undefined } {
  switch (settlement.kind) {
    case 'done':
      return { holdMs: 0, refusals: withoutStreak(refusals, now) };
    case 'silence': {
      const tookMs = Math.max(0, elapsedBetween(arrivedAt, now));
      return { holdMs: tookMs + settlement.ms, refusals: withoutStreak(refusals, now) };
    }
    case 'refused': {
      const next = withRefusal(refusals, now);
      const baseMs = Math.max(turn.rule.intervalMs * next.widening, settlement.leastMs ?? 0);
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

/**
 * A call that was not refused ends the streak of refusals. The widening of the interval stays until it has worn off.
 */
function withoutStreak(refusals: Refusals | undefined, now: Moment): Refusals | undefined {
  if (refusals === undefined || widening(refusals, now) === 1) return undefined;
  return { ...refusals, inARow: 0 };
}

function widening(refusals: Refusals | undefined, now: Moment): number {
  if (refusals === undefined) return 1;
  const quietHours = Math.floor(Math.max(0, elapsedBetween(refusals.lastAt, now)) / NARROW_EVERY_MS);
  return Math.max(1, refusals.widening / WIDEN_STEP ** quietHours);
}
