/** The calls that the service answered: counters, and the latest calls in full. */
import type { SandboxOperationName } from './operations.ts';

export interface CallRecord {
  readonly operation: SandboxOperationName;
  /** The id that the call names, known or not; empty if the operation has no such parameter. */
  readonly instance: string;
  readonly method: string;
  readonly params: Readonly<Record<string, string>>;
  /** The caller's address. */
  readonly client: string;
  /** When the call arrived, in monotonic ms of the sandbox's clock. */
  readonly arrivedAt: number;
  /** True if the call came before the rate limit allowed it, whatever the answer was. */
  readonly early: boolean;
  /** The code of the answer; `fault:NAME` or `body` if a rule replaced or altered the answer. */
  readonly outcome: string;
}

export interface CallCounts {
  readonly calls: number;
  /** The number of calls that came before the rate limit allowed them. */
  readonly paceBreaks: number;
  /** The number of calls by outcome. */
  readonly codes: Readonly<Record<string, number>>;
}

/** The counts of all calls, and of each instance by its id. */
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

  /** The latest 1,000 calls, oldest first. */
  get latest(): readonly CallRecord[] {
    return [...this.#latest];
  }

  /** @param instances - ids that are listed even if they were never called. */
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
