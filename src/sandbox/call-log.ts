/** The calls that the service answered: counters, and the latest calls in full. */
import type { SandboxOperationName } from './operations.ts';

export interface CallRecord {
  readonly operation: SandboxOperationName;
  /** As the call names it, known or not; empty if the operation has no such parameter. */
  readonly instance: string;
  readonly method: string;
  readonly params: Readonly<Record<string, string>>;
  /** The caller's address. */
  readonly client: string;
  /** Monotonic ms by the sandbox's clock. */
  readonly arrivedAt: number;
  /** It came before the rate limit allowed it, whatever the answer was. */
  readonly early: boolean;
  /** The code of the answer, or `fault:NAME` or `body` if a rule replaced or altered it. */
  readonly outcome: string;
}

export interface CallCounts {
  readonly calls: number;
  /** Calls that came before the rate limit allowed them, whatever the answers were. */
  readonly paceBreaks: number;
  /** Calls by outcome. */
  readonly codes: Readonly<Record<string, number>>;
}

/** Of all calls, and of each instance by its id. */
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

  /** The latest 1,000, oldest first. */
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
