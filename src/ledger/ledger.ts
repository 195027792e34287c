/** The ledger: what clients requested. Owns the recent requests, the usage and the access log. */
import type { EventBus } from '../core/events.ts';
import type { RequestRecord } from '../core/request-record.ts';
import { AccessLog } from './access-log.ts';
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

interface LedgerOptions extends UsageOptions {
  /** `off`, `stdout` or a path. */
  readonly access: string;
}

/** @throws NoriaError state-unwritable */
export async function openLedger(options: LedgerOptions): Promise<Ledger> {
  const ledger = new Ledger(options);
  await ledger.usage.load();
  return ledger;
}

export class Ledger {
  readonly requests: RecentRequests;
  readonly usage: Usage;
  readonly #options: LedgerOptions;
  #access: string;
  #accessLog: AccessLog | undefined;

  constructor(options: LedgerOptions) {
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
    await Promise.all([this.usage.close(), this.#accessLog?.close()]);
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
