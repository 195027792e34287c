/**
 * Blocks a source when several of its members have refused its credentials, so that no more members are wasted. Tries a
 * blocked source again at intervals, because the service may accept new credentials later.
 */
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { SourceFault } from '../dialer/source-memory.ts';
import type { Pool } from '../pool/pool.ts';

const RETRY_MS = 60_000;

export class SourceFaults {
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #pool: Pick<Pool, 'blockSource'>;
  readonly #resetRefusals: (source: string) => void;
  /** `retry` unblocks the source after RETRY_MS; it is absent while noria tries the source again. */
  readonly #known = new Map<
    string,
    Pick<SourceFault, 'reason' | 'advice'> & { readonly retry: Disposable | undefined }
  >();

  constructor(
    clock: Clock,
    log: Log,
    pool: Pick<Pool, 'blockSource'>,
    resetRefusals: (source: string) => void,
  ) {
    this.#clock = clock;
    this.#log = log;
    this.#pool = pool;
    this.#resetRefusals = resetRefusals;
  }

  of(source: string): Pick<SourceFault, 'reason' | 'advice'> | undefined {
    return this.#known.get(source);
  }

  /** The dialer has found that members refuse the credentials of the source, or accept them again. */
  update({ source, active, reason, advice }: SourceFault): void {
    const before = this.#known.get(source);
    before?.retry?.[Symbol.dispose]();
    if (!active) {
      this.#known.delete(source);
      this.#pool.blockSource(source, undefined);
      this.#log.info({ source }, 'members accepted the credentials of their source again');
      return;
    }
    const retry = this.#clock.after(RETRY_MS, () => this.tryAgain(source));
    this.#known.set(source, { reason, advice, retry });
    this.#pool.blockSource(source, reason);
    if (before === undefined)
      this.#log.error({ source, reason, advice }, 'members refused the credentials of their source');
  }

  tryAgain(source: string): void {
    const fault = this.#known.get(source);
    if (fault === undefined) return;
    fault.retry?.[Symbol.dispose]();
    this.#known.set(source, { ...fault, retry: undefined });
    this.#resetRefusals(source);
    this.#pool.blockSource(source, undefined);
  }

  /** Tries all sources again, because a reload may have corrected their credentials. */
  tryAllAgain(): void {
    for (const source of [...this.#known.keys()]) this.tryAgain(source);
    this.#known.clear();
  }

  close(): void {
    for (const { retry } of this.#known.values()) retry?.[Symbol.dispose]();
    this.#known.clear();
  }
}
