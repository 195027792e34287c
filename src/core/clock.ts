/**
 * The only place that reads the time or arms a timer. All other code gets a Clock.
 *
 * Use `monotonic()` for lifetimes, deadlines and durations. Use `now()` for times that leave the process (snapshots,
 * display), and for the date: the service counts its quotas by calendar day.
 */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { uptime } from 'node:os';

export interface Clock {
  /** The time in epoch ms. It may jump when the clock of the machine is set. */
  now(): number;
  /** The time in ms since an origin that all processes of the machine share. It never steps back. */
  monotonic(): number;
  /** Calls `fn` once, after at least `ms`. Disposing of the result cancels a call that has not happened yet. */
  after(ms: number, fn: () => void): Disposable;
}

/** When this process started, by the monotonic clock of the machine. */
const STARTED_AT = Number(process.hrtime.bigint()) / 1e6 - performance.now();
/** Node fires a timer with a longer delay immediately. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Its timers do not keep the process alive; those of `holdingClock` do, for commands that only wait for a timer. */
export const systemClock: Clock = clockWhoseTimers((timer) => timer.unref());
export const holdingClock: Clock = clockWhoseTimers((timer) => timer);

function clockWhoseTimers(armed: (timer: NodeJS.Timeout) => NodeJS.Timeout): Clock {
  return {
    now: () => Date.now(),
    monotonic: () => STARTED_AT + performance.now(),
    after(ms, fn) {
      let timer: NodeJS.Timeout;
      const arm = (leftMs: number) => {
        const longer = leftMs > MAX_TIMER_MS;
        const fire = longer ? () => arm(leftMs - MAX_TIMER_MS) : fn;
        timer = armed(setTimeout(fire, longer ? MAX_TIMER_MS : Math.max(0, Math.ceil(leftMs))));
      };
      arm(ms);
      return { [Symbol.dispose]: () => clearTimeout(timer) };
    },
  };
}

/** Resolves after `ms`, or when `signal` aborts. It never rejects, so the caller must check the signal. */
export function pause(clock: Clock, ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal?.aborted) return resolve();
    const wake = () => {
      timer[Symbol.dispose]();
      signal?.removeEventListener('abort', wake);
      resolve();
    };
    const timer = clock.after(ms, wake);
    signal?.addEventListener('abort', wake);
  });
}

/** One timer for the earliest of many exact moments. For many coarse timeouts of one kind, `Deadlines` is cheaper. */
export class EarliestTimer {
  readonly #clock: Clock;
  readonly #fn: () => void;
  /** Monotonic; infinite while the timer is not armed. Only this class writes it. */
  dueAt = Number.POSITIVE_INFINITY;
  #timer: Disposable | undefined;

  /** @param fn - handles everything that is due, if anything, then calls `armBy` for the next moment. */
  constructor(clock: Clock, fn: () => void) {
    this.#clock = clock;
    this.#fn = fn;
  }

  /**
   * Makes the timer fire at the monotonic moment `at` or earlier. A timer that is armed for an earlier moment stays: an
   * unnecessary call of `fn` costs less than arming a timer at every change.
   */
  armBy(at: number): void {
    if (at >= this.dueAt) return;
    this.disarm();
    this.dueAt = at;
    this.#timer = this.#clock.after(at - this.#clock.monotonic(), () => {
      this.disarm();
      this.#fn();
    });
  }

  disarm(): void {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    this.dueAt = Number.POSITIVE_INFINITY;
  }
}

/**
 * The time since this machine started: a clock that all processes share and that cannot be set. Use it for moments that
 * one process stores and another one compares.
 *
 * On Linux, this is CLOCK_MONOTONIC (`process.hrtime`) together with the boot id of the kernel. On other systems, each
 * process gets its own boot id, so that callers compare moments by the wall clock.
 */
export interface BootClock {
  /** Times since the boot can be compared only if their ids are equal. */
  readonly id: string;
  /** The time in ms since the boot, without the time in which the machine was suspended. */
  elapsedMs(): number;
  /** The time in ms since the boot, including suspended time. It is exact only to about 10 ms. */
  uptimeMs(): number;
}

const NANOSECONDS_IN_MS = 1e6;

export function systemBoot(): BootClock {
  return {
    id: bootId(),
    elapsedMs: () => Number(process.hrtime.bigint()) / NANOSECONDS_IN_MS,
    uptimeMs: () => uptime() * 1_000,
  };
}

function bootId(): string {
  try {
    return readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
  } catch {
    return randomUUID(); // ignored: this is not Linux. A unique id makes callers compare moments by the wall clock.
  }
}
