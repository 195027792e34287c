/**
 * The access log: one JSON line for each client request, written when it ends. Owns the file, which it opens again on
 * `reopen`, so that logrotate can move it.
 */
import { closeSync, openSync, write } from 'node:fs';
import type { EventBus } from '../core/events.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import { recordJson } from '../core/request-record.ts';

const STDOUT = 1;
/** Lines that wait for the disk beyond this size are dropped and counted: no client waits for the log. */
const MAX_PENDING_CHARACTERS = 16_777_216;
const FILE_MODE = 0o600;

export class AccessLog {
  readonly #path: string;
  readonly #log: Log;
  readonly #subscription: Disposable;
  #descriptor: number;
  #pending: string[] = [];
  #pendingCharacters = 0;
  #dropped = 0;
  #writing: Promise<void> | undefined;

  /**
   * @param path - of the file, or `stdout`.
   * @throws NoriaError state-unwritable
   */
  constructor(path: string, bus: EventBus, log: Log) {
    this.#path = path;
    this.#log = log;
    this.#descriptor = openFile(path);
    this.#subscription = bus.on('request.ended', (record) => {
      const line = `${JSON.stringify(recordJson(record))}\n`;
      if (this.#pendingCharacters + line.length > MAX_PENDING_CHARACTERS) {
        this.#dropped += 1;
        return;
      }
      this.#pending.push(line);
      this.#pendingCharacters += line.length;
      this.#writing ??= this.#write();
    });
  }

  reopen(): void {
    if (this.#path === 'stdout') return;
    try {
      const next = openFile(this.#path);
      const before = this.#descriptor;
      this.#descriptor = next;
      // a write in progress still uses the old descriptor
      void (this.#writing ?? Promise.resolve()).then(() => closeSync(before));
    } catch (error) {
      this.#log.error({ path: this.#path, error: describeError(error) }, 'access log not reopened');
    }
  }

  /** Resolves when all lines are written. */
  async close(): Promise<void> {
    this.#subscription[Symbol.dispose]();
    await this.#writing;
    if (this.#path !== 'stdout') closeSync(this.#descriptor);
  }

  async #write(): Promise<void> {
    await Promise.resolve(); // lines of the same tick become one write
    while (this.#pending.length > 0) {
      const text = this.#pending.join('');
      this.#pending = [];
      this.#pendingCharacters = 0;
      try {
        await writeAll(this.#descriptor, Buffer.from(text));
        if (this.#dropped > 0) this.#log.warn({ lines: this.#dropped }, 'access log lines dropped');
        this.#dropped = 0;
      } catch (error) {
        this.#log.error({ path: this.#path, error: describeError(error) }, 'access log not written');
      }
    }
    this.#writing = undefined;
  }
}

function openFile(path: string): number {
  if (path === 'stdout') return STDOUT;
  try {
    return openSync(path, 'a', FILE_MODE);
  } catch (cause) {
    throw new NoriaError('state-unwritable', `log.access: cannot write ${path}: ${describeError(cause)}`, {
      cause,
    });
  }
}

async function writeAll(descriptor: number, bytes: Buffer): Promise<void> {
  for (let from = 0; from < bytes.length; ) {
    from += await new Promise<number>((resolve, reject) => {
      write(descriptor, bytes, from, bytes.length - from, null, (error, written) =>
        error === null ? resolve(written) : reject(error),
      );
    });
  }
}
