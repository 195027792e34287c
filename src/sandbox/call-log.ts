/** Counts the calls to the service, and keeps the latest ones. */
import type { SandboxOperationName } from './operations.ts';

export interface CallRecord {
  readonly operation: SandboxOperationName;
  /** The instance id in the call, even if there is no such instance; empty if the call contains none. */
  readonly instance: string;
  readonly method: string;
  readonly params: Readonly<Record<string, string>>;
  readonly client: string;
  /** The moment at which the call arrived, by the sandbox's monotonic clock, in ms. */
  readonly arrivedAt: number;
  /**
   * Whether the call came too early for the rate limit. The service does not always answer such a call with 12002 (rate
   * limit): a rule of the scenario or another check may come first.
   */
  readonly early: boolean;
  /**
   * The code of the answer. If a rule with a fault answered the call, this is `fault:NAME`; if a rule with a body did,
   * `body`.
   */
  readonly outcome: string;
}

interface CallCounts {
  readonly calls: number;
  readonly paceBreaks: number;
  /** The number of calls by `outcome`. */
  readonly codes: Readonly<Record<string, number>>;
}

/** The counts of all calls together, and of each instance by id. */
export interface SandboxStats extends CallCounts {
  readonly instances: Readonly<Record<string, CallCounts>>;
}

const KEPT_CALLS = 1000;
const NONE: CallCounts = { calls: 0, paceBreaks: 0, codes: {} };

export class CallLog {
  #latest: CallRecord[] = [];
  #all = NONE;
  readonly #instances = new Map<string, CallCounts>();

  add(record: CallRecord): void {
    this.#latest.push(record);
    if (this.#latest.length > KEPT_CALLS) this.#latest.shift();
    this.#all = count(this.#all, record);
    if (record.instance === '') return;
    this.#instances.set(record.instance, count(this.#instances.get(record.instance) ?? NONE, record));
  }

  get latest(): readonly CallRecord[] {
    return [...this.#latest];
  }

  /** @param instances - the ids to list even if they had no calls. */
  stats(instances: readonly string[]): SandboxStats {
    const counts = new Map([...instances.map((id) => [id, NONE] as const), ...this.#instances]);
    return { ...this.#all, instances: Object.fromEntries(counts) };
  }

  reset(): void {
    this.#latest = [];
    this.#all = NONE;
    this.#instances.clear();
  }
}

function count({ calls, paceBreaks, codes }: CallCounts, { early, outcome }: CallRecord): CallCounts {
  return {
    calls: calls + 1,
    paceBreaks: paceBreaks + (early ? 1 : 0),
    codes: { ...codes, [outcome]: (codes[outcome] ?? 0) + 1 },
  };
}
