/**
 * What limits the attempts of dials: how many attempts one dial makes and how long it waits, the further attempts that
 * the failing requests of one client may cause, and the hedges of the whole dialer.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import type { FrontProxy } from '../core/front-proxy.ts';
import type { SourceSettings } from './source-memory.ts';
import type { WarmSetting } from './warm-connections.ts';

export interface DialerSettings {
  /** Attempts that fail within FAST_FAILURE_MS do not count. */
  readonly attempts: number;
  /** Includes the wait for a member. */
  readonly deadlineMs: number;
  readonly waitForMemberMs: number;
  readonly attemptTimeoutMs: number;
  /** `auto`: after a delay that noria learns from the source's successful attempts. A number: in ms. */
  readonly hedgeAfter: 'auto' | 'off' | number;
  readonly warm: WarmSetting;
  readonly via?: FrontProxy | undefined;
  /** Members of a source that is not listed get no credentials. */
  readonly sources: ReadonlyMap<string, SourceSettings>;
}

/** The client hardly notices so short a delay. */
export const FAST_FAILURE_MS = 100;
export const MAX_ATTEMPTS = 10;
/** The weight of a report by a member that worked recently, or that says that it cannot reach the target. */
export const FULL_REPORT_POINTS = 3;
/** The dial gives up when this number of members have reported that they cannot reach the target. */
const MIN_REPORTS = 2;
/** While other members reach the target, one that does not is more likely at fault itself. */
const MIN_REPORTS_AFTER_REACHED = 5;
/** So soon after a success, the dial does not give up, however many members report. */
const JUST_REACHED_MS = 5_000;
/** After the first report that a member cannot reach the target, the dial waits at most this long for another member. */
export const SECOND_REPORT_WAIT_MS = 2_000;

/** @param sinceReachedMs - Infinity if no member reached the target recently. */
export function maxReportPoints(sinceReachedMs: number): number {
  if (sinceReachedMs <= JUST_REACHED_MS) return Infinity;
  return FULL_REPORT_POINTS * (sinceReachedMs < Infinity ? MIN_REPORTS_AFTER_REACHED : MIN_REPORTS);
}

export const CLIENT_BURST = 100;
export const CLIENT_ATTEMPTS_PER_SECOND = 10;
/** What each attempt for any client adds to the budgets of all clients, so that the limit is higher on a busy noria. */
const EARNED_PER_ATTEMPT = 0.1;
const MAX_CLIENTS = 4_096;

interface ClientBudget {
  left: number;
  at: number;
  /** How many attempts noria had made for all clients by the moment `at`. */
  attempts: number;
}

/**
 * Limits the further attempts that the failing requests of one client cause: each request for a target that does not
 * exist would occupy several members. Failures that only a member can cause do not count.
 */
export class ClientBudgets {
  readonly #clock: Clock;
  readonly #budgets = new BoundedMap<string, ClientBudget>(MAX_CLIENTS);
  #attempts = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  attempted(): void {
    this.#attempts += 1;
  }

  allows(client: string): boolean {
    return this.#refill(client).left >= 1;
  }

  charge(client: string, attempts: number): void {
    const budget = this.#refill(client);
    budget.left = Math.max(0, budget.left - attempts);
    this.#budgets.set(client, budget);
  }

  #refill(client: string): ClientBudget {
    const now = this.#clock.monotonic();
    const budget = this.#budgets.get(client);
    if (budget === undefined) return { left: CLIENT_BURST, at: now, attempts: this.#attempts };
    const earned =
      ((now - budget.at) / 1_000) * CLIENT_ATTEMPTS_PER_SECOND +
      (this.#attempts - budget.attempts) * EARNED_PER_ATTEMPT;
    budget.left = Math.min(CLIENT_BURST, budget.left + earned);
    budget.at = now;
    budget.attempts = this.#attempts;
    return budget;
  }
}

/** The least learned delay: each hedge opens a connection to a member. */
export const MIN_HEDGE_DELAY_MS = 50;

/**
 * @param p95Ms - of the latency of the source's faster members, if known.
 * @param doubtful - an unproven member gets half the usual time.
 */
export function hedgeDelayMs(
  { hedgeAfter, attemptTimeoutMs }: Pick<DialerSettings, 'hedgeAfter' | 'attemptTimeoutMs'>,
  p95Ms: number | undefined,
  doubtful: boolean,
): number | undefined {
  if (hedgeAfter === 'off') return undefined;
  if (hedgeAfter !== 'auto') return hedgeAfter;
  const usualMs = p95Ms ?? attemptTimeoutMs / 4;
  return Math.max(MIN_HEDGE_DELAY_MS, doubtful ? usualMs / 2 : usualMs);
}

const EARNED_PER_DIAL = 0.1;
const MAX_HEDGES = 10;

/**
 * A hedge is wasted if the first attempt succeeds after all. A good pool gets at most a tenth more attempts, and a
 * bad one as many hedges as it needs.
 */
export class HedgeBudget {
  #balance = MAX_HEDGES;

  earn(): void {
    this.#balance = Math.min(MAX_HEDGES, this.#balance + EARNED_PER_DIAL);
  }

  spend(): boolean {
    if (this.#balance < 1) return false;
    this.#balance -= 1;
    return true;
  }

  refund(): void {
    this.#balance = Math.min(MAX_HEDGES, this.#balance + 1);
  }
}

/** Each avoided member slows the search in the pool. If more are slow, the rest probably are as well. */
const MAX_AVOIDED = 64;

/** The attempts that have taken longer than their hedge delay: one through a silent member fails only at its timeout. */
export class OverdueAttempts extends Set<{ readonly lease: { readonly member: string } }> {
  /** @param tried - left out, because the dial avoids them anyway. */
  membersToAvoid(slow: readonly string[], tried: readonly string[]): readonly string[] {
    const members = new Set(slow);
    for (const { lease } of this) members.add(lease.member);
    for (const member of tried) members.delete(member);
    return [...members].slice(0, MAX_AVOIDED);
  }
}
