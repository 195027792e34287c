import { expect, test } from 'vitest';
import { decodeSnapshot, type PoolSnapshot } from '../../src/pool/snapshot.ts';
import { accept, fail, lend, offer, openKit, type PoolKit, pourMembers, refusal, use } from './pool-kit.ts';

/** What a file would hold of the pool. */
function saved(kit: PoolKit): PoolSnapshot {
  const snapshot = decodeSnapshot(JSON.parse(JSON.stringify(kit.pool.snapshot())));
  if (snapshot === undefined) throw new Error('the pool does not understand its own snapshot');
  return snapshot;
}

/** A pool that starts `laterMs` after the snapshot was taken, by the wall clock, and has it. */
function restarted(before: PoolKit, laterMs: number): PoolKit {
  const kit = openKit();
  kit.clock.advance(123_456); // another origin of monotonic time
  kit.clock.stepWall(before.clock.now() + laterMs - kit.clock.now());
  kit.pool.restore(saved(before));
  return kit;
}

test('snapshot: members come back with their ids, lives and histories', () => {
  const before = openKit();
  before.pool.addMembers('city', [
    offer(before, 1, 120_000, { exitIp: '198.51.100.7', location: '广东', facts: { level: 'elite' } }),
  ]);
  const { member } = use(before);
  before.pool.ban({ of: { member }, host: 'banned.example', verdict: 'banned' });
  fail(before, lend(before));
  const after = restarted(before, 20_000);
  expect(after.pool.members()).toEqual([
    { ...before.pool.members()[0], remainingSeconds: 100, state: 'quarantined', faults: 1, uses: 1 },
  ]);
  expect(refusal(after, {}, { targetHost: 'banned.example' }).refused).toBe('pool-empty');
  fail(after, lend(after));
  expect(after.pool.members(), 'two in a row, before and after').toEqual([]);
});

test('snapshot: a rest goes on where it was', () => {
  const before = openKit();
  pourMembers(before, 2);
  const resting = lend(before);
  fail(before, resting);
  const after = restarted(before, 4_000);
  for (let round = 0; round < 4; round += 1) expect(use(after).member).not.toBe(resting.member);
  after.clock.advance(6_000);
  expect([lend(after).member, lend(after).member]).toContain(resting.member);
});

test('snapshot: what expired meanwhile is dropped', () => {
  const before = openKit();
  before.pool.addMembers('city', [offer(before, 1, 60_000), offer(before, 2, 120_000)]);
  const after = restarted(before, 57_000);
  expect(after.pool.members()).toMatchObject([{ remainingSeconds: 63 }]);
});

test('snapshot: a clock that was set back gives nobody a longer life', () => {
  const before = openKit();
  pourMembers(before, 1, 60_000);
  const after = restarted(before, -86_400_000);
  expect(after.pool.members()).toMatchObject([{ remainingSeconds: 60 }]);
});

test('snapshot: how much time has passed may be told by whoever knows better than the clock', () => {
  const before = openKit();
  pourMembers(before, 1, 60_000);
  const after = openKit();
  after.clock.stepWall(86_400_000);
  after.pool.restore(saved(before), 20_000);
  expect(after.pool.members()).toMatchObject([{ remainingSeconds: 40 }]);
});

test('snapshot: a life of unknown length stays unknown, and goes on being renewed', () => {
  const before = openKit();
  before.pool.addMembers('city', [offer(before, 1, 0, { endsAt: undefined })]);
  const after = restarted(before, 300_000);
  expect(after.pool.members()).toMatchObject([{ remainingSeconds: null }]);
  use(after);
  after.clock.advance(590_000);
  expect(use(after).remainingMs).toBeUndefined();
});

test('snapshot: unproven members stay unproven, draining ones are left out', () => {
  const before = openKit();
  before.pool.addMembers('city', [offer(before, 1, 60_000)]);
  const draining = lend(before);
  accept(before, draining);
  before.pool.evict(draining.member);
  before.pool.addMembers('city', [offer(before, 2, 60_000, { unproven: true })]);
  expect(before.pool.members()).toHaveLength(2);
  expect(restarted(before, 0).pool.members()).toMatchObject([{ state: 'joining' }]);
});

test('snapshot: sessions keep their members and the rest of their time', () => {
  const before = openKit();
  pourMembers(before, 3);
  const own = use(before, { session: 'abc', sessionTtlMs: 60_000 });
  use(before, { session: 'old', sessionTtlMs: 10_000 });
  const after = restarted(before, 20_000);
  expect(after.pool.sessions()).toMatchObject([{ id: 'abc', expiresInSeconds: 40, uses: 1 }]);
  expect(use(after, { session: 'abc' }).member).toBe(own.member);
});

test('snapshot: one that may not come back may not do so after a restart either', () => {
  const before = openKit();
  pourMembers(before, 1, 60_000);
  before.pool.evict(lend(before).member);
  const after = restarted(before, 10_000);
  expect(after.pool.addMembers('city', [offer(after, 0)]).rejected).toBe(1);
  after.clock.advance(50_000);
  expect(after.pool.addMembers('city', [offer(after, 0)]).joined).toBe(1);
});

test('snapshot: members of sources that are not configured any more are left out', () => {
  const before = openKit();
  pourMembers(before, 1);
  const kit = openKit({ sources: [{ name: 'town', priority: 1, size: 5, unknownLifetimeMs: 1 }] });
  expect(kit.pool.restore(saved(before))).toEqual({ members: 0, sessions: 0 });
});

test('snapshot: whoever knows how much time has really passed is believed rather than the wall clock', () => {
  const before = openKit();
  pourMembers(before, 1, 60_000);
  const after = openKit();
  after.clock.stepWall(-3_600_000);
  after.pool.restore(saved(before), 20_000);
  expect(after.pool.members()[0]?.remainingSeconds).toBe(40);
});

test('snapshot: restoring twice adds nothing', () => {
  const before = openKit();
  pourMembers(before, 3);
  use(before, { session: 'abc' });
  const after = restarted(before, 0);
  expect(after.pool.restore(saved(before))).toEqual({ members: 3, sessions: 1 });
});

test('snapshot: a new session leaves the members of those that came back alone', () => {
  const before = openKit();
  pourMembers(before, 3);
  for (const session of ['a', 'b']) use(before, { session });
  const after = restarted(before, 0);
  const own = after.pool.sessions().map(({ member }) => member);
  use(after); // in whatever order they came back
  expect(own).toHaveLength(2);
  expect(use(after, { session: 'c' }).member).not.toBeOneOf(own);
});

test('snapshot: a life that no service ever gave is not believed', () => {
  const before = openKit();
  pourMembers(before, 1);
  const snapshot = saved(before);
  for (const member of snapshot.members) member.endsAt += 1e15;
  const after = openKit();
  after.pool.restore(snapshot);
  expect(after.pool.members()[0]?.remainingSeconds).toBe(7 * 24 * 3600);
});

test.each([
  undefined,
  null,
  7,
  'x',
  [],
  {},
  { version: 2, at: 0, members: [], sessions: [], remembered: [] },
])('snapshot: %j is none', (value) => {
  expect(decodeSnapshot(value)).toBeUndefined();
});

test('snapshot: one with a fault that noria does not know is none', () => {
  const before = openKit();
  pourMembers(before, 1);
  fail(before, lend(before));
  const text = JSON.stringify(before.pool.snapshot());
  expect(decodeSnapshot(JSON.parse(text))).toBeDefined();
  expect(decodeSnapshot(JSON.parse(text.replace('member-unreachable', 'constructor')))).toBeUndefined();
});
