/** Counts the calls to the service, and keeps the latest calls. */
import type { SandboxOperationName } from './operations.ts';

export interface CallRecord {
  readonly operation: SandboxOperationName;
  /**
   * The instance id in the call, even if no instance has this id; empty if the operation has no parameter for an
   * instance.
   */
  readonly instance: string;
  readonly method: string;
  readonly params: Readonly<Record<string, string>>;
  readonly client: string;
  /** When the call arrived, by the sandbox's monotonic clock in ms. */
  readonly arrivedAt: number;
  /**
   * Whether the call broke the rate limit. The answer need not be 12002 (rate limit): a rule of the scenario or an
   * earlier check may have decided the answer.
   */
  readonly early: boolean;
  /** The code of the answer; `fault:NAME` or `body` if a rule replaced or altered the answer. */
  readonly outcome: string;
}

interface CallCounts {
  readonly calls: number;
  readonly paceBreaks: number;
  /** The number of calls for each `outcome`. */
  readonly codes: Readonly<Record<string, number>>;
}

/** The counts over all calls, and for each instance by id. */
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

  /** @param instances - ids to list even if they have never been called. */
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
