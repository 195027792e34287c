/**
 * Limits the log lines about refused clients. Without a limit, a client that retries again and again would fill the
 * disk.
 *
 * Each client has a window of time. The log gets one line for each of the first refusals in the window. At the end of
 * the window, one more line states the number of further refusals.
 */
import { BoundedMap } from './bounded-map.ts';
import type { Clock } from './clock.ts';
import type { NoriaEvents } from './events.ts';
import type { FaultCode } from './faults.ts';

type Refusal = NoriaEvents['client.refused'];

/** The refusals of one client in one window that got no separate log line. */
interface RefusalSummary {
  readonly client: string;
  readonly count: number;
  readonly codes: Readonly<Partial<Record<FaultCode, number>>>;
  readonly ms: number;
}

const MAX_LOGGED_REFUSALS = 5;
const REFUSAL_WINDOW_MS = 10_000;
/** The maximum number of clients that have their own window. All further clients share one window. */
const MAX_CLIENTS = 200;
const OTHER_CLIENTS = 'others';

interface Window {
  readonly endsAt: number;
  logged: number;
  count: number;
  readonly codes: Partial<Record<FaultCode, number>>;
}

interface RefusalLogOptions {
  readonly clock: Clock;
  readonly onSummary: (summary: RefusalSummary) => void;
}

export class RefusalLog implements Disposable {
  readonly #options: RefusalLogOptions;
  /**
   * The windows that have not ended, oldest first. All windows have the same length, so the oldest ends first.
   */
  readonly #windows = new BoundedMap<string, Window>(MAX_CLIENTS + 1);
  #timer: Disposable | undefined;

  constructor(options: RefusalLogOptions) {
    this.#options = options;
  }

  /**
   * Counts a refusal.
   *
   * @returns whether to log the refusal now. If not, the summary counts it.
   */
  admit({ client, code }: Pick<Refusal, 'client' | 'code'>): boolean {
    const window = this.#windowOf(client);
    if (window.logged < MAX_LOGGED_REFUSALS) {
      window.logged += 1;
      return true;
    }
    window.count += 1;
    window.codes[code] = (window.codes[code] ?? 0) + 1;
    return false;
  }

  /** Reports the summaries of all open windows, as if the windows ended now. */
  [Symbol.dispose](): void {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    this.#closeWindows(Number.POSITIVE_INFINITY);
  }

  #windowOf(client: string): Window {
    const isOther = !this.#windows.has(client) && this.#windows.size >= MAX_CLIENTS;
    const name = isOther ? OTHER_CLIENTS : client;
    const open = this.#windows.get(name);
    if (open !== undefined) return open;
    const endsAt = this.#options.clock.monotonic() + REFUSAL_WINDOW_MS;
    const window: Window = { endsAt, logged: 0, count: 0, codes: {} };
    this.#windows.set(name, window);
    this.#timer ??= this.#options.clock.after(REFUSAL_WINDOW_MS, () => this.#onTimer());
    return window;
  }

  #onTimer(): void {
    this.#timer = undefined;
    const now = this.#options.clock.monotonic();
    this.#closeWindows(now);
    const [next] = this.#windows.values();
    if (next !== undefined) this.#timer = this.#options.clock.after(next.endsAt - now, () => this.#onTimer());
  }

  #closeWindows(now: number): void {
    for (const [client, { endsAt, count, codes }] of this.#windows) {
      if (endsAt > now) return;
      this.#windows.delete(client);
      if (count > 0) this.#options.onSummary({ client, count, codes, ms: REFUSAL_WINDOW_MS });
    }
  }
}
