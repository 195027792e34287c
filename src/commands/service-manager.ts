/**
 * The interface to systemd. noria inherits sockets from systemd (sd_listen_fds(3)). It notifies systemd (sd_notify(3))
 * that it is ready, reloading, stopping or alive, and sends its status.
 *
 * Node cannot send to a Unix datagram socket. So noria runs systemd's program `systemd-notify` for each notification,
 * one at a time (docs/decisions/0003-notify-systemd-by-its-command.md).
 */
import { execFile } from 'node:child_process';
import type { BootClock, Clock } from '../core/clock.ts';
import { describeError } from '../core/faults.ts';
import type { Log } from '../core/log.ts';

interface ServiceManagerOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  readonly boot: BootClock;
  readonly log: Log;
  readonly status: () => string;
  readonly send?: (fields: readonly string[]) => Promise<void>;
}

const FIRST_FD = 3;
const STATUS_INTERVAL_MS = 10_000;
/** More than one, so that a single late notification does no harm. */
const BEATS_PER_INTERVAL = 3;
/** If a timer is at least this late, something has blocked the event loop, and noria logs a warning. */
const LATE_MS = 1_000;
const SEND_TIMEOUT_MS = 5_000;
/** After the drain, noria may need this time in ms to write the last snapshot and to exit. */
const STOP_MARGIN_MS = 5_000;
const US_PER_MS = 1_000;

/** If a shell or npm runs between systemd and noria, the descriptors may be other files: LISTEN_PID tells. */
export function inheritedSockets(
  env: Readonly<Record<string, string | undefined>>,
  pid: number,
): ReadonlySet<number> {
  const { LISTEN_FDS: count, LISTEN_PID: listenPid } = env;
  if (count === undefined || !/^\d{1,4}$/.test(count) || listenPid !== String(pid)) return new Set();
  return new Set(Array.from({ length: Number(count) }, (_, index) => FIRST_FD + index));
}

/** Notifies in the order of the calls. No call waits for systemd, and none throws. */
export class ServiceManager {
  readonly #options: ServiceManagerOptions;
  /** Undefined without systemd. */
  readonly #send: ((fields: readonly string[]) => Promise<void>) | undefined;
  readonly #hasWatchdog: boolean;
  readonly #intervalMs: number;
  #timer: Disposable | undefined;
  #queue: Promise<void> = Promise.resolve();
  #queuedCount = 0;
  #lastStatus: string | undefined;
  #isStatusDue = false;
  #failureLogged = false;

  constructor(options: ServiceManagerOptions) {
    this.#options = options;
    const { NOTIFY_SOCKET: socket = '', PATH: path } = options.env;
    const { send = (fields: readonly string[]) => systemdNotify(socket, fields, path) } = options;
    this.#send = socket === '' ? undefined : send;
    const watchdogMs = readWatchdogMs(options.env);
    this.#hasWatchdog = watchdogMs !== undefined;
    this.#intervalMs = watchdogMs === undefined ? STATUS_INTERVAL_MS : watchdogMs / BEATS_PER_INTERVAL;
  }

  ready(): void {
    this.#notify(['READY=1', ...this.#changedStatus()]);
    if (this.#timer === undefined && this.#send !== undefined) this.#arm();
  }

  reloading(): void {
    const monotonicUs = Math.round(this.#options.boot.elapsedMs() * US_PER_MS);
    this.#notify(['RELOADING=1', `MONOTONIC_USEC=${monotonicUs}`]);
  }

  statusChanged(): void {
    this.#isStatusDue = this.#queuedCount > 0; // if notifications are queued, the status is sent once, after them
    if (this.#isStatusDue) return;
    const fields = this.#changedStatus();
    if (fields.length > 0) this.#notify(fields);
  }

  /** @param withinMs - the maximum time until noria has stopped. After this time, systemd may kill the process. */
  stopping(withinMs: number): void {
    const extendUs = (withinMs + STOP_MARGIN_MS) * US_PER_MS;
    this.#notify(['STOPPING=1', ...this.#changedStatus(), `EXTEND_TIMEOUT_USEC=${extendUs}`]);
  }

  async close(): Promise<void> {
    this.#timer?.[Symbol.dispose]();
    this.#timer = undefined;
    await this.#queue;
  }

  /** If the event loop is blocked, the timer does not fire, and systemd's watchdog restarts noria. */
  #arm(): void {
    const { clock, log } = this.#options;
    const dueAt = clock.monotonic() + this.#intervalMs;
    this.#timer = clock.after(this.#intervalMs, () => {
      const lateMs = Math.round(clock.monotonic() - dueAt);
      if (lateMs >= LATE_MS) log.warn({ lateMs }, 'event loop was blocked');
      // if systemd is slow, skip this notification: a longer queue does not help
      if (this.#queuedCount === 0) this.#beat();
      this.#arm();
    });
  }

  #beat(): void {
    const fields = [...(this.#hasWatchdog ? ['WATCHDOG=1'] : []), ...this.#changedStatus()];
    if (fields.length > 0) this.#notify(fields);
  }

  #changedStatus(): string[] {
    const status = this.#options.status().replaceAll('\n', ' ');
    if (status === this.#lastStatus) return [];
    this.#lastStatus = status;
    return [`STATUS=${status}`];
  }

  #notify(fields: readonly string[]): void {
    const send = this.#send;
    if (send === undefined) return;
    this.#queuedCount += 1;
    this.#queue = this.#queue
      .then(() => send(fields))
      .catch((error: unknown) => this.#logFailure(error))
      .finally(() => {
        this.#queuedCount -= 1;
        if (this.#queuedCount === 0 && this.#isStatusDue) this.statusChanged();
      });
  }

  #logFailure(error: unknown): void {
    if (this.#failureLogged) return;
    this.#failureLogged = true;
    const advice =
      'systemd-notify of the systemd package must be on the PATH, and NotifyAccess=all in the unit';
    this.#options.log.warn({ error: describeError(error), advice }, 'cannot notify systemd');
  }
}

function readWatchdogMs({
  WATCHDOG_USEC: us,
  WATCHDOG_PID: pid,
}: ServiceManagerOptions['env']): number | undefined {
  if (us === undefined || !/^[1-9]\d{0,14}$/.test(us)) return undefined;
  if (pid !== undefined && pid !== String(process.pid)) return undefined;
  return Number(us) / US_PER_MS;
}

/** systemd-notify waits until systemd has read: systemd cannot find the unit of a sender that has ended. */
function systemdNotify(socket: string, fields: readonly string[], path = '/usr/bin:/bin'): Promise<void> {
  return new Promise((resolve, reject) => {
    execFile(
      'systemd-notify',
      [...fields],
      { env: { NOTIFY_SOCKET: socket, PATH: path }, timeout: SEND_TIMEOUT_MS },
      (error) => (error === null ? resolve() : reject(error)),
    );
  });
}
