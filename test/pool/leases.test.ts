/** What a lease says, which leases are whose, and what their ends change. */
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import { DEFAULT_SITE_RULE } from '../../src/pool/options.ts';
import {
  accept,
  acquire,
  addMembers,
  close,
  drawn,
  fail,
  openKit,
  type PoolKit,
  refusal,
  request,
  stateOf,
  use,
} from './pool-kit.ts';

const idsOf = (kit: PoolKit) => kit.pool.members().map(({ id }) => id);

test('leases: a lease has what the dialer needs of its member', () => {
  const kit = openKit();
  const login = { username: 'u', password: new Secret('p') };
  const exit = { exitIp: '192.0.2.9' };
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000, { protocol: 'socks5', login, ...exit })]);
  kit.clock.advance(1_000);
  const query = { routing: {}, count: 1, isKnown: () => false };
  const known = { member: idsOf(kit)[0], source: 'city', protocol: 'socks5', host: '203.0.0.2', port: 8_000 };
  expect(kit.pool.upcoming(query)).toEqual([{ ...known, login, remainingMs: 59_000 }]);
  const lease = acquire(kit, { session: 's' });
  const rest = { login, ...exit, exit: '192.0.2.9', remainingMs: 59_000, session: 's', waitedMs: 0 };
  expect(lease).toEqual({ ...known, ...rest, id: lease.id, doubtful: true });
  accept(kit, lease);
  expect(acquire(kit).doubtful).toBe(false);
  kit.pool.evict(lease.member);
  kit.pool.addMembers('city', [drawn(kit, 2, 0, { endsAt: undefined })]);
  const plain = { member: idsOf(kit)[1], source: 'city', protocol: 'http', host: '203.0.0.3', port: 8_000 };
  expect(kit.pool.upcoming(query)).toEqual([plain]);
  const open = acquire(kit);
  expect(open).toEqual({ ...plain, id: open.id, exit: '203.0.0.3', waitedMs: 0, doubtful: true });
});

test('leases: are found by member, by session, and by client with its session or tag at a site', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const [one = '', two = ''] = idsOf(kit);
  const at = (routing: object, avoid: string, targetHost = 'shop.example') =>
    acquire(kit, { client: 'ann', ...routing }, { avoid: [avoid], targetHost }).id;
  const plain = at({}, two);
  const session = at({ session: 's' }, one);
  const tag = at({ tag: 't' }, one);
  const elsewhere = at({ session: 's' }, '', 'other.example');
  const bob = at({ client: 'bob' }, two);
  const { leases } = kit.pool;
  expect(leases.of({ member: one })).toEqual([plain, bob]);
  expect(leases.of({ member: two })).toEqual([session, tag, elsewhere]);
  expect(leases.of({ session: 's' })).toEqual([session, elsewhere]);
  const to = (name: object, host = 'www.shop.example') =>
    leases.to({ client: 'ann', session: undefined, tag: undefined, ...name }, host);
  expect([to({}), to({ session: 's' }), to({ tag: 't' }), to({ tag: 'u' })]).toEqual([
    [plain, tag],
    [session],
    [tag],
    [],
  ]);
  expect([to({ client: 'bob' }), to({ session: 's' }, 'other.example')]).toEqual([[bob], [elsewhere]]);
});

test('leases: the end of an older lease ends no trial, and the end of a trial lets the next client try', () => {
  const kit = openKit({ health: { maxFailures: 9, quarantineMs: 10_000 } });
  addMembers(kit, 1);
  const older = acquire(kit);
  fail(kit, acquire(kit));
  kit.clock.advance(10_000);
  const trial = acquire(kit);
  close(kit, older);
  expect(refusal(kit).code).toBe('pool-empty');
  fail(kit, trial, 'target');
  acquire(kit);
});

test('leases: a fault of the target is none of the session: a hedge that wins then moves nothing', () => {
  for (const [blame, moves] of [
    ['target', false],
    ['member-for-target', true],
    ['member', true],
  ] as const) {
    const kit = openKit({ health: { maxFailures: 9, quarantineMs: 10_000 } });
    addMembers(kit, 2);
    const own = use(kit, { session: 's' }).member;
    const first = acquire(kit, { session: 's' });
    kit.pool.report({ lease: first.id, kind: 'failed', blame, fault: 'member-unreachable' });
    accept(kit, acquire(kit, { session: 's' }, { avoid: [own], hedge: true }));
    expect(kit.pool.memberOfSession('s') !== own, blame).toBe(moves);
  }
});

