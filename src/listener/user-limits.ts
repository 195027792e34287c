/**
 * The limits of users: tunnels at once, requests a second, bytes and members a day, and the only source. Counts what this
 * process serves; each process has its share of `tunnels` and `rate`. What the whole noria used today comes from
 * outside, about once a second.
 */
import type { Clock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';

export interface Limits {
  readonly tunnels?: number | undefined;
  readonly rate?: number | undefined;
  readonly bytesPerDay?: number | undefined;
  readonly membersPerDay?: number | undefined;
  readonly source?: string | undefined;
}

export interface UsedToday {
  /** How many processes share the limits. */
  readonly processes: number;
  /** Until the next day begins. */
  readonly leftMs: number;
  readonly users: Readonly<Record<string, { readonly bytes: number; readonly members: number }>>;
}

/** What one user has open, from the reload that gives the limit until one that removes it. */
export interface Counter {
  open: number;
  tokens: number;
  filledAt: number;
}

const TUNNELS_RETRY_MS = SECOND_MS;

export class UserLimits {
  readonly #clock: Clock;
  readonly #counters = new Map<string, Counter>();
  #limits: ReadonlyMap<string, Limits> = new Map();
  #today: UsedToday = { processes: 1, leftMs: 0, users: {} };
  #dayEndsAt = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  configure(users: Iterable<{ readonly username: string; readonly limits?: Limits | undefined }>): void {
    const limited = [...users].flatMap(({ username, limits }) =>
      limits === undefined ? [] : [[username, limits] as const],
    );
    this.#limits = new Map(limited);
    for (const user of this.#counters.keys()) if (!this.#limits.has(user)) this.#counters.delete(user);
  }

  setToday(today: UsedToday): void {
    this.#today = today;
    this.#dayEndsAt = this.#clock.monotonic() + today.leftMs;
  }

  sourceOf(user: string): string | undefined {
    return this.#limits.get(user)?.source;
  }

  /**
   * Admits a request of the user, or says which limit refuses it. The caller takes 1 from `open` of the returned counter
   * when the request has ended; undefined if the user has no limits.
   */
  admit(user: string): Counter | NoriaError | undefined {
    const limits = this.#limits.get(user);
    if (limits === undefined) return undefined;
    const counter = this.#counterOf(user);
    const found = this.#dayLimit(user, limits) ?? this.#ownLimit(limits, counter);
    if (found !== undefined) return found;
    counter.open += 1;
    return counter;
  }

  isOverBytes(user: string): boolean {
    const { bytesPerDay } = this.#limits.get(user) ?? {};
    return bytesPerDay !== undefined && (this.#today.users[user]?.bytes ?? 0) >= bytesPerDay;
  }

  #dayLimit(user: string, { bytesPerDay, membersPerDay }: Limits): NoriaError | undefined {
    const { bytes, members } = this.#today.users[user] ?? { bytes: 0, members: 0 };
    const retryAfterMs = Math.max(SECOND_MS, this.#dayEndsAt - this.#clock.monotonic());
    if (bytesPerDay !== undefined && bytes >= bytesPerDay)
      return limited(
        `the user has used ${bytes} bytes today, and bytesPerDay is ${bytesPerDay}`,
        retryAfterMs,
      );
    if (membersPerDay !== undefined && members >= membersPerDay)
      return limited(
        `the user has used ${members} members today, and membersPerDay is ${membersPerDay}`,
        retryAfterMs,
      );
    return undefined;
  }

  #ownLimit({ tunnels, rate }: Limits, counter: Counter): NoriaError | undefined {
    const { processes } = this.#today;
    if (tunnels !== undefined && counter.open >= Math.ceil(tunnels / processes))
      return limited(
        `the user has ${counter.open} requests open, and tunnels is ${tunnels}`,
        TUNNELS_RETRY_MS,
      );
    if (rate === undefined) return undefined;
    const own = rate / processes;
    const now = this.#clock.monotonic();
    const most = Math.max(1, own);
    counter.tokens = Math.min(most, counter.tokens + ((now - counter.filledAt) * own) / SECOND_MS);
    counter.filledAt = now;
    if (counter.tokens >= 1) {
      counter.tokens -= 1;
      return undefined;
    }
    const perMinute = Math.round(rate * 60);
    return limited(
      `the user sends more than ${perMinute} requests a minute`,
      ((1 - counter.tokens) / own) * SECOND_MS,
    );
  }

  #counterOf(user: string): Counter {
    let counter = this.#counters.get(user);
    if (counter === undefined) {
      counter = { open: 0, tokens: Number.MAX_SAFE_INTEGER, filledAt: this.#clock.monotonic() };
      this.#counters.set(user, counter);
    }
    return counter;
  }
}

/** The error for a request beyond a limit. Its message names no user, so that the client may read it. */
export function limited(message: string, retryAfterMs: number): NoriaError {
  return new NoriaError('limit', message, { context: { reason: message, retryAfterMs } });
}
