/** Random and fastest: a dense array in no order. Random takes any; fastest takes the faster of two. */
import { type Random, randomBelow } from '../../core/random.ts';
import type { Member } from '../member.ts';
import { FITS, MAX_PASSED_OVER, type Query, SECOND_CHOICE } from '../member-check.ts';
import type { Rotation, Seat } from './rotation.ts';

/** How often a random place is tried before all are walked through. */
const RANDOM_TRIES = 8;
/** Steps of the walk: prime, so that every place is visited once, and large, so that unfit neighbours are not met in a row. */
const STRIDES = [7_919, 104_729] as const;

/** Any member is next; or, where speed is preferred, the faster of any two. */
export class RandomRotation implements Rotation {
  readonly #seats: Seat[] = [];
  readonly #random: Random;
  readonly #prefersFast: boolean;

  /** @param prefersFast - whether the faster of two random members is taken, or simply one. */
  constructor(random: Random, prefersFast: boolean) {
    this.#random = random;
    this.#prefersFast = prefersFast;
  }

  get size(): number {
    return this.#seats.length;
  }

  add(seat: Seat): void {
    seat.place = this.#seats.length;
    this.#seats.push(seat);
  }

  remove(seat: Seat): void {
    const last = this.#seats.pop();
    if (last === undefined || last === seat) return;
    this.#seats[seat.place] = last;
    last.place = seat.place;
  }

  picked(): void {} // no turn to keep

  changed(): void {} // compared afresh at every pick

  pick(query: Query): Member | undefined {
    const count = this.#seats.length;
    const one = anyFit(this.#seats, 0, count, query, this.#random);
    if (one === undefined || count < 2 || !this.#prefersFast) return one;
    const other = anyFit(this.#seats, 0, count, query, this.#random);
    if (other === undefined || other === one) return one;
    return expectedMs(other, query.now) < expectedMs(one, query.now) ? other : one;
  }
}

/**
 * Any member among the seats from `from` up to but not including `to`; one that is a second choice only if no other is
 * found soon. Where a share of p fits it looks at about 1/p of them.
 */
export function anyFit(
  seats: readonly Seat[],
  from: number,
  to: number,
  query: Query,
  random: Random,
): Member | undefined {
  const count = to - from;
  const start = randomBelow(random, count);
  const stride = count % STRIDES[0] === 0 ? STRIDES[1] : STRIDES[0];
  const tries = Math.min(RANDOM_TRIES, count);
  let second: Member | undefined;
  let passedOver = 0;
  for (let step = 0; step < tries + count; step += 1) {
    const place = step < tries ? randomBelow(random, count) : (start + step * stride) % count;
    const member = seats[from + place]?.member;
    if (member === undefined) break;
    const fit = query.fit(member);
    if (fit === FITS) return member;
    if (fit !== SECOND_CHOICE) continue;
    second ??= member;
    // Of a few, chance may come to the same ones again and again: those are all walked through.
    if (step >= tries || count > MAX_PASSED_OVER) passedOver += 1;
    if (passedOver > MAX_PASSED_OVER) break;
  }
  return second;
}

function expectedMs(member: Member, now: number): number {
  return member.expectedLatencyMs(now, member.source.typicalMs);
}
