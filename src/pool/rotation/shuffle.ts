/**
 * Shuffle: a random order in which nobody comes twice before all had a turn.
 *
 * A dense array in two parts: in front those that wait for their turn in this round, behind them those that had it.
 * A member that leaves and comes back within a round (its tunnels were full, say) does not get a second turn in it.
 */
import type { Random } from '../../core/random.ts';
import type { Member } from '../member.ts';
import { PATIENCE, type Query } from '../member-check.ts';
import { anyFit } from './random.ts';
import type { Rotation, Seat } from './rotation.ts';

/** Everyone has one turn a round, in random order. */
export class ShuffleRotation implements Rotation {
  readonly #seats: Seat[] = [];
  readonly #random: Random;
  /** How many in front wait for their turn. */
  #waiting = 0;
  #round = 0;

  constructor(random: Random) {
    this.#random = random;
  }

  get size(): number {
    return this.#seats.length;
  }

  add(seat: Seat): void {
    this.#put(seat, this.#seats.length);
    if (seat.round === this.#round) return;
    this.#swap(seat, this.#waiting);
    this.#waiting += 1;
  }

  remove(seat: Seat): void {
    if (seat.place < this.#waiting) {
      this.#waiting -= 1;
      this.#swap(seat, this.#waiting);
    }
    this.#swap(seat, this.#seats.length - 1);
    this.#seats.pop();
  }

  picked(seat: Seat): void {
    if (this.#waiting === 0) this.#startRound();
    if (seat.place >= this.#waiting) return; // all that wait are unfit for this client: it had a second turn
    seat.round = this.#round;
    this.#waiting -= 1;
    this.#swap(seat, this.#waiting);
  }

  changed(): void {} // chance alone decides

  pick(query: Query): Member | undefined {
    if (this.#waiting === 0) this.#startRound();
    const waiting = this.#waiting;
    const next = anyFit(this.#seats, 0, waiting, query, this.#random);
    if (next !== undefined) return next;
    const second = anyFit(this.#seats, waiting, this.#seats.length, query, this.#random);
    if (second !== undefined && waiting > PATIENCE) this.#waiting = 0; // none of those in front fits: the round is over
    return second;
  }

  #startRound(): void {
    this.#round += 1;
    this.#waiting = this.#seats.length;
  }

  #swap(seat: Seat, place: number): void {
    const other = this.#seats[place];
    if (other === undefined || other === seat) return;
    this.#put(other, seat.place);
    this.#put(seat, place);
  }

  #put(seat: Seat, place: number): void {
    this.#seats[place] = seat;
    seat.place = place;
  }
}
