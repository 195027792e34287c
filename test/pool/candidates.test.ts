import { expect, test } from 'vitest';
import { CandidateIndex } from '../../src/pool/candidates.ts';
import { ANY_MEMBER, type MemberFilter } from '../../src/pool/filter.ts';
import { Member, PoolSource } from '../../src/pool/member.ts';
import { FITS } from '../../src/pool/rotations.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { CITY, poolSettings } from '../support/pool-settings.ts';
import { addMembers, drawn, openKit, use } from './pool-kit.ts';

/** The maximum number of candidate lists. */
const MAX_LISTS = 256;

/** An index with one member that is about to expire. */
function openIndex() {
  const source = new PoolSource(CITY);
  const members = new Map<string, Member>();
  const held = { settings: poolSettings(), sources: new Map([['city', source]]), byKey: members };
  const index = new CandidateIndex(
    new ManualClock(),
    () => 0,
    held,
    () => {},
  );
  index.rebuild();
  const location = { text: 'East', folded: 'east' };
  const member = new Member(
    { protocol: 'http', host: '203.0.113.7', port: 8000, endsAt: 0, unproven: false },
    { id: 'm1', source, location, joinedAt: 0, endsAt: 0 },
  );
  source.members.add(member);
  members.set('m1', member);
  index.add(member, 0);
  const find = (filter: MemberFilter, now: number) => index.find(filter, now);
  const pick = (filter: MemberFilter, now: number) => {
    return find(filter, now).pick({ now, endedQuiet: false, fit: () => FITS });
  };
  return { index, source, member, find, pick };
}

test('candidates: the number of lists is bounded, and lists used lately stay', () => {
  const { index, member, find, pick } = openIndex();
  const filters: MemberFilter[] = [{ location: 'e' }, { location: 'ea' }, { protocol: 'http' }];
  const lists = filters.map((filter) => find(filter, 0));
  for (let round = 0; round < 1_000; round += 1) {
    for (const filter of filters) expect(pick(filter, round)).toBe(member);
    expect(pick({ location: `west ${round}` }, round)).toBeUndefined();
  }
  expect(index.lists.size).toBe(MAX_LISTS);
  expect(filters.map((filter) => find(filter, 1_000))).toEqual(lists);
});

test('candidates: a dropped list leaves no candidate behind', () => {
  const { member, find, pick } = openIndex();
  for (const location of ['e', 'ea', 'eas']) find({ location }, 0);
  expect(member.candidates).toHaveLength(4);
  for (let round = 0; round < MAX_LISTS; round += 1) pick({ location: `north ${round}` }, 2_000 + round);
  expect(member.candidates, 'only in the list of all members').toHaveLength(1);
  expect(pick(ANY_MEMBER, 3_000)).toBe(member);
  expect(pick({ location: 'e' }, 3_000)).toBe(member);
});

test('candidates: a list for which a client waits is never dropped', () => {
  const { find, pick } = openIndex();
  const list = find({ location: 'east' }, 0);
  list.waitingCount = 1;
  for (let round = 0; round < 1_000; round += 1) pick({ location: `west ${round}` }, round);
  expect(find({ location: 'east' }, 2_000)).toBe(list);
});

test('candidates: the sources keep the demand of a dropped list', () => {
  const { source, pick } = openIndex();
  pick({ location: 'far' }, 777);
  for (let round = 0; round < 1_000; round += 1) pick({ source: `nowhere ${round}` }, 1_000 + round);
  expect(source.lastWantedAt).toBe(777);
});

const EAST = { location: 'East' };
const TOWN = { ...CITY, name: 'town' };
const BACKUP = { ...CITY, name: 'backup', priority: 2 };

test('candidates: clients with one filter take turns, also among those that expire soon', () => {
  const kit = openKit();
  addMembers(kit, 3, 9_000, EAST);
  const query = { routing: { location: 'east' }, count: 2, isKnown: () => false };
  const next = kit.pool.upcoming(query).map(({ member }) => member);
  const used = [1, 2, 3].map(() => use(kit, { location: 'EAST' }).member);
  expect(new Set(used).size).toBe(3);
  expect(next).toEqual(used.slice(0, 2));
});

test('candidates: a request for one source is demand for that alone, and moves a session there', () => {
  const kit = openKit({ sources: [CITY, TOWN] });
  for (const source of ['city', 'town']) kit.pool.addMembers(source, [drawn(kit, 1)]);
  use(kit, { source: 'town' });
  expect(kit.events('demand.rose')).toEqual([{ sources: ['town'] }]);
  expect([kit.pool.demand('city').lastWantedAt, kit.pool.demand('town').lastWantedAt]).toEqual([
    Number.NEGATIVE_INFINITY,
    kit.clock.monotonic(),
  ]);
  expect(use(kit, { session: 's', source: 'town' }).source).toBe('town');
  expect(use(kit, { session: 's', source: 'city' }).source).toBe('city');
  expect(kit.events('session.moved')).toMatchObject([{ reason: 'routing-options' }]);
});

test('candidates: after more than a second without a search, the next one emits demand.rose for the tiers it searches', () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  addMembers(kit, 1);
  const counts = [10_000, 1_000, 1_001].map((ms) => {
    kit.clock.advance(ms);
    use(kit);
    return kit.events('demand.rose').length;
  });
  expect(counts).toEqual([1, 1, 2]);
  expect(kit.events('demand.rose').at(-1)).toEqual({ sources: ['city'] });
});

test('candidates: the demand of the tier that serves is none of the later ones', () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  kit.pool.addMembers('backup', [drawn(kit, 1)]);
  use(kit);
  const wanted = () => ['city', 'backup'].map((name) => kit.pool.demand(name).lastWantedAt);
  expect(wanted()).toEqual([kit.clock.monotonic(), kit.clock.monotonic()]);
  kit.pool.addMembers('city', [drawn(kit, 2)]);
  expect(wanted()).toEqual([kit.clock.monotonic(), Number.NEGATIVE_INFINITY]);
});

test('candidates: an assignment takes a member of the first source that can serve', () => {
  const kit = openKit({ sources: [CITY, BACKUP] });
  kit.pool.addMembers('backup', [drawn(kit, 1)]);
  const assign = (session: string) =>
    kit.pool.assignMember({ session, routing: { session }, taken: new Map(), mode: 'fill' })?.source;
  expect(assign('a')).toBe('backup');
  kit.pool.addMembers('city', [drawn(kit, 2)]);
  expect(assign('b')).toBe('city');
});

test('candidates: for each filter a client may wait, also for more than lists are kept', () => {
  const { index, find } = openIndex();
  for (let number = 0; number < MAX_LISTS + 9; number += 1)
    find({ location: `east ${number}` }, 0).waitingCount = 1;
  expect(index.lists.size).toBe(MAX_LISTS + 10);
});
