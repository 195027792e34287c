/** What a pick costs: counted in members looked at, so that it holds on any machine. */
import { expect, test } from 'vitest';
import { Member } from '../../src/pool/member.ts';
import { STRATEGIES, type Strategy } from '../../src/pool/options.ts';
import { type Fit, Query } from '../../src/pool/query.ts';
import { type Rotation, Seat } from '../../src/pool/seat.ts';
import { Source } from '../../src/pool/source.ts';
import { makeRotation } from '../../src/pool/strategies.ts';
import { CITY, seededRandom } from './pool-kit.ts';

const MEMBERS = 10_000;

/** Counts the members that are looked at. */
class CountingQuery extends Query {
  looks = 0;

  override fit(member: Member): Fit {
    this.looks += 1;
    return super.fit(member);
  }
}

function fill(strategy: Strategy, endsAt: (number: number) => number): { rotation: Rotation; seats: Seat[] } {
  const rotation = makeRotation(strategy, seededRandom(3));
  const source = new Source(CITY);
  const place = { text: '', folded: '' };
  const seats = Array.from({ length: MEMBERS }, (_, number) => {
    const host = `10.0.${number >> 8}.${number & 255}`;
    const member = new Member({ id: `m${number}`, source, protocol: 'http', host, port: 1, place }, false, 0);
    member.endsAt = endsAt(number);
    return new Seat(member, [rotation, rotation, rotation]);
  });
  for (const seat of seats) seat.move(0);
  return { rotation, seats };
}

/** Members looked at for each of so many picks, on average. */
function looksPerPick(filled: ReturnType<typeof fill>, query: CountingQuery, picks: number): number {
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

test.each(STRATEGIES)('%s: with one exit alone it looks at few, and keeps its order', (strategy) => {
  const filled = fill(strategy, () => 1_000);
  for (const { member } of filled.seats) member.exitIp = '198.51.100.1';
  const query = new CountingQuery();
  query.lastExit = '198.51.100.1';
  expect(looksPerPick(filled, query, 1_000)).toBeLessThanOrEqual(20);
});

test.each(['round-robin', 'least-connections'] as const)(
  '%s: one exit alone is no reason to pass over the next',
  (strategy) => {
    const { rotation, seats } = fill(strategy, () => 1_000);
    for (const { member } of seats) member.exitIp = '198.51.100.1';
    const query = new Query();
    query.lastExit = '198.51.100.1';
    const picked = new Set<Member>();
    for (let pick = 0; pick < MEMBERS; pick += 1) {
      const member = rotation.pick(query);
      const seat = seats.find((one) => one.member === member && !picked.has(one.member));
      if (member === undefined || seat === undefined) throw new Error(`pick ${pick} came twice`);
      picked.add(member);
      rotation.picked(seat);
      if (pick === 500) break;
    }
    expect(picked.size).toBe(501);
  },
);
