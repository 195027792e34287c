/** Counts what became of the clients of a simulation, and tells the judge what it has to know of them. */
import type { Clock } from '../../core/clock.ts';
import type { Lease } from '../../pool/lease.ts';
import type { Judge } from './judge.ts';

/** How a client request ended; `killed`: with the noria that it came to. */
export type SimulatedEnding = 'served' | 'noMember' | 'membersFailed' | 'killed';

export class SimulationTally {
  readonly #clock: Clock;
  readonly #judge: Judge;
  #waiting = 0;
  #waitingSinceAt = 0;
  readonly endings: Record<SimulatedEnding, number> = { served: 0, noMember: 0, membersFailed: 0, killed: 0 };
  /** Requests that came and have not ended. */
  open = 0;
  /** Ms of each wait that ended with a member. */
  readonly waits: number[] = [];
  /** The longest time during which there was always someone waiting. */
  longestEmptyMs = 0;

  constructor(clock: Clock, judge: Judge) {
    this.#clock = clock;
    this.#judge = judge;
  }

  came(): void {
    this.open += 1;
  }

  /** It asks for a member; once for each attempt. */
  wanted(): void {
    this.#judge.wanted();
  }

  startsWaiting(): void {
    this.#judge.waiting(1);
    this.#waiting += 1;
    if (this.#waiting === 1) this.#waitingSinceAt = this.#clock.monotonic();
  }

  /** A wait has ended: with a member after `ms`, or, where `ms` is undefined, without one. */
  waited(ms: number | undefined): void {
    this.#judge.waiting(-1);
    this.#judge.wanted(); // its wish lasted until now
    this.#waiting -= 1;
    if (ms !== undefined) this.waits.push(ms);
    const emptyMs = this.#clock.monotonic() - this.#waitingSinceAt;
    if (this.#waiting === 0) this.longestEmptyMs = Math.max(this.longestEmptyMs, emptyMs);
  }

  /** A lease was given, or a tunnel starts. */
  usesMember(lease: Lease): void {
    this.#judge.usesMember(lease);
  }

  ended(ending: SimulatedEnding): void {
    this.open -= 1;
    this.endings[ending] += 1;
  }
}
