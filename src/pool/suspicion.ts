/**
 * Failures of one member in a row that the target may have caused as well, such as a refusal or a closed tunnel.
 *
 * A target proves little about a member, and a client can name as many targets as it likes. So the suspicion grows with the
 * number of distinct targets, and one client alone proves nothing: its targets may serve some members and fail others.
 */
import type { SourceTotals } from './source-evidence.ts';

/** One failure. */
export interface SuspectFailure {
  /** Canonical host of the target. A target with another port is no other target. */
  readonly host: string;
  readonly client: string;
  /** Another member reached the same target. */
  readonly compared: boolean;
}

/** What else is known at the time of the failure. */
export interface Surroundings {
  /** The member succeeded recently. */
  readonly memberWorked: boolean;
  /** Any member of the source succeeded recently. */
  readonly sourceWorked: boolean;
  /** Another client succeeded through the source recently. */
  readonly otherClientsServed: boolean;
  readonly sourceTotals: Readonly<SourceTotals>;
}

/** More targets than any decision needs. */
const MAX_HOSTS = 16;
/** Targets in a row after which noria probes a member although nothing shows that other members work. */
const HOSTS_OF_A_PROBE = 8;

export class Suspicion {
  /** Host, and whether another member reached it. */
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

  /** Another member reached one of several targets. */
  get isCompared(): boolean {
    return this.#hosts.size > 1 && [...this.#hosts.values()].includes(true);
  }

  /** The member fails for several targets, and no other member works, so it is unknown which side is at fault. */
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
