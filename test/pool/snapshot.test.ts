import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import { decodeSessions, decodeSnapshot, type PoolSnapshot } from '../../src/pool/stored-state.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { accept, acquire, addMembers, drawn, fail, openKit, type PoolKit, refusal, use } from './pool-kit.ts';

/** Returns the snapshot as it is read back from a file. */
function saved(kit: PoolKit): PoolSnapshot {
  const snapshot = decodeSnapshot(JSON.parse(JSON.stringify(kit.pool.snapshot())));
  if (snapshot === undefined) throw new Error('the snapshot cannot be decoded');
  return snapshot;
}

/** Restores the sessions of another pool, as read back from a file `laterMs` later. */
function restoreSessions(kit: PoolKit, before: PoolKit, laterMs: number): void {
  const text = JSON.stringify([...before.pool.parts.sessions.journal(() => {}).all()]);
  const entries: [string, unknown][] = JSON.parse(text);
  kit.pool.parts.sessions.restore(
    decodeSessions(entries.map(([name, value]) => [name, { value, ageMs: laterMs }])),
  );
}

/** A pool with the snapshot of another one, restored `laterMs` later. */
function restarted(before: PoolKit, laterMs: number): PoolKit {
  const kit = openKit();
  kit.clock.advance(123_456); // the new process has another origin of monotonic time
  kit.pool.restore(saved(before), laterMs);
  restoreSessions(kit, before, laterMs);
  return kit;
}

test('snapshot: members keep their ids, lives and histories', () => {
  const before = openKit();
  before.pool.addMembers('city', [
    drawn(before, 1, 120_000, { exitIp: '198.51.100.7', location: '广东', facts: { level: 'elite' } }),
  ]);
  const { member } = use(before);
  before.pool.ban({ holder: { member }, host: 'banned.example', verdict: 'banned' });
  fail(before, acquire(before));
  const after = restarted(before, 20_000);
  expect(after.pool.members()).toEqual([
    { ...before.pool.members()[0], remainingSeconds: 100, state: 'quarantined', faults: 1, uses: 1 },
  ]);
  expect(refusal(after, {}, { targetHost: 'banned.example' }).code).toBe('pool-empty');
  fail(after, acquire(after));
  expect(after.pool.members(), 'the second fault in a row evicts').toEqual([]);
});