test.each([undefined, true])(
  'leases: tunnels that close without an answer count, although the member accepts (mute: %s)',
  (mute) => {
    const kit = openKit({ health: { maxFailures: 3, quarantineMs: 1_000 } });
    addMembers(kit, 1, 3_600_000);
    const [id = ''] = idsOf(kit);
    for (const [number, client] of ['a', 'b', 'a'].entries()) {
      const lease = acquire(kit, { client }, { targetHost: `host${number}.example` });
      accept(kit, lease);
      const end = { lease: lease.id, kind: 'closed', cut: 'member-for-target' } as const;
      kit.pool.report({ ...end, ...(mute && { mute }) });
      kit.clock.advance(10_000);
    }
    expect(stateOf(kit, id)).toBe('left');
    expect(kit.events('member.left')).toMatchObject([{ fault: mute ? 'member-mute' : 'member-cut' }]);
  },
);

test('leases: a client is told the member to which its session has moved since', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const name = { client: 'ann', session: 's', tag: undefined };
  const before = use(kit, { client: 'ann', session: 's' });
  kit.pool.rotateSession('s');
  const now = kit.pool.members().find(({ id }) => id !== before.member);
  expect(kit.pool.leases.describe(name)).toMatchObject({ member: now?.id, exit: now?.host, session: 's' });
  expect(kit.pool.leases.lastUse(name)).toMatchObject({ member: before.member, exit: before.host });
});

test('probes: say whether the member is new; meanwhile no client gets it, and an undecided one leaves it as it is', () => {
  const kit = openKit({ health: { maxFailures: 9, quarantineMs: 1_000 } });
  kit.pool.addMembers('city', [drawn(kit, 1, 180_000, { unproven: true })]);
  const [fresh] = kit.pool.acquireForProbe(9);
  expect(fresh).toMatchObject({ isNew: true, doubtful: true });
  kit.pool.report({ lease: fresh?.id ?? 0, kind: 'failed', blame: 'unclear', fault: 'member-silent' });
  expect(kit.pool.members()).toMatchObject([{ state: 'joining' }]);
  accept(kit, kit.pool.acquireForProbe(9)[0] ?? acquire(kit));
  fail(kit, acquire(kit));
  kit.clock.advance(1_000);
  expect(kit.pool.acquireForProbe(9, 60_000)).toMatchObject([{ isNew: false }]);
  expect(refusal(kit).code).toBe('pool-empty');
});

test('members: an exit that changes with a draw loses the bans of the old one', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000, { exitIp: 'a' })]);
  kit.pool.banExit({ host: 'example.com', exit: 'a', evidence: 'report' });
  kit.pool.addMembers('city', [drawn(kit, 1)]);
  expect(kit.pool.members(), 'no exit named').toMatchObject([{ exitIp: 'a', bannedBy: ['example.com'] }]);
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000, { exitIp: 'b', facts: { city: 'x' } })]);
  expect(kit.pool.members()).toMatchObject([{ exitIp: 'b', bannedBy: [], facts: { city: 'x' } }]);
  expect(use(kit).exitIp).toBe('b');
  expect(kit.pool.sites.views()).toMatchObject([{ usableExits: 1, bannedExits: 1 }]);
});

test('members: a longer life puts a member back among those that clients get first', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 9_000)]);
  const [old = ''] = idsOf(kit);
  kit.pool.addMembers('city', [drawn(kit, 2)]);
  expect([use(kit).member, use(kit).member]).not.toContain(old);
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000)]);
  expect([use(kit).member, use(kit).member]).toContain(old);
});

test('members: one that has left is gone from its source, and its event says who drew it', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000, { drawnBy: 'other' }), drawn(kit, 2)]);
  for (let turn = 0; turn < 2; turn += 1) use(kit);
  expect(kit.pool.countsOf('city')).toMatchObject({ used: 1, ready: 2 });
  for (const id of idsOf(kit)) kit.pool.evict(id);
  expect(kit.pool.countsOf('city')).toMatchObject({ used: 0, ready: 0 });
  expect(kit.pool.parts.members.sources.get('city')?.members.size).toBe(0);
  const drawnBy = kit.events('member.left').map((event) => event.drawnBy);
  expect(drawnBy.sort()).toEqual(['other', undefined]);
});

