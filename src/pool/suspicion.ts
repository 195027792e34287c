/**
 * Failures of one member in a row that the target may have caused, such as a refusal or a closed tunnel. One target proves little
 * about a member, and a client can request as many targets as it likes. Suspicion therefore grows with the number of distinct
 * targets, and one client alone proves nothing: the targets may accept some members and refuse others.
 */
import type { SourceTotals } from './source-evidence.ts';

export interface SuspectFailure {
  /** Canonical host of the target. The port does not matter: two ports of a host count as one target. */
  readonly host: string;
  readonly client: string;
  /** Whether another member reached the same target. */
  readonly compared: boolean;
}

export interface Surroundings {
  /** Whether the member succeeded recently. */
  readonly memberWorked: boolean;
  /** Whether any member of the source succeeded recently. */
  readonly sourceWorked: boolean;
  /** Whether a target recently answered another client through the source. */
  readonly otherClientsServed: boolean;
  readonly sourceTotals: Readonly<SourceTotals>;
}

/** Maximum number of targets to remember. No decision needs more. */
const MAX_HOSTS = 16;
/** Number of targets for which a member must fail before noria probes it although no other member is known to work. */
const HOSTS_OF_A_PROBE = 8;

export class Suspicion {
  /** Keyed by host: whether another member reached it. */
  readonly #hosts = new Map<string, boolean>();
  readonly #clients = new Set<string>();
  #totalsAtStart: Pick<SourceTotals, 'successes' | 'failures'> = { successes: 0, failures: 0 };
  #independent = false;
  #sourceWorked = true;
  #counted = 0;

  /** Number of distinct targets that count as faults of the member. */
  get counted(): number {
    return this.#counted;
  }

  /** Whether several clients failed through the member. */
  get isShared(): boolean {
    return this.#clients.size > 1;
  }

  /** Whether the member failed for several targets and another member reached at least one of them. */
  get isCompared(): boolean {
    return this.#hosts.size > 1 && [...this.#hosts.values()].includes(true);
  }

  /**
   * Whether the member fails for many targets while no member of its source works. Such failures do not show whether the member
   * or the targets are at fault.
   */
  get isUndecided(): boolean {
    return this.#independent && !this.#sourceWorked && this.#hosts.size >= HOSTS_OF_A_PROBE;
  }

  add({ host, client, compared }: SuspectFailure, surroundings: Surroundings): void {
    const { memberWorked, otherClientsServed, sourceTotals } = surroundings;
    this.#sourceWorked = surroundings.sourceWorked;
    if (this.#hosts.size === 0) this.#totalsAtStart = { ...sourceTotals };
    if (this.#hosts.size < MAX_HOSTS || this.#hosts.has(host)) {
      this.#hosts.set(host, compared || this.#hosts.get(host) === true);
      this.#clients.add(client);
    }
    const successes = sourceTotals.successes - this.#totalsAtStart.successes;
    const failures = sourceTotals.failures - this.#totalsAtStart.failures;
    const isCompared = [...this.#hosts.values()].includes(true);
    this.#independent = this.#clients.size > 1 || !otherClientsServed;
    if (!this.#independent || !(isCompared || successes > failures)) this.#counted = 0;
    else this.#counted = this.#hosts.size - (isCompared && !memberWorked ? 0 : 1);
  }

  clear(): void {
    if (this.#hosts.size === 0) return;
    this.#hosts.clear();
    this.#clients.clear();
    this.#counted = 0;
  }
}