test('snapshot: is all of the pool, and a restored pool writes the same', () => {
  const before = openKit({ health: { maxFailures: 3, quarantineMs: 10_000 } });
  const at = before.clock.now();
  const { pool, clock } = before;
  pool.addMembers('city', [
    drawn(before, 1, 100_000, { exitIp: 'x', location: 'East', facts: { level: 2 } }),
  ]);
  pool.addMembers('city', [drawn(before, 2, 0, { endsAt: undefined, drawnBy: 'other' })]);
  pool.addMembers('city', [drawn(before, 3, 100_000, { unproven: true, protocol: 'socks5' })]);
  const [one, two, three] = pool.members();
  accept(before, acquire(before, {}, { avoid: [two?.id ?? ''] }), 20.5);
  const failing = acquire(before, {}, { avoid: [one?.id ?? ''] });
  const cut = {
    lease: failing.id,
    kind: 'failed',
    blame: 'member-for-target',
    fault: 'member-silent',
  } as const;
  pool.report(cut);
  const gone = (number: number, lifeMs: number) => {
    pool.addMembers('city', [drawn(before, number, lifeMs)]);
    const { id = '' } = pool.members().at(-1) ?? {};
    fail(
      before,
      acquire(before, {}, { avoid: pool.members().flatMap((other) => (other.id === id ? [] : other.id)) }),
    );
    pool.evict(id);
  };
  gone(7, 5_000);
  gone(8, 50_000);
  pool.banExit({ host: 'www.shop.example', exit: 'x', source: 'city', evidence: 'report' });
  pool.banExit({ host: 'shop.example', exit: 'x', source: 'city', evidence: 'report', user: 'ann' });
  pool.banExit({ host: 'soon.example', exit: 'x', evidence: 'report', forMs: 9_000 });
  clock.advance(10_000);
  const expected = {
    version: 1,
    at: at + 10_000,
    members: [
      {
        ...{ id: one?.id, source: 'city', protocol: 'http', host: '203.0.0.2', port: 8_000, exitIp: 'x' },
        ...{ joinedAt: at, endsAt: at + 100_000, assumed: false, unproven: false, uses: 1, latencyMs: 20.5 },
        ...{ health: { inRow: 0, rests: 0 }, location: 'East', facts: { level: 2 } },
      },
      {
        ...{
          id: two?.id,
          source: 'city',
          protocol: 'http',
          host: '203.0.0.3',
          port: 8_000,
          drawnBy: 'other',
        },
        ...{ joinedAt: at, endsAt: at + 600_000, assumed: true, unproven: false, uses: 0 },
        health: { inRow: 0, rests: 1 },
        rest: { untilAt: at + 10_000, fault: 'member-silent', replaced: false },
      },
      {
        ...{ id: three?.id, source: 'city', protocol: 'socks5', host: '203.0.0.4', port: 8_000 },
        ...{ joinedAt: at, endsAt: at + 100_000, assumed: false, unproven: true, uses: 0 },
        health: { inRow: 0, rests: 0 },
      },
    ],
    remembered: [
      {
        key: 'city http 203.0.0.9 8000',
        ...{ health: { inRow: 1, rests: 1 }, untilAt: at + 50_000, barred: true },
      },
    ],
    bans: [
      {
        ...{ site: 'shop.example', exit: 'x', source: 'city', sinceAt: at, untilAt: at + 600_000 },
        ...{ forMs: 600_000, spacingMs: 0 },
      },
      {
        ...{
          site: 'shop.example',
          exit: 'x',
          source: 'city',
          user: 'ann',
          sinceAt: at,
          untilAt: at + 600_000,
        },
        ...{ forMs: 600_000, spacingMs: 0 },
      },
    ],
  };
  expect(saved(before)).toEqual(expected);
  const after = openKit({ clock: new ManualClock(at + 40_000) });
  after.pool.restore(saved(before), 30_000);
  expect(saved(after)).toEqual({ ...expected, at: at + 40_000 });
});

test('snapshot: a quarantine continues', () => {
  const before = openKit();
  addMembers(before, 2);
  const quarantined = acquire(before);
  fail(before, quarantined);
  const after = restarted(before, 4_000);
  for (let round = 0; round < 4; round += 1) expect(use(after).member).not.toBe(quarantined.member);
  after.clock.advance(6_000);
  expect([acquire(after).member, acquire(after).member]).toContain(quarantined.member);
});

test('snapshot: members that expired since are dropped', () => {
  const before = openKit();
  before.pool.addMembers('city', [drawn(before, 1, 60_000), drawn(before, 2, 120_000)]);
  const after = restarted(before, 57_000);
  expect(after.pool.members()).toMatchObject([{ remainingSeconds: 63 }]);
});

test.each([86_400_000, -3_600_000])(
  'snapshot: the time since the snapshot counts, though the wall clock moved by %d ms',
  (movedMs) => {
    const before = openKit();
    addMembers(before, 1, 60_000);
    const after = openKit();
    after.clock.stepWall(movedMs);
    after.pool.restore(saved(before), 20_000);
    expect(after.pool.members()).toMatchObject([{ remainingSeconds: 40 }]);
  },
);

test('snapshot: an unknown lifetime stays unknown and is still renewed', () => {
  const before = openKit();
  before.pool.addMembers('city', [drawn(before, 1, 0, { endsAt: undefined })]);
  const after = restarted(before, 300_000);
  expect(after.pool.members()).toMatchObject([{ remainingSeconds: null }]);
  use(after);
  after.clock.advance(590_000);
  expect(use(after).remainingMs).toBeUndefined();
});

