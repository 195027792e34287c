/**
 * Sources whose credentials several members refused: set aside as a whole, so that no further member is burnt, told once,
 * and tried again from time to time, since what was wrong may have been put right at the service.
 */
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { SourceFault } from '../dialer/credentials.ts';

export interface SourceFaultsOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** None of the source's members is picked, for this reason, until it is called with none. */
  readonly block: (source: string, reason: string | undefined) => void;
  /** The dialer counts refusals of this source from none again. */
  readonly forgive: (source: string) => void;
}

/** What stands in the status of such a source. */
export interface KnownFault {
  readonly reason: string;
  readonly advice: string;
}

/** How long such a source is left alone before its members are tried again. */
const TRIED_AGAIN_AFTER_MS = 60_000;

interface Faulty extends KnownFault {
  /** Armed while the source is set aside; none while it is being tried again. */
  readonly retry: Disposable | undefined;
}

export class SourceFaults {
  readonly #options: SourceFaultsOptions;
  readonly #faulty = new Map<string, Faulty>();

  constructor(options: SourceFaultsOptions) {
    this.#options = options;
  }

  /** What is wrong with the source, also while it is being tried again; undefined when nothing is known. */
  of(source: string): KnownFault | undefined {
    return this.#faulty.get(source);
  }

  /** The dialer found the source at fault, or found that it is no longer. */
  tell({ source, active, reason, advice }: SourceFault): void {
    const { clock, log, block } = this.#options;
    const before = this.#faulty.get(source);
    before?.retry?.[Symbol.dispose]();
    if (!active) {
      this.#faulty.delete(source);
      block(source, undefined);
      log.info({ source }, 'source accepted by its members again');
      return;
    }
    const retry = clock.after(TRIED_AGAIN_AFTER_MS, () => this.tryAgain(source));
    this.#faulty.set(source, { reason, advice, retry });
    block(source, reason);
    if (before === undefined) log.error({ source, reason, advice }, 'source refused by its members');
  }

  /** Lets clients try its members now: a resume, a changed configuration, or time enough. */
  tryAgain(source: string): void {
    const fault = this.#faulty.get(source);
    if (fault === undefined) return;
    fault.retry?.[Symbol.dispose]();
    this.#faulty.set(source, { ...fault, retry: undefined });
    this.#options.forgive(source);
    this.#options.block(source, undefined);
  }

  /** A configuration took over: nothing that was known holds any more. */
  forget(): void {
    for (const source of [...this.#faulty.keys()]) this.tryAgain(source);
    this.#faulty.clear();
  }

  /** Stops every timer. */
  close(): void {
    for (const { retry } of this.#faulty.values()) retry?.[Symbol.dispose]();
    this.#faulty.clear();
  }
}
