/** What the service was asked and what it answered: counters, and the latest calls themselves. */
import type { SandboxOperationName } from './operations.ts';

export interface CallRecord {
  readonly operation: SandboxOperationName;
  /** As the call named it, known or not; empty where the operation names none. */
  readonly instance: string;
  readonly method: string;
  readonly params: Readonly<Record<string, string>>;
  /** The caller's address. */
  readonly client: string;
  /** Monotonic ms by the sandbox's clock. */
  readonly arrivedAt: number;
  /** It came before the pace allowed it, whatever it was answered. */
  readonly early: boolean;
  /** The code, or `fault:NAME` or `body` where a rule spoiled or wrote the answer. */
  readonly outcome: string;
}

export interface CallCounts {
  readonly calls: number;
  /** Calls that came before the pace allowed them, whatever they were answered. */
  readonly paceBreaks: number;
  /** Calls by outcome. */
  readonly codes: Readonly<Record<string, number>>;
}

/** All calls, and those of each instance by its id. */
export interface SandboxStats extends CallCounts {
  readonly instances: Readonly<Record<string, CallCounts>>;
}

const KEPT_CALLS = 1000;
const NONE: CallCounts = { calls: 0, paceBreaks: 0, codes: {} };

export class CallLog {
  #latest: CallRecord[] = [];
  #all = NONE;
  readonly #instances = new Map<string, CallCounts>();

  note(record: CallRecord): void {
    this.#latest.push(record);
    if (this.#latest.length > KEPT_CALLS) this.#latest.shift();
    this.#all = counted(this.#all, record);
    if (record.instance === '') return;
    this.#instances.set(record.instance, counted(this.#instances.get(record.instance) ?? NONE, record));
  }

  /** The latest 1,000, oldest first. */
  get latest(): readonly CallRecord[] {
    return [...this.#latest];
  }

  /** What stands for an instance that was never called is zero. */
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

function counted({ calls, paceBreaks, codes }: CallCounts, { early, outcome }: CallRecord): CallCounts {
  return {
    calls: calls + 1,
    paceBreaks: paceBreaks + (early ? 1 : 0),
    codes: { ...codes, [outcome]: (codes[outcome] ?? 0) + 1 },
  };
}