test('snapshot: unproven members stay unproven, draining ones are left out', () => {
  const before = openKit();
  before.pool.addMembers('city', [drawn(before, 1, 60_000)]);
  const draining = acquire(before);
  accept(before, draining);
  before.pool.evict(draining.member);
  before.pool.addMembers('city', [drawn(before, 2, 60_000, { unproven: true })]);
  expect(before.pool.members()).toHaveLength(2);
  expect(restarted(before, 0).pool.members()).toMatchObject([{ state: 'joining' }]);
});

test('snapshot: sessions keep their members and their remaining time', () => {
  const before = openKit();
  addMembers(before, 3);
  const own = use(before, { session: 'abc', sessionTtlMs: 60_000 });
  use(before, { session: 'old', sessionTtlMs: 10_000 });
  const after = restarted(before, 20_000);
  expect(after.pool.sessions()).toMatchObject([{ id: 'abc', expiresInSeconds: 40, uses: 1 }]);
  expect(use(after, { session: 'abc' }).member).toBe(own.member);
});

test('snapshot: an evicted member cannot come back after a restart either', () => {
  const before = openKit();
  addMembers(before, 1, 60_000);
  before.pool.evict(acquire(before).member);
  const after = restarted(before, 10_000);
  expect(after.pool.addMembers('city', [drawn(after, 0)]).rejected).toBe(1);
  after.clock.advance(50_000);
  expect(after.pool.addMembers('city', [drawn(after, 0)]).joined).toBe(1);
});

test('snapshot: members of sources that are no longer configured are left out', () => {
  const before = openKit();
  addMembers(before, 1);
  const kit = openKit({ sources: [{ name: 'town', priority: 1, size: 5, unknownLifetimeMs: 1 }] });
  kit.pool.restore(saved(before), 0);
  expect(kit.pool.members()).toEqual([]);
});

test('snapshot: restoring twice adds nothing', () => {
  const before = openKit();
  addMembers(before, 3);
  use(before, { session: 'abc' });
  const after = restarted(before, 0);
  after.pool.restore(saved(before), 0);
  restoreSessions(after, before, 0);
  expect([after.pool.members().length, after.pool.parts.sessions.byName.size]).toEqual([3, 1]);
  expect(after.pool.countsOf('city')).toMatchObject({ ready: 3 });
});

test('snapshot: a new session gets no member of a restored session', () => {
  const before = openKit();
  addMembers(before, 3);
  for (const session of ['a', 'b']) use(before, { session });
  const after = restarted(before, 0);
  const own = after.pool.sessions().map(({ member }) => member);
  use(after);
  expect(own).toHaveLength(2);
  expect(use(after, { session: 'c' }).member).not.toBeOneOf(own);
});

test('snapshot: an impossible lifetime is cut to a week', () => {
  const before = openKit();
  addMembers(before, 1);
  const snapshot = saved(before);
  for (const member of snapshot.members) member.endsAt += 1e15;
  const after = openKit();
  after.pool.restore(snapshot, 0);
  expect(after.pool.members()[0]?.remainingSeconds).toBe(7 * 24 * 3600);
});

test.each([undefined, null, 7, 'x', [], {}, { version: 2, at: 0, members: [], remembered: [] }])(
  'snapshot: %j is not decoded',
  (value) => {
    expect(decodeSnapshot(value)).toBeUndefined();
  },
);

test('snapshot: an unknown fault code makes it invalid', () => {
  const before = openKit();
  addMembers(before, 1);
  fail(before, acquire(before));
  const text = JSON.stringify(before.pool.snapshot());
  expect(decodeSnapshot(JSON.parse(text))).toBeDefined();
  expect(decodeSnapshot(JSON.parse(text.replace('member-unreachable', 'constructor')))).toBeUndefined();
});

test.each([
  { uses: -1 },
  { uses: 1.5 },
  { port: 0 },
  { id: '' },
  { latencyMs: -1 },
  { health: { inRow: -1, halves: 0, rests: 0 } },
  { rest: { untilAt: 0, fault: ['member-silent'] } },
])('snapshot: a member with %j makes it invalid', (changes) => {
  const before = openKit();
  addMembers(before, 1);
  const snapshot = before.pool.snapshot();
  const members = snapshot.members.map((member) => ({ ...member, ...changes }));
  expect(decodeSnapshot(snapshot)).toBeDefined();
  expect(decodeSnapshot({ ...snapshot, members })).toBeUndefined();
});

