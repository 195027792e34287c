/**
 * When the next call to an instance may start: pure rules on the entries of the pace file.
 *
 * The pace counts from start to start, because the service measures when calls arrive. A call in flight blocks the next one
 * for as long as its timeout, so that two processes never have two calls in flight.
 */
import type { Random } from '../core/random.ts';
import { elapsedBetween, type Moment } from '../state/moment.ts';
import type { PaceDecision, PaceEntry, Refusals } from '../state/pace-file.ts';

/** The pace of one caller. Two sources of one instance may have different ones. */
export interface PaceRule {
  /** Start to start, as configured. */
  readonly intervalMs: number;
  /** The timeout of a call. */
  readonly callTimeoutMs: number;
}

/** How an ended call affects the next one. */
export type Settlement =
  /** The next call follows the pace. */
  | { readonly kind: 'done' }
  /** The service said that calls come too often (12002), perhaps with the least interval it accepts. */
  | { readonly kind: 'refused'; readonly leastMs: number | undefined }
  /** No call for `ms` from now on. */
  | { readonly kind: 'silence'; readonly ms: number };

/** A permit for one call, or the time to wait before claiming again. */
export type Claim =
  | { readonly granted: true; readonly claimedAt: Moment }
  | { readonly granted: false; readonly waitMs: number };

export const PACE_UNCHANGED: Settlement = { kind: 'done' };

/** Added to every interval: the service measures arrivals, and network delays vary. */
export const PACE_SLACK_MS = 250;

/** Each 12002 widens the interval by this factor; each hour without one takes one such step back. */
const WIDEN_STEP = 1.1;
const MAX_WIDENING = 4;
const NARROW_EVERY_MS = 3_600_000;
/** After the k-th 12002 in a row the next call waits the interval times 2^k, plus a random share of up to JITTER. */
const MAX_DOUBLINGS = 4;
const JITTER = 0.2;

/** Grants a call and records its start, or says how long to wait. */
export function claimCall(entry: PaceEntry | undefined, now: Moment, rule: PaceRule): PaceDecision<Claim> {
  const current = entry === undefined ? undefined : withoutFutureStart(entry, now);
  const waitMs = current === undefined ? 0 : waitBefore(current, now, rule);
  if (waitMs > 0) {
    // Rounded up, because a wait that is a fraction of a millisecond too short would be repeated again and again.
    const result: Claim = { granted: false, waitMs: Math.ceil(waitMs) };
    return current === undefined || current === entry ? { result } : { next: current, result };
  }
  const next = { startedAt: now, holdMs: rule.callTimeoutMs, refusals: current?.refusals };
  return { next, result: { granted: true, claimedAt: now } };
}

/** A call that was made with a permit. */
export interface SettledCall {
  readonly claimedAt: Moment;
  /** When it was really sent: writing the claim may have taken a while. */
  readonly startedAt: Moment;
  readonly rule: PaceRule;
  readonly settlement: Settlement;
}

/** Records how a call ended. Does not touch the later claim of a process that assumed that this call had died. */
export function settleCall(
  entry: PaceEntry | undefined,
  now: Moment,
  call: SettledCall,
  random: Random,
): PaceDecision<PaceEntry | undefined> {
  if (entry === undefined || !isSameMoment(entry.startedAt, call.claimedAt)) return { result: entry };
  const next = settled(entry.refusals, now, call, random);
  return { next, result: next };
}

/** Ms until the entry lets a call start; 0: now. */
export function waitBefore(entry: PaceEntry, now: Moment, rule: PaceRule): number {
  const intervalMs = rule.intervalMs * widening(entry.refusals, now);
  const gapMs = Math.max(intervalMs, entry.holdMs) + PACE_SLACK_MS;
  return Math.max(0, gapMs - elapsedBetween(entry.startedAt, now));
}

/** A start in the future, left by a wall clock that was set back during a reboot, counts as now: it costs one interval instead of years. */
function withoutFutureStart(entry: PaceEntry, now: Moment): PaceEntry {
  return elapsedBetween(entry.startedAt, now) < 0 ? { ...entry, startedAt: now } : entry;
}

function settled(
  refusals: Refusals | undefined,
  now: Moment,
  { startedAt, rule, settlement }: SettledCall,
  random: Random,
): PaceEntry {
  switch (settlement.kind) {
    case 'done':
      return { startedAt, holdMs: 0, refusals: withoutStreak(refusals, now) };
    case 'silence': {
      const tookMs = Math.max(0, elapsedBetween(startedAt, now));
      return { startedAt, holdMs: tookMs + settlement.ms, refusals: withoutStreak(refusals, now) };
    }
    case 'refused': {
      const next = withRefusal(refusals, now);
      const baseMs = Math.max(rule.intervalMs * next.widening, settlement.leastMs ?? 0);
      const doubledMs = baseMs * 2 ** Math.min(next.inARow, MAX_DOUBLINGS);
      return { startedAt, holdMs: doubledMs * (1 + JITTER * random()), refusals: next };
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

/** A call that was not refused ends the streak. The widening stays until it has worn off. */
function withoutStreak(refusals: Refusals | undefined, now: Moment): Refusals | undefined {
  if (refusals === undefined || widening(refusals, now) === 1) return undefined;
  return { ...refusals, inARow: 0 };
}

function widening(refusals: Refusals | undefined, now: Moment): number {
  if (refusals === undefined) return 1;
  const quietHours = Math.floor(Math.max(0, elapsedBetween(refusals.lastAt, now)) / NARROW_EVERY_MS);
  return Math.max(1, refusals.widening / WIDEN_STEP ** quietHours);
}

function isSameMoment(a: Moment, b: Moment): boolean {
  return a.boot === b.boot && a.elapsedMs === b.elapsedMs && a.wallAt === b.wallAt;
}
