/** The ledger: what clients requested. Owns the recent requests, the usage and the access log. */
import { closeSync, openSync, write } from 'node:fs';
import type { EventBus } from '../core/events.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import { type RequestRecord, recordJson } from '../core/request-record.ts';
import { Usage, type UsageOptions } from './usage.ts';

export interface RequestFilter {
  /** A host, `host:port`, a parent domain or a URL. */
  readonly target?: string | undefined;
  readonly user?: string | undefined;
  readonly session?: string | undefined;
  readonly tag?: string | undefined;
  readonly member?: string | undefined;
  readonly failed?: boolean | undefined;
  /** In epoch ms. */
  readonly since?: number | undefined;
  readonly limit?: number | undefined;
}

export const MAX_REQUESTS = 10_000;

/** @throws NoriaError state-unwritable */
export async function openLedger(options: ConstructorParameters<typeof Ledger>[0]): Promise<Ledger> {
  const ledger = new Ledger(options);
  await ledger.usage.load();
  return ledger;
}

export class Ledger {
  readonly requests: RecentRequests;
  readonly usage: Usage;
  readonly #options: UsageOptions;
  #access: string;
  #accessLog: AccessLog | undefined;

  /** @param options.access - `off`, `stdout` or a path. */
  constructor(options: UsageOptions & { readonly access: string }) {
    this.#options = options;
    this.#access = options.access;
    this.#accessLog = this.#openAccessLog(); // first, because it may fail
    this.requests = new RecentRequests(options.bus);
    this.usage = new Usage(options);
  }

  /** Opens the access log again, because logrotate may have moved its file, or another one. */
  async reload(access: string): Promise<void> {
    if (access === this.#access) {
      this.#accessLog?.reopen();
      return;
    }
    const before = this.#accessLog;
    this.#accessLog = this.#openAccessLog(access);
    this.#access = access;
    await before?.close();
  }

  async close(): Promise<void> {
    this.requests.close();
    const accessLog = this.#accessLog;
    this.#accessLog = undefined; // its descriptor may soon be that of another file
    await Promise.all([this.usage.close(), accessLog?.close()]);
  }

  #openAccessLog(access = this.#access): AccessLog | undefined {
    const { bus, log } = this.#options;
    return access === 'off' ? undefined : new AccessLog(access, bus, log);
  }
}

/** The latest client requests, in memory. `noria why`, /api/requests and the page ask them. */
export class RecentRequests {
  /** A ring: `#next` is the place of the next record. */
  readonly #records: RequestRecord[] = [];
  #next = 0;
  readonly #subscription: Disposable;

  constructor(bus: EventBus) {
    this.#subscription = bus.on('request.ended', (record) => {
      this.#records[this.#next] = record;
      this.#next = (this.#next + 1) % MAX_REQUESTS;
    });
  }

  /** Newest first. */
  find(filter: RequestFilter): RequestRecord[] {
    const { limit = MAX_REQUESTS } = filter;
    const fits = matcherOf(filter);
    const found: RequestRecord[] = [];
    const count = this.#records.length;
    for (let back = 1; back <= count && found.length < limit; back += 1) {
      const record = this.#records[(this.#next - back + count) % count];
      if (record !== undefined && fits(record)) found.push(record);
    }
    return found;
  }

  close(): void {
    this.#subscription[Symbol.dispose]();
  }
}

function matcherOf({ target, user, session, tag, member, failed, since }: RequestFilter) {
  const wanted = target === undefined ? undefined : hostPortOf(target);
  return (record: RequestRecord): boolean =>
    (wanted === undefined || isAt(record.target ?? '', wanted)) &&
    (user === undefined || record.user === user) &&
    (session === undefined || record.session === session) &&
    (tag === undefined || record.tag === tag) &&
    (member === undefined || record.attempts.some((attempt) => attempt.member === member)) &&
    (failed !== true || record.outcome === 'failed') &&
    (since === undefined || record.at >= since);
}

function hostPortOf(target: string): string {
  const url = target.includes('://') ? URL.parse(target) : null;
  return (url?.host ?? target).toLowerCase();
}

function isAt(recorded: string, wanted: string): boolean {
  if (recorded === wanted) return true;
  const host = recorded.slice(0, recorded.lastIndexOf(':'));
  return host === wanted || host.endsWith(`.${wanted}`);
}

const STDOUT = 1;
/** Lines that wait for the disk beyond this size are dropped and counted: no client waits for the log. */
const MAX_PENDING_CHARACTERS = 16_777_216;
const FILE_MODE = 0o600;

/**
 * One JSON line for each client request, written when it ends. Owns the file, which it opens again on `reopen`, so that
 * logrotate can move it.
 */
class AccessLog {
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
