/**
 * When the next call to an instance may start: pure rules over what the pace file keeps.
 *
 * Start to start, because the service measures when calls arrive, with some slack for the way there. A call under way
 * holds the next one for as long as it may take, so that also two processes never have two in flight.
 */
import type { Random } from '../core/random.ts';
import { elapsedBetween, type Moment } from '../state/moment.ts';
import type { PaceDecision, PaceEntry, Refusals } from '../state/pace-file.ts';

/** How one asker has to keep the pace. Two sources of one instance may differ. */
export interface PaceRule {
  /** Start to start, as configured. */
  readonly intervalMs: number;
  /** The longest a call can take. */
  readonly callTimeoutMs: number;
}

/** What a call came to, as far as the next one is concerned. */
export type Settlement =
  | { readonly kind: 'done' }
  /** Too often, says the service (12002), perhaps with the least interval it wants. */
  | { readonly kind: 'refused'; readonly leastMs: number | undefined }
  /** No call for so long from now on. */
  | { readonly kind: 'silence'; readonly ms: number };

/** The answer to "may I call?": a permit, or ms to wait before asking again. */
export type Claim =
  | { readonly granted: true; readonly claimedAt: Moment }
  | { readonly granted: false; readonly waitMs: number };

/** Added to every interval: the service measures arrival, and exactly 10 s would fail on a jittery path. */
export const PACE_SLACK_MS = 250;

/** What one 12002 does to the interval, for good; an hour without one takes one such step back. */
const WIDEN_STEP = 1.1;
const WIDEN_MOST = 4;
const NARROW_EVERY_MS = 3_600_000;
/** After the k-th 12002 in a row the next call waits the interval times 2^k, with up to so much on top. */
const MAX_DOUBLINGS = 4;
const JITTER = 0.2;

/** Decides on one call: grants it and writes down its start, or says how long to wait. */
export function claimCall(entry: PaceEntry | undefined, now: Moment, rule: PaceRule): PaceDecision<Claim> {
  const anchored = entry === undefined ? undefined : anchor(entry, now);
  const waitMs = anchored === undefined ? 0 : waitBefore(anchored, now, rule);
  if (waitMs > 0) {
    // Whole ms: the rest of a rounding would be waited for again and again.
    const result: Claim = { granted: false, waitMs: Math.ceil(waitMs) };
    return anchored === undefined || anchored === entry ? { result } : { next: anchored, result };
  }
  const next = { startedAt: now, holdMs: rule.callTimeoutMs, refusals: anchored?.refusals };
  return { next, result: { granted: true, claimedAt: now } };
}

/** A call that was made by a claim. */
export interface SettledCall {
  readonly claimedAt: Moment;
  /** When it really went out: writing the claim down may have taken a while. */
  readonly startedAt: Moment;
  readonly rule: PaceRule;
  readonly settlement: Settlement;
}

/** Writes down what a call came to. Leaves a later claim, of someone who took this one for dead, alone. */
export function settleCall(
  entry: PaceEntry | undefined,
  now: Moment,
  call: SettledCall,
  random: Random,
): PaceDecision<PaceEntry | undefined> {
  if (entry === undefined || !isSame(entry.startedAt, call.claimedAt)) return { result: entry };
  const next = settled(entry.refusals, now, call, random);
  return { next, result: next };
}

/** Ms until a call may start, by this entry; 0: now. */
export function waitBefore(entry: PaceEntry, now: Moment, rule: PaceRule): number {
  const intervalMs = rule.intervalMs * widening(entry.refusals, now);
  const gapMs = Math.max(intervalMs, entry.holdMs) + PACE_SLACK_MS;
  return Math.max(0, gapMs - elapsedBetween(entry.startedAt, now));
}

/** A start that lies in the future, as a wall clock set back across a reboot leaves it, counts as now: it costs one interval, not years. */
function anchor(entry: PaceEntry, now: Moment): PaceEntry {
  return elapsedBetween(entry.startedAt, now) < 0 ? { ...entry, startedAt: now } : entry;
}

function settled(
  refusals: Refusals | undefined,
  now: Moment,
  { startedAt, rule, settlement }: SettledCall,
  random: Random,
): PaceEntry {
  const calm = calmed(refusals, now);
  switch (settlement.kind) {
    case 'done':
      return { startedAt, holdMs: 0, refusals: calm };
    case 'silence': {
      const tookMs = Math.max(0, elapsedBetween(startedAt, now));
      return { startedAt, holdMs: tookMs + settlement.ms, refusals: calm };
    }
    case 'refused': {
      const once = refusedOnceMore(refusals, now);
      const baseMs = Math.max(rule.intervalMs * once.widening, settlement.leastMs ?? 0);
      const doubledMs = baseMs * 2 ** Math.min(once.inARow, MAX_DOUBLINGS);
      return { startedAt, holdMs: doubledMs * (1 + JITTER * random()), refusals: once };
    }
  }
}

function refusedOnceMore(refusals: Refusals | undefined, now: Moment): Refusals {
  return {
    inARow: (refusals?.inARow ?? 0) + 1,
    widening: Math.min(WIDEN_MOST, widening(refusals, now) * WIDEN_STEP),
    lastAt: now,
  };
}

/** After an answer that was no refusal: the row is broken, the widening stays until it has worn off. */
function calmed(refusals: Refusals | undefined, now: Moment): Refusals | undefined {
  if (refusals === undefined || widening(refusals, now) === 1) return undefined;
  return { ...refusals, inARow: 0 };
}

function widening(refusals: Refusals | undefined, now: Moment): number {
  if (refusals === undefined) return 1;
  const quietHours = Math.floor(Math.max(0, elapsedBetween(refusals.lastAt, now)) / NARROW_EVERY_MS);
  return Math.max(1, refusals.widening / WIDEN_STEP ** quietHours);
}

function isSame(a: Moment, b: Moment): boolean {
  return a.boot === b.boot && a.elapsedMs === b.elapsedMs && a.wallAt === b.wallAt;
}