test('snapshot: contains no member with a password, and no user name of one that left', () => {
  const kit = openKit();
  const login = { username: 'customer-7', password: new Secret('pa55word') };
  kit.pool.addMembers('city', [drawn(kit, 1, 120_000), drawn(kit, 2, 120_000, { login })]);
  kit.pool.addMembers('city', [drawn(kit, 3, 120_000, { login })]);
  for (const { id, host } of kit.pool.members()) if (host.endsWith('3')) kit.pool.evict(id);
  const { members, remembered } = saved(kit);
  expect([members.length, remembered.length]).toEqual([1, 1]);
  expect(JSON.stringify(saved(kit))).not.toMatch(/customer-7|pa55word/);
  expect(remembered[0]?.key).toMatch(/^city http 203\.0\.0\.\d 8000( [0-9a-f]{16})?$/);
});

test('snapshot: user names of one address are different members', () => {
  const kit = openKit();
  const as = (username: string) => ({ login: { username, password: new Secret('pa55word') } });
  const added = kit.pool.addMembers('city', [
    drawn(kit, 1, 120_000, as('exit-1')),
    drawn(kit, 1, 120_000, as('exit-2')),
    drawn(kit, 1, 130_000, as('exit-1')),
  ]);
  expect(added).toEqual({ joined: 2, renewed: 1, rejected: 0 });
  const logins = [acquire(kit), acquire(kit)].map(({ login }) => login?.username);
  expect(logins.toSorted()).toEqual(['exit-1', 'exit-2']);
});

test('snapshot: of a damaged one, each member and each id is restored once, and an unproven one does not rest', () => {
  const before = openKit();
  addMembers(before, 2);
  fail(before, acquire(before));
  const snapshot = saved(before);
  const [one, two] = snapshot.members;
  if (one === undefined || two === undefined) throw new Error('no members');
  const after = openKit();
  const members = [{ ...one, unproven: true }, { ...two, id: one.id }, { ...one, id: 'again' }, two];
  after.pool.restore({ ...snapshot, members }, 0);
  expect(after.pool.members()).toMatchObject([
    { id: one.id, state: 'joining' },
    { id: two.id, state: 'ready' },
  ]);
});

test('snapshot: a restored quarantine counts as one, and a ban that has ended since is forgotten', () => {
  const before = openKit();
  addMembers(before, 2, 7_200_000);
  fail(before, acquire(before));
  const [, two] = before.pool.members();
  before.pool.banExit({ host: 'x.test', exit: two?.host ?? '', evidence: 'report' });
  const banned = (laterMs: number) => {
    const after = openKit();
    after.pool.restore(saved(before), laterMs);
    after.pool.banExit({ host: 'x.test', exit: two?.host ?? '', evidence: 'report' });
    return after.events('site.banned').map(({ forMs }) => forMs);
  };
  expect([banned(599_999), banned(600_000)]).toEqual([[], [600_000]]);
  const after = restarted(before, 1_000);
  const { usable, held } = after.pool.stockAt('city', after.clock.monotonic());
  expect([usable, held]).toEqual([1, 2]);
  after.pool.freezeEvictions(false);
  expect([1, 2].map(() => use(after).member).sort()).toEqual(
    before.pool
      .members()
      .map(({ id }) => id)
      .sort(),
  );
});

test('views: a session with an open tunnel is not idle, and members that another replica drew are not used here', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 180_000, { drawnBy: 'other' })]);
  acquire(kit, { session: 's' });
  kit.clock.advance(5_000);
  expect(kit.pool.sessions()).toMatchObject([{ idleSeconds: 0, expiresInSeconds: 600 }]);
  use(kit);
  expect(kit.pool.countsOf('city')).toMatchObject({ used: 0, openTunnels: 1, size: 5, blocked: null });
});
