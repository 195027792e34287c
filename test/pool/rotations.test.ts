/** The strategies' structures: whom they give, and at what cost, counted in members looked at so that it holds on any machine. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { seededRandom } from '../../src/core/random.ts';
import { Member } from '../../src/pool/member.ts';
import { type Fit, Query } from '../../src/pool/member-check.ts';
import { STRATEGIES, type Strategy } from '../../src/pool/options.ts';
import { type Rotation, Seat } from '../../src/pool/rotation/rotation.ts';
import { PoolSource } from '../../src/pool/source.ts';
import { makeRotation } from '../../src/pool/strategies.ts';
import { CITY } from './pool-kit.ts';

const MEMBERS = 10_000;

/** Counts the members that are looked at. */
class CountingQuery extends Query {
  looks = 0;

  override fit(member: Member): Fit {
    this.looks += 1;
    if (this.looks > MEMBERS * MEMBERS) throw new Error('the walk does not end');
    return super.fit(member);
  }
}

interface Filled {
  readonly rotation: Rotation;
  readonly seats: readonly Seat[];
}

function fill(
  strategy: Strategy,
  endsAt: (number: number) => number,
  { count = MEMBERS, seed = 3 } = {},
): Filled {
  const rotation = makeRotation(strategy, seededRandom(seed));
  const source = new PoolSource(CITY);
  const place = { text: '', folded: '' };
  const seats = Array.from({ length: count }, (_, number) => {
    const host = `10.0.${number >> 8}.${number & 255}`;
    const member = new Member({ id: `m${number}`, source, protocol: 'http', host, port: 1, place }, false, 0);
    member.endsAt = endsAt(number);
    return new Seat(member, [rotation, rotation, rotation]);
  });
  for (const seat of seats) seat.move(0);
  return { rotation, seats };
}

/** Members looked at for each of so many picks, on average. */
function looksPerPick(filled: Filled, query: CountingQuery, picks: number): number {
  const bySeat = new Map(filled.seats.map((seat) => [seat.member, seat]));
  for (let pick = 0; pick < picks; pick += 1) {
    query.restart();
    const member = filled.rotation.pick(query);
    const seat = member === undefined ? undefined : bySeat.get(member);
    if (seat === undefined) throw new Error('nobody was picked');
    filled.rotation.picked(seat);
  }
  return query.looks / picks;
}

test.each(STRATEGIES)('%s: looks at one or two of ten thousand members', (strategy) => {
  const filled = fill(strategy, () => 1_000);
  expect(filled.rotation.size).toBe(MEMBERS);
  expect(looksPerPick(filled, new CountingQuery(), 1_000)).toBeLessThanOrEqual(2);
});

test.each(STRATEGIES)('%s: does not meet the half that is unfit again and again', (strategy) => {
  const filled = fill(strategy, (number) => (number < MEMBERS / 2 ? 1_000 : 9_000));
  const query = new CountingQuery();
  query.leastEndsAt = 5_000;
  expect(looksPerPick(filled, query, 2 * MEMBERS)).toBeLessThan(20);
});

test.each(STRATEGIES)('%s: with one exit alone it looks at few', (strategy) => {
  const filled = fill(strategy, () => 1_000);
  for (const { member } of filled.seats) member.exitIp = '198.51.100.1';
  const query = new CountingQuery();
  query.lastExit = '198.51.100.1';
  expect(looksPerPick(filled, query, 1_000)).toBeLessThanOrEqual(20);
});

test.each(['round-robin', 'least-connections'] as const)(
  '%s: with one exit alone it keeps its order',
  (strategy) => {
    const { rotation, seats } = fill(strategy, () => 1_000, { count: 500 });
    for (const [number, seat] of seats.entries()) {
      seat.member.exitIp = '198.51.100.1';
      seat.member.open = (number * 37) % 500;
      rotation.changed(seat);
    }
    const query = new Query();
    query.lastExit = '198.51.100.1';
    const order = Array.from({ length: 500 }, () => {
      const member = rotation.pick(query);
      seats.find((seat) => seat.member === member)?.move(-1);
      return member;
    });
    const inTurn = seats.map(({ member }) => member);
    const byLoad = inTurn.toSorted((one, other) => one.open - other.open);
    expect(order).toEqual(strategy === 'round-robin' ? inTurn : byLoad);
  },
);

test.each(STRATEGIES)('%s: after a pick that nobody used, one that nobody fits still ends', (strategy) => {
  const { rotation, seats } = fill(strategy, (number) => number, { count: 100 });
  const query = new CountingQuery();
  query.leastEndsAt = 50;
  expect(rotation.pick(query)?.endsAt).toBeGreaterThanOrEqual(50);
  query.leastEndsAt = 1_000;
  expect(rotation.pick(query)).toBeUndefined();
  expect(rotation.size).toBe(seats.length);
});

test.each(STRATEGIES)(
  '%s: whoever joins and leaves, it gives those that are in it, and each of them',
  (strategy) => {
    const moves = fc.array(
      fc.record({ which: fc.nat({ max: 12 }), do: fc.constantFrom('move', 'pick', 'change') }),
      {
        minLength: 10,
        maxLength: 80,
      },
    );
    fc.assert(
      fc.property(moves, fc.integer(), (all, seed) => {
        const { rotation, seats } = fill(strategy, (number) => number, { count: 13, seed });
        const inside = new Set(seats);
        for (const { which, do: what } of all) {
          const seat = seats[which];
          if (seat === undefined) continue;
          if (what === 'move') {
            seat.move(inside.has(seat) ? -1 : 0);
            if (!inside.delete(seat)) inside.add(seat);
          } else if (what === 'change') {
            seat.member.open = which;
            if (inside.has(seat)) rotation.changed(seat);
          } else if (inside.has(seat)) rotation.picked(seat);
          expect(rotation.size).toBe(inside.size);
          const member = rotation.pick(new Query());
          if (inside.size === 0) expect(member).toBeUndefined();
          else expect([...inside].map((one) => one.member)).toContain(member);
        }
        // Each one that is inside can be had, when it is the only one that is not to be avoided.
        for (const seat of inside) {
          const query = new Query();
          query.avoid = seats.filter((other) => other !== seat).map(({ member }) => member.id);
          expect(rotation.pick(query)).toBe(seat.member);
        }
      }),
      { numRuns: 60 },
    );
  },
);
