/**
 * The one place that reads the time or arms a timer. Everything else is handed a Clock.
 *
 * Units: `monotonic()` is ms from an arbitrary origin, for lifetimes, deadlines and durations; `now()` is
 * epoch ms, for what leaves the process (snapshots, display) and the service's day.
 */

export interface Clock {
  /** Epoch ms. May step either way when the machine's clock is set. */
  now(): number;
  /** Ms from an arbitrary origin; never steps back. */
  monotonic(): number;
  /** Runs `fn` once, not before `ms` have passed. Disposing it first means it never runs. */
  after(ms: number, fn: () => void): Disposable;
}

/** The longest delay a Node timer takes; a longer one would fire at once. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/** The clock of this machine. A pending timer is no reason for the process to stay alive; open sockets are. */
export const systemClock: Clock = clockWhoseTimers((timer) => timer.unref());

/** The same for a command that has nothing else to stay alive for: its timers hold the process. */
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

/** Resolves after `ms`, or earlier when `signal` aborts. Never rejects: the caller looks at its signal. */
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
