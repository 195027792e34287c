import { expect, test } from 'vitest';
import { Lanes, type MemberFilter } from '../../src/pool/candidates.ts';
import { Member } from '../../src/pool/member.ts';
import { Query } from '../../src/pool/member-check.ts';
import { LASTING } from '../../src/pool/rotation/rotation.ts';
import { PoolSource } from '../../src/pool/source.ts';
import { CITY } from './pool-kit.ts';

/** As many kinds of wishes as are kept. */
const MOST = 256;

/** Lanes with one member, and one look into the ladder of a kind at a time. */
function openLanes() {
  const source = new PoolSource(CITY);
  const lanes = new Lanes(() => 0);
  lanes.rebuild([source], 'round-robin', []);
  const place = { text: 'East', folded: 'east' };
  const identity = { id: 'm1', source, protocol: 'http', host: '203.0.113.7', port: 8000, place } as const;
  const member = new Member(identity, false, 0);
  source.members.add(member);
  lanes.enter(member);
  lanes.move(member, LASTING);
  const pick = (kind: MemberFilter, now: number) => {
    const query = new Query();
    query.now = now;
    return lanes.ladder(kind, [member], now).pick(query);
  };
  return { lanes, source, member, pick };
}

test('lanes: the kinds that are kept are bounded, those asked for lately stay, and no seat is left behind', () => {
  const { lanes, member, pick } = openLanes();
  const kinds: MemberFilter[] = [{ location: 'e' }, { location: 'ea' }, { protocol: 'http' }];
  const ladders = kinds.map((kind) => lanes.ladder(kind, [member], 0));
  for (let round = 0; round < 1_000; round += 1) {
    for (const kind of kinds) expect(pick(kind, round)).toBe(member);
    expect(pick({ location: `west ${round}` }, round)).toBeUndefined();
  }
  expect([...lanes.all()]).toHaveLength(MOST);
  expect(kinds.map((kind) => lanes.ladder(kind, [member], 1_000))).toEqual(ladders);
  for (const ladder of ladders) expect([...lanes.all()].includes(ladder)).toBe(true);
  expect(member.seats).toHaveLength(1 + kinds.length);
  for (let round = 0; round < MOST; round += 1) pick({ location: `north ${round}` }, 2_000 + round);
  expect(member.seats, 'only the plain one is left').toHaveLength(1);
  expect(pick({ location: 'e' }, 3_000)).toBe(member);
});

test('lanes: a kind that someone waits for is kept', () => {
  const { lanes, member, pick } = openLanes();
  const ladder = lanes.ladder({ location: 'east' }, [member], 0);
  ladder.waitingCount = 1;
  for (let round = 0; round < 1_000; round += 1) pick({ location: `west ${round}` }, round);
  expect(lanes.ladder({ location: 'east' }, [member], 2_000)).toBe(ladder);
});

test('lanes: that clients wanted a kind is remembered by its sources when it goes', () => {
  const { source, pick } = openLanes();
  pick({ location: 'far' }, 777);
  for (let round = 0; round < 1_000; round += 1) pick({ source: `nowhere ${round}` }, 1_000 + round);
  expect(source.wantedAt).toBe(777);
});