test('members: the longest life that a source gave counts from each draw', () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  kit.clock.advance(100_000);
  kit.pool.addMembers('city', [drawn(kit, 1, 50_000)]);
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000)]);
  acquire(kit);
  const wants = (minLifeMs: number) => {
    void kit.pool.acquire(request({ minLifeMs }, { waitMs: 5_000 }));
    return kit.pool.demand('city').waiting;
  };
  expect([wants(60_001), wants(60_000)]).toEqual([0, 1]);
});

test('sessions: those without an owner have no limit per client', () => {
  const kit = openKit({ rotation: { maxSessionsPerClient: 2 } });
  addMembers(kit, 1);
  for (const session of ['a', 'b', 'c']) use(kit, { session });
  expect(kit.pool.sessions()).toHaveLength(3);
});

test('exclusive: the exit that the session leaves is free for others at once', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const own = use(kit, { session: 'x', exclusive: true }).member;
  kit.pool.rotateSession('x');
  expect([use(kit).member, use(kit).member]).toEqual([own, own]);
});

test('leases: an accepted trial makes the member ready for comparisons while its tunnel is open', () => {
  const kit = openKit({ health: { maxFailures: 9, quarantineMs: 1_000 } });
  addMembers(kit, 1);
  fail(kit, acquire(kit));
  kit.clock.advance(1_000);
  const trial = acquire(kit);
  expect(kit.pool.acquireForComparison('city', 60_000)).toBeUndefined();
  accept(kit, trial);
  expect(kit.pool.acquireForComparison('city', 60_000)?.member).toBe(trial.member);
});

test('health: with maxFailures 1, one target that others reach does not evict', () => {
  const kit = openKit({ health: { maxFailures: 1, quarantineMs: 1_000 } });
  addMembers(kit, 1, 3_600_000);
  const [id = ''] = idsOf(kit);
  for (const [client, targetHost] of [
    ['a', 'one.example'],
    ['b', 'one.example'],
  ] as const) {
    const lease = acquire(kit, { client }, { targetHost });
    kit.pool.report({ lease: lease.id, kind: 'failed', blame: 'member-for-target', fault: 'member-closed' });
    kit.clock.advance(10_000);
  }
  expect(stateOf(kit, id)).toBe('quarantined');
});

test('demand: a member that lives too short for a client does not keep it from being stranded', () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  addMembers(kit, 1, 180_000);
  acquire(kit);
  const stranded = (minLifeMs: number) => {
    void kit.pool.acquire(request({ minLifeMs }, { waitMs: 15_000 }));
    return kit.pool.demand('city').stranded;
  };
  kit.clock.advance(100_000);
  expect([stranded(80_000), stranded(80_001)]).toEqual([0, 1]);
});

test('waiting: a client that leaves takes its site and its demand along', () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 }, targets: [] });
  addMembers(kit, 1, 3_600_000);
  use(kit, { session: 's' });
  const tunnel = acquire(kit);
  const clients = [request({}, { waitMs: 15_000 }), request({ session: 's' }, { waitMs: 15_000 })];
  for (const client of clients) expect(kit.pool.acquire(client)).toBeInstanceOf(Promise);
  expect([kit.pool.demand('city').waiting, kit.pool.sites.waiting.size]).toEqual([1, 1]);
  kit.pool.cancel(clients[1]?.id ?? 0);
  expect([kit.pool.demand('city').waiting, kit.pool.sites.waiting.size]).toEqual([1, 1]);
  kit.pool.cancel(clients[0]?.id ?? 0);
  expect([kit.pool.demand('city').waiting, kit.pool.sites.waiting.size]).toEqual([0, 0]);
  expect(kit.events('client.waited')).toMatchObject([{ outcome: 'gave-up' }, { outcome: 'gave-up' }]);
  close(kit, tunnel);
});

