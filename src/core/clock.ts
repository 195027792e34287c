/**
 * The only place that reads the time or arms a timer. All other code gets a Clock.
 *
 * Use `monotonic()` for lifetimes, deadlines and durations. Use `now()` for times that leave the process (snapshots,
 * display), and for the date: the service counts its quotas by calendar day.
 */

export interface Clock {
  /** The time in epoch ms. It may jump when the clock of the machine is set. */
  now(): number;
  /** The time in ms since an arbitrary origin. It never steps back. */
  monotonic(): number;
  /** Calls `fn` once, after at least `ms`. Disposing of the result cancels a call that has not happened yet. */
  after(ms: number, fn: () => void): Disposable;
}

/** The longest delay of a Node timer, in ms. Node fires a timer with a longer delay immediately. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The clock of this machine. Its timers do not keep the process alive. */
export const systemClock: Clock = clockWhoseTimers((timer) => timer.unref());

/** A clock like `systemClock` whose timers keep the process alive, for commands that only wait for a timer. */
export const holdingClock: Clock = clockWhoseTimers((timer) => timer);

function clockWhoseTimers(armed: (timer: NodeJS.Timeout) => NodeJS.Timeout): Clock {
  return {
    now: () => Date.now(),
    monotonic: () => performance.now(),
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
