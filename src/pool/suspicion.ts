/**
 * Failures of one member in a row that the target may have caused, such as a refusal or a closed tunnel. One target proves little
 * about a member, and a client can request as many targets as it likes. Suspicion therefore grows with the number of distinct
 * targets, and one client alone proves nothing: its targets may serve some members and refuse others.
 */
import type { SourceTotals } from './source-evidence.ts';

/** One failure. */
export interface SuspectFailure {
  /** Canonical host of the target. The port does not matter: two ports of a host count as one target. */
  readonly host: string;
  readonly client: string;
  /** Another member reached the same target. */
  readonly compared: boolean;
}

/** Other evidence at the time of the failure. */
export interface Surroundings {
  /** The member succeeded recently. */
  readonly memberWorked: boolean;
  /** Any member of the source succeeded recently. */
  readonly sourceWorked: boolean;
  /** Another client succeeded through the source recently. */
  readonly otherClientsServed: boolean;
  readonly sourceTotals: Readonly<SourceTotals>;
}

/** Targets to remember: more than any decision needs. */
const MAX_HOSTS = 16;
/** After failures for this many targets in a row, noria probes a member, even if no other member is known to work. */
const HOSTS_OF_A_PROBE = 8;

export class Suspicion {
  /** Whether another member reached the host, by host. */
  readonly #hosts = new Map<string, boolean>();
  readonly #clients = new Set<string>();
  #totalsAtStart: Pick<SourceTotals, 'successes' | 'failures'> = { successes: 0, failures: 0 };
  #independent = false;
  #sourceWorked = true;
  #counted = 0;

  /** Distinct targets that count as faults of the member. */
  get counted(): number {
    return this.#counted;
  }

  /** Several clients failed through the member. */
  get isShared(): boolean {
    return this.#clients.size > 1;
  }

  /** For at least one of several targets, another member reached it. */
  get isCompared(): boolean {
    return this.#hosts.size > 1 && [...this.#hosts.values()].includes(true);
  }

  /**
   * The member fails for several targets and no other member works. This does not show whether the member or the targets are at
   * fault.
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
