/** Least-connections and longest-lived: a heap by rank, its first is next. */
import { Heap } from '../heap.ts';
import type { Member } from '../member.ts';
import { FITS, MAX_PASSED_OVER, PATIENCE, type Query, SECOND_CHOICE } from '../member-check.ts';
import type { Rotation, Seat } from './rotation.ts';

/** A member's rank; the least is next. `turn` grows with every pick. */
export type Rank = (member: Member, turn: number) => number;

/** The member of the least rank is next. */
export class RankedRotation implements Rotation {
  readonly #heap = new Heap<Seat>();
  readonly #rank: Rank;
  #turn = 0;

  constructor(rank: Rank) {
    this.#rank = rank;
  }

  get size(): number {
    return this.#heap.size;
  }

  add(seat: Seat): void {
    this.picked(seat);
  }

  remove(seat: Seat): void {
    this.#heap.remove(seat);
  }

  picked(seat: Seat): void {
    this.#turn += 1;
    seat.round = this.#turn;
    this.changed(seat);
  }

  changed(seat: Seat): void {
    this.#heap.update(seat, this.#rank(seat.member, seat.round));
  }

  pick(query: Query): Member | undefined {
    const first = this.#heap.first;
    if (first === undefined) return undefined;
    if (query.fit(first.member) === FITS) return first.member;
    return this.#search(query)?.member;
  }

  #search(query: Query): Seat | undefined {
    let second: Seat | undefined;
    let passedOver = 0;
    const unfit: Seat[] = [];
    const found = this.#heap.leastThat((seat) => {
      const fit = query.fit(seat.member);
      if (fit === FITS) return true;
      if (fit !== SECOND_CHOICE) {
        unfit.push(seat);
        return false;
      }
      second ??= seat;
      passedOver += 1;
      return passedOver > MAX_PASSED_OVER; // ends the search here
    });
    if (found !== undefined && unfit.length > PATIENCE) for (const seat of unfit) this.picked(seat);
    return passedOver > MAX_PASSED_OVER ? second : (found ?? second);
  }
}
