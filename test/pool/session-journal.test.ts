import { expect, test } from 'vitest';
import { HOUR_MS } from '../../src/core/duration.ts';
import { decodeSessions } from '../../src/pool/stored-state.ts';
import { accept, acquire, addMembers, close, openKit, type PoolKit, request, use } from './pool-kit.ts';

/** A pool whose changed sessions the test takes as the journal file does. */
function openJournaled(changes: Parameters<typeof openKit>[0] = {}) {
  const kit = openKit(changes);
  addMembers(kit, 3, 24 * HOUR_MS);
  let changeCount = 0;
  const journal = kit.pool.parts.sessions.journal(() => {
    changeCount += 1;
  });
  const taken = () => Object.fromEntries(journal.takeChanges(1_000));
  return { kit, journal, taken, changeCount: () => changeCount };
}

/** Restores the sessions after a restart, `laterMs` after the record was written. */
function restored(value: unknown, laterMs: number): PoolKit {
  const kit = openKit();
  kit.pool.parts.sessions.restore(decodeSessions([['abc', { value, ageMs: laterMs }]]));
  return kit;
}

test('session journal: a new session, a move and an end are changes', () => {
  const { kit, taken, changeCount } = openJournaled();
  const { member } = use(kit, { session: 'abc', sessionOwner: { user: 'ann', address: '192.0.2.1' } });
  expect(changeCount()).toBeGreaterThan(0);
  expect(taken()).toEqual({
    abc: { user: 'ann', address: '192.0.2.1', member, ttlMs: 600_000, idleMs: 0, uses: 1 },
  });
  expect(taken(), 'taken once').toEqual({});
  kit.pool.rotateSession('abc');
  expect(taken()).toMatchObject({ abc: { member: kit.pool.sessions()[0]?.member } });
  kit.pool.parts.sessions.forget('abc');
  expect(taken()).toStrictEqual({ abc: undefined });
});

test('session journal: uses are a change four times per TTL', () => {
  const { kit, taken, changeCount } = openJournaled();
  use(kit, { session: 'abc', sessionTtlMs: 60_000 });
  taken();
  const before = changeCount();
  for (let second = 0; second < 60; second += 1) {
    kit.clock.advance(1_000);
    use(kit, { session: 'abc', sessionTtlMs: 60_000 });
    taken();
  }
  expect(changeCount() - before).toBe(4);
});

test('session journal: the record of a session with an open tunnel never expires', () => {
  const { kit, taken } = openJournaled();
  const lease = acquire(kit, { session: 'abc', sessionTtlMs: 60_000 });
  accept(kit, lease);
  let record: unknown = taken()['abc'];
  let ageMs = 0;
  for (let second = 0; second < 1_000; second += 1) {
    kit.clock.advance(1_000);
    const next = taken()['abc'];
    ageMs = next === undefined ? ageMs + 1_000 : 0;
    record = next ?? record;
    expect(restored(record, ageMs + 30_000).pool.parts.sessions.byName.size, `after ${second} s`).toBe(1);
  }
  close(kit, lease);
});

test('session journal: a restored session has been idle since its record, too', () => {
  const { kit, journal } = openJournaled();
  use(kit, { session: 'abc', sessionTtlMs: 60_000 });
  kit.clock.advance(15_000);
  const [[, record] = []] = journal.all();
  expect(restored(record, 20_000).pool.sessions()).toMatchObject([{ id: 'abc', expiresInSeconds: 25 }]);
  expect(restored(record, 45_000).pool.parts.sessions.byName.size).toBe(0);
});

test('session journal: a restored session counts for its client', () => {
  const { kit, journal } = openJournaled();
  const sessionOwner = { user: 'ann', address: '192.0.2.1' };
  for (const session of ['a', 'b', 'c']) use(kit, { session, sessionOwner });
  const after = openKit({ rotation: { maxSessionsPerClient: 3 } });
  after.pool.parts.sessions.restore(
    decodeSessions([...journal.all()].map(([name, value]) => [name, { value, ageMs: 0 }])),
  );
  addMembers(after, 3);
  use(after, { session: 'd', sessionOwner });
  expect(after.pool.parts.sessions.byName.size).toBe(3);
});

test('session journal: takeChanges returns no more changes than requested', () => {
  const { kit, journal } = openJournaled();
  for (const session of ['a', 'b', 'c']) use(kit, { session });
  expect(journal.size).toBe(3);
  expect(journal.takeChanges(2)).toHaveLength(2);
  expect(journal.takeChanges(2)).toHaveLength(1);
  for (const session of ['a', 'b', 'c']) kit.pool.parts.sessions.forget(session);
  journal.dropChanges();
  expect(journal.takeChanges(2)).toEqual([]);
});

test('session journal: a session that waits, and one that another replica uses, are changes', () => {
  const kit = openKit();
  const journal = kit.pool.parts.sessions.journal(() => {});
  const taken = () => Object.keys(Object.fromEntries(journal.takeChanges(9)));
  void kit.pool.acquire(request({ session: 'abc', sessionTtlMs: 40_000 }, { waitMs: 60_000 }));
  expect(taken()).toEqual(['abc']);
  const session = kit.pool.parts.sessions.byName.get('abc');
  if (session === undefined) throw new Error('no session');
  const usedElsewhere = (laterMs: number) => {
    kit.clock.advance(laterMs);
    const now = kit.clock.monotonic();
    kit.pool.parts.sessions.usedElsewhere(session, { usedAt: now, ttlMs: 40_000 }, now);
    return taken();
  };
  expect([usedElsewhere(9_999), usedElsewhere(1)]).toEqual([[], ['abc']]);
});

test('session journal: the record of a session with an open tunnel is renewed, and says that it is not idle', () => {
  const { kit, taken } = openJournaled();
  acquire(kit, { session: 'abc', sessionTtlMs: 40_000 });
  taken();
  kit.clock.advance(9_999);
  expect(taken()).toEqual({});
  kit.clock.advance(1);
  expect(taken()).toMatchObject({ abc: { idleMs: 0 } });
});

test.each([
  undefined,
  7,
  {},
  { user: '', address: '', ttlMs: 1e15, idleMs: 0, uses: 1 },
  { user: '', address: '', ttlMs: 60_000, idleMs: -1, uses: 1 },
])('session journal: the record %j is ignored', (value) => {
  expect(restored(value, 0).pool.parts.sessions.byName.size).toBe(0);
});