test('members: the whole view of a member, before and after its first success', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [
    drawn(kit, 1, 60_000, { location: 'East', exitIp: 'x', facts: { isp: 'one' } }),
  ]);
  kit.pool.addMembers('city', [drawn(kit, 2, 0, { endsAt: undefined })]);
  const [one, two] = kit.pool.members();
  const common = { source: 'city', protocol: 'http', port: 8_000, state: 'ready', bannedBy: [] };
  const unused = { openTunnels: 0, uses: 0, faults: 0, latencyMs: null };
  expect(one).toEqual({
    ...{ ...common, ...unused, id: one?.id, host: '203.0.0.2', location: 'East', exitIp: 'x' },
    ...{ remainingSeconds: 60, facts: { isp: 'one' } },
  });
  expect(two).toEqual({
    ...{ ...common, ...unused, id: two?.id, host: '203.0.0.3', location: null, exitIp: null },
    ...{ remainingSeconds: null, facts: {} },
  });
  accept(kit, acquire(kit), 20.4);
  kit.clock.advance(1_240);
  expect(kit.pool.members()[0]).toMatchObject({
    openTunnels: 1,
    uses: 1,
    latencyMs: 20,
    remainingSeconds: 58.8,
  });
});

test('leases: reports on unknown and ended leases change nothing, and a second acceptance counts no use', () => {
  const kit = openKit();
  addMembers(kit, 1);
  const lease = acquire(kit);
  for (let time = 0; time < 2; time += 1) accept(kit, lease);
  for (let time = 0; time < 2; time += 1) close(kit, lease);
  accept(kit, lease);
  kit.pool.report({ lease: 99, kind: 'failed', blame: 'member', fault: 'member-silent' });
  expect(kit.pool.members()).toMatchObject([{ uses: 1, openTunnels: 0, state: 'ready', faults: 0 }]);
  expect(kit.pool.demand('city').perSecond * 30).toBeCloseTo(0);
});

test('leases: the end of a probe returns no use, and an open tunnel keeps no member from a comparison', () => {
  const kit = openKit({ rotation: { maxUsesPerMember: 2 } });
  addMembers(kit, 1);
  for (const lease of kit.pool.acquireForProbe(9, 0))
    kit.pool.report({ lease: lease.id, kind: 'failed', blame: 'target', fault: 'target-unreachable' });
  const open = [acquire(kit), acquire(kit)];
  expect(refusal(kit).code).toBe('pool-empty');
  accept(kit, open[0] ?? acquire(kit));
  expect(kit.pool.acquireForComparison('city', 1_000)?.member).toBe(open[0]?.member);
});

test('probes: the most urgent ones up to the limit, none that is tested already or rests', () => {
  const kit = openKit({ health: { maxFailures: 9, quarantineMs: 10_000 } });
  const probed = (limit: number, staleMs?: number) =>
    kit.pool.acquireForProbe(limit, staleMs).map((lease) => {
      kit.pool.report({ lease: lease.id, kind: 'failed', blame: 'target', fault: 'target-unreachable' });
      return Number(lease.host.split('.').at(-1));
    });
  addMembers(kit, 3);
  kit.clock.advance(1_000);
  kit.pool.addMembers('city', [drawn(kit, 3, 180_000, { unproven: true })]);
  kit.pool.addMembers('city', [drawn(kit, 4, 180_000, { unproven: true })]);
  const members = [...kit.pool.parts.members.byId.values()];
  const [one, two] = members;
  if (one === undefined || two === undefined) throw new Error('no members');
  one.source.suspected.add(two);
  expect([probed(0, 1_000), probed(1, 1_000)]).toEqual([[], [4]]);
  expect(probed(9)).toEqual([4, 5, 2]);
  fail(kit, acquire(kit, {}, { avoid: members.slice(1).map(({ id }) => id) }));
  expect([probed(9, 1_000), probed(9, 1_001)]).toEqual([
    [4, 5, 2, 3],
    [4, 5],
  ]);
  kit.clock.advance(10_000);
  expect([probed(9), probed(9, 20_000)]).toEqual([
    [4, 5],
    [4, 5, 1],
  ]);
  one.source.suspected.add(two);
  const open = kit.pool.acquireForProbe(9, 0);
  expect(open).toHaveLength(5);
  one.source.suspected.add(two);
  expect(kit.pool.acquireForProbe(9, 0)).toEqual([]);
});

test('probes: clients still get a ready member meanwhile, and its turn stays', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const [first = ''] = idsOf(kit);
  expect(kit.pool.acquireForProbe(1, 0)).toMatchObject([{ member: first }]);
  expect(use(kit).member).toBe(first);
});

