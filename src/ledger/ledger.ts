/** The ledger: what clients requested. Owns the recent requests, the usage and the access log. */
import { AccessLog } from './access-log.ts';
import { RecentRequests } from './recent-requests.ts';
import { Usage, type UsageOptions } from './usage.ts';

interface LedgerOptions extends UsageOptions {
  /** `off`, `stdout` or a path. */
  readonly access: string;
}

/** @throws NoriaError state-unwritable */
export async function openLedger(options: LedgerOptions): Promise<Ledger> {
  const { access, bus, log } = options;
  const accessLog = access === 'off' ? undefined : new AccessLog(access, bus, log);
  const ledger = new Ledger(options, accessLog);
  await ledger.usage.load();
  return ledger;
}

export class Ledger {
  readonly requests: RecentRequests;
  readonly usage: Usage;
  readonly #options: LedgerOptions;
  #access: string;
  #accessLog: AccessLog | undefined;

  constructor(options: LedgerOptions, accessLog: AccessLog | undefined) {
    this.#options = options;
    this.#access = options.access;
    this.#accessLog = accessLog;
    this.requests = new RecentRequests(options.bus);
    this.usage = new Usage(options);
  }

  /** Opens the access log again, because logrotate may have moved its file, or another one. */
  async reload(access: string): Promise<void> {
    if (access === this.#access) {
      this.#accessLog?.reopen();
      return;
    }
    const { bus, log } = this.#options;
    const before = this.#accessLog;
    this.#accessLog = access === 'off' ? undefined : new AccessLog(access, bus, log);
    this.#access = access;
    await before?.close();
  }

  async close(): Promise<void> {
    this.requests.close();
    await Promise.all([this.usage.close(), this.#accessLog?.close()]);
  }
}
