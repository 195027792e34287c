/**
 * What systemd is told of this process (sd_notify(3)): ready, reloading, stopping, how it is, and that its event loop turns.
 *
 * Node cannot send to a Unix datagram socket, so each message goes through systemd's own `systemd-notify`, one after the
 * other; docs/decisions/0003-tell-systemd-by-its-own-command.md says why.
 */
import { execFile } from 'node:child_process';
import type { BootClock } from '../core/boot.ts';
import type { Clock } from '../core/clock.ts';
import { describeError } from '../core/faults.ts';
import type { Log } from '../core/log.ts';

export interface ServiceManagerOptions {
  /** NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are read. */
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly clock: Clock;
  readonly boot: BootClock;
  readonly log: Log;
  /** One sentence for `systemctl status`. */
  readonly status: () => string;
  /** Sends `NAME=value` lines. Absent: by systemd-notify. */
  readonly send?: (fields: readonly string[]) => Promise<void>;
}

/** Each verb is told in the order of the calls; none waits, none throws: noria works without being heard. */
export interface ServiceManager {
  ready(): void;
  reloading(): void;
  /** @param withinMs - how long the end may take: systemd does not kill before. */
  stopping(withinMs: number): void;
  /** Resolves when everything has been told, or given up. Safe to call twice. */
  close(): Promise<void>;
}

/** How often the status is refreshed where no watchdog sets the beat. */
const STATUS_INTERVAL_MS = 10_000;
/** Beats in one interval of the watchdog: one may be lost. */
const BEATS = 3;
/** A beat that comes so late is worth a word: something held the event loop up. */
const LATE_MS = 1_000;
/** A systemd that does not take a message for so long is not waited for. */
const SEND_TIMEOUT_MS = 5_000;
/** Beyond what noria itself allows: the last snapshot, the exit. */
const STOP_SLACK_MS = 5_000;
const US_PER_MS = 1_000;

/** What speaks to the service manager that started this process; where none did, what says nothing. */
export function openServiceManager(options: ServiceManagerOptions): ServiceManager {
  const { NOTIFY_SOCKET: socket } = options.env;
  if (socket === undefined || socket === '') return NOBODY;
  return new Systemd(
    options,
    options.send ?? ((fields) => systemdNotify(socket, fields, options.env['PATH'])),
  );
}

const NOBODY: ServiceManager = { ready() {}, reloading() {}, stopping() {}, close: async () => {} };

class Systemd implements ServiceManager {
  readonly #options: ServiceManagerOptions;
  readonly #send: (fields: readonly string[]) => Promise<void>;
  readonly #watched: boolean;
  readonly #intervalMs: number;
  #beat: Disposable | undefined;
  #sent: Promise<void> = Promise.resolve();
  #pending = 0;
  #toldStatus: string | undefined;
  #toldOfFailure = false;

  constructor(options: ServiceManagerOptions, send: (fields: readonly string[]) => Promise<void>) {
    this.#options = options;
    this.#send = send;
    const watchdogMs = watchdogOf(options.env);
    this.#watched = watchdogMs !== undefined;
    this.#intervalMs = watchdogMs === undefined ? STATUS_INTERVAL_MS : watchdogMs / BEATS;
  }

  ready(): void {
    this.#tell(['READY=1', ...this.#freshStatus()]);
    if (this.#beat === undefined) this.#arm();
  }

  reloading(): void {
    const monotonicUs = Math.round(this.#options.boot.elapsedMs() * US_PER_MS);
    this.#tell(['RELOADING=1', `MONOTONIC_USEC=${monotonicUs}`]);
  }

  stopping(withinMs: number): void {
    const extendUs = (withinMs + STOP_SLACK_MS) * US_PER_MS;
    this.#tell(['STOPPING=1', ...this.#freshStatus(), `EXTEND_TIMEOUT_USEC=${extendUs}`]);
  }

  async close(): Promise<void> {
    this.#beat?.[Symbol.dispose]();
    this.#beat = undefined;
    await this.#sent;
  }

  /** A timer of the event loop itself: when that does not turn, no beat goes out and systemd starts noria anew. */
  #arm(): void {
    const { clock, log } = this.#options;
    const dueAt = clock.monotonic() + this.#intervalMs;
    this.#beat = clock.after(this.#intervalMs, () => {
      const lateMs = Math.round(clock.monotonic() - dueAt);
      if (lateMs >= LATE_MS) log.warn({ lateMs }, 'event loop was held up');
      if (this.#pending === 0) this.#tellBeat(); // else systemd is slow, and more would only queue up behind
      this.#arm();
    });
  }

  #tellBeat(): void {
    const fields = [...(this.#watched ? ['WATCHDOG=1'] : []), ...this.#freshStatus()];
    if (fields.length > 0) this.#tell(fields);
  }

  /** The status line, where it differs from the last one told. */
  #freshStatus(): string[] {
    const status = this.#options.status().replaceAll('\n', ' ');
    if (status === this.#toldStatus) return [];
    this.#toldStatus = status;
    return [`STATUS=${status}`];
  }

  #tell(fields: readonly string[]): void {
    this.#pending += 1;
    this.#sent = this.#sent
      .then(() => this.#send(fields))
      .catch((error: unknown) => this.#failed(error))
      .finally(() => {
        this.#pending -= 1;
      });
  }

  /** Once: without a watchdog noria works on unheard; with one, systemd says what follows. */
  #failed(error: unknown): void {
    if (this.#toldOfFailure) return;
    this.#toldOfFailure = true;
    const advice =
      'systemd-notify of the systemd package must be on the PATH, and NotifyAccess=all in the unit';
    this.#options.log.warn({ error: describeError(error), advice }, 'systemd cannot be told');
  }
}

/** How long systemd waits for a beat; undefined where it does not, or where another process is meant. */
function watchdogOf({
  WATCHDOG_USEC: us,
  WATCHDOG_PID: pid,
}: ServiceManagerOptions['env']): number | undefined {
  if (us === undefined || !/^[1-9]\d{0,14}$/.test(us)) return undefined;
  if (pid !== undefined && pid !== String(process.pid)) return undefined;
  return Number(us) / US_PER_MS;
}

/** Waits until systemd has taken the message: the sender has to live until then for systemd to know whose it is. */
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