test('comparisons: the member that worked last, and neither a quarantined nor a draining one', () => {
  const kit = openKit({ health: { maxFailures: 9, quarantineMs: 10_000 } });
  addMembers(kit, 3);
  const [one = '', two = '', three = ''] = idsOf(kit);
  const compared = (withinMs: number) => {
    const lease = kit.pool.acquireForComparison('city', withinMs);
    if (lease !== undefined) kit.pool.report({ lease: lease.id, kind: 'closed', cut: false });
    return lease?.member;
  };
  const only = (id: string) => ({ avoid: [one, two, three].filter((other) => other !== id) });
  for (const id of [one, two, three]) {
    use(kit, {}, only(id));
    kit.clock.advance(1_000);
  }
  expect([compared(1_000), compared(999), compared(60_000)]).toEqual([three, undefined, three]);
  const tunnel = acquire(kit, {}, only(three));
  kit.pool.evict(three);
  fail(kit, acquire(kit, {}, only(two)));
  expect([compared(60_000), kit.pool.acquireForComparison('nowhere', 1)]).toEqual([one, undefined]);
  close(kit, tunnel);
});

test('leases: a client learns everything about its last use, at most 32 sites of a session, and of a tag its own', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000, { location: 'East', exitIp: 'x' })]);
  const [member = ''] = idsOf(kit);
  const name = { client: 'ann', session: 's', tag: undefined };
  for (let number = 0; number < 33; number += 1)
    use(kit, { client: 'ann', session: 's', tag: 't' }, { targetHost: `www.s${number}.test` });
  const known = { session: 's', tag: 't', member, exit: 'x', location: 'East', attempts: 1 };
  const sites = Array.from({ length: 32 }, (_, number) => `s${number + 1}.test`);
  expect(kit.pool.leases.describe(name)).toMatchObject({ ...known, expiresIn: 60, sites });
  expect(kit.pool.leases.describe({ client: 'ann', session: undefined, tag: 't' })).toMatchObject({
    ...known,
    sites,
  });
  expect(kit.pool.leases.describe({ client: 'ann', session: undefined, tag: undefined })).toMatchObject({
    ...known,
    sites: ['s32.test'],
  });
  expect(kit.pool.leases.describe({ client: 'ann', session: 'new', tag: 'u' })).toMatchObject({
    session: 'new',
    tag: 'u',
  });
  use(kit, { client: 'ann', session: 's', tag: 't' }, { targetHost: 'www.s32.test' }); // known already
  const here = kit.pool.leases.lastUse(name);
  expect(here).toMatchObject({ ...known, source: 'city', hosts: sites.map((site) => `www.${site}`) });
  if (here === undefined) throw new Error('no use');
  const late = { ...here, at: here.at + 1, hosts: ['late.test'] };
  const latest = kit.pool.leases.latest(name, [late, here, { ...here, at: 1, hosts: ['early.test'] }]);
  expect(latest).toEqual({ ...late, hosts: [...here.hosts.slice(1), 'late.test'] });
  kit.clock.advance(90_000);
  kit.pool.addMembers('city', [drawn(kit, 2)]);
  expect(kit.pool.leases.describe(name), 'the member has left').toMatchObject({
    ...known,
    expiresIn: null,
    movesAt: null,
  });
  // a session that has no site to show, because another one was used
  expect(
    kit.pool.leases.judge(name, { verdict: 'ok', host: undefined, forMs: undefined, user: undefined }),
  ).toBe('host-needed');
});

test('leases: the report of a probe is no request', () => {
  const kit = openKit();
  addMembers(kit, 1);
  const uses: number[] = [];
  kit.pool.parts.observers.push({
    ...({} as (typeof kit.pool.parts.observers)[number]),
    memberUsed: (_member, count) => uses.push(count),
    memberAnswered: () => {},
  });
  for (const lease of kit.pool.acquireForProbe(9, 0)) accept(kit, lease);
  expect(uses).toEqual([0, 0]);
  expect(kit.pool.members()).toMatchObject([{ uses: 0 }]);
});

test('leases: requests of sessions are none of the rate for which a site needs exits', () => {
  const needed = (routing: object) => {
    const kit = openKit({ targets: [{ ...DEFAULT_SITE_RULE, match: ['example.com'], spacing: 0 }] });
    addMembers(kit, 1);
    const site = kit.pool.sites.of('example.com');
    site.adoptSpacing(60_000, kit.clock.monotonic());
    for (let time = 0; time < 31; time += 1) acquire(kit, routing);
    return site.exitsNeeded(kit.clock.monotonic());
  };
  expect([needed({}), needed({ session: 's' })]).toEqual([60, 0]);
});
