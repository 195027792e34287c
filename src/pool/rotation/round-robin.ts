/** Round-robin: a linked list in order of last use. The head is next; whoever was picked goes to the end. */
import type { Member } from '../member.ts';
import { FITS, MAX_PASSED_OVER, PATIENCE, type Query, SECOND_CHOICE } from '../member-check.ts';
import type { Rotation, Seat } from './rotation.ts';

/** Whoever was picked longest ago is next. */
export class RoundRobin implements Rotation {
  #head: Seat | undefined;
  #tail: Seat | undefined;
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add(seat: Seat): void {
    this.#size += 1;
    this.#append(seat);
  }

  remove(seat: Seat): void {
    this.#size -= 1;
    this.#unlink(seat);
  }

  picked(seat: Seat): void {
    if (seat === this.#tail) return;
    this.#unlink(seat);
    this.#append(seat);
  }

  changed(): void {} // its order is that of use, nothing else

  pick(query: Query): Member | undefined {
    let second: Member | undefined;
    let passedOver = 0;
    let steps = 0;
    for (let seat = this.#head; seat !== undefined; seat = seat.next) {
      const fit = query.fit(seat.member);
      if (fit === FITS) {
        if (steps > PATIENCE) this.#turnTo(seat);
        return seat.member;
      }
      steps += 1;
      if (fit !== SECOND_CHOICE) continue;
      second ??= seat.member;
      passedOver += 1;
      if (passedOver > MAX_PASSED_OVER) break;
    }
    return second;
  }

  /** Makes it the head: all before it, in their order, come after the tail. */
  #turnTo(seat: Seat): void {
    const { previous } = seat;
    if (previous === undefined || this.#head === undefined || this.#tail === undefined) return;
    this.#tail.next = this.#head;
    this.#head.previous = this.#tail;
    this.#tail = previous;
    previous.next = undefined;
    this.#head = seat;
    seat.previous = undefined;
  }

  #append(seat: Seat): void {
    seat.previous = this.#tail;
    seat.next = undefined;
    if (this.#tail === undefined) this.#head = seat;
    else this.#tail.next = seat;
    this.#tail = seat;
  }

  #unlink(seat: Seat): void {
    if (seat.previous === undefined) this.#head = seat.next;
    else seat.previous.next = seat.next;
    if (seat.next === undefined) this.#tail = seat.previous;
    else seat.next.previous = seat.previous;
    seat.previous = undefined;
    seat.next = undefined;
  }
}
