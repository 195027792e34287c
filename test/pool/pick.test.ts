/** Which member a request gets, and whether the clients that wait behind it may get another one. */
import { expect, test } from 'vitest';
import { isLease, type LeaseRequest, type RoutingOptions } from '../../src/pool/lease.ts';
import { DEFAULT_SITE_RULE } from '../../src/pool/options.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { CITY, poolSettings } from '../support/pool-settings.ts';
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
  use,
} from './pool-kit.ts';

const SHOP = 'shop.example';
const AT_SHOP = { targetHost: SHOP };
const ALONE = { session: 'alone', exclusive: true };
const FIXED = { session: 'fixed', fixed: true };
const idsOf = (kit: PoolKit) => kit.pool.members().map(({ id }) => id);

function wait(kit: PoolKit, routing: RoutingOptions, changes: Partial<LeaseRequest> = {}) {
  const client = { isServed: false };
  const answer = kit.pool.acquire(request(routing, { waitMs: 15_000, ...changes }));
  if (!(answer instanceof Promise)) throw new Error('the request does not wait');
  void answer.then((late) => {
    client.isServed = isLease(late);
  });
  return client;
}

test.each<{
  who: string;
  rule?: object;
  prepare?: (kit: PoolKit) => void;
  first?: RoutingOptions;
  firstHost?: string;
  next?: RoutingOptions;
}>([
  {
    who: 'whose site has banned the member',
    prepare: (kit) => kit.pool.banExit({ host: SHOP, exit: '203.0.0.1', evidence: 'report' }),
  },
  {
    who: 'whose own verdict has banned the member',
    prepare: (kit) => kit.pool.banExit({ host: SHOP, exit: '203.0.0.1', evidence: 'report', user: 'ann' }),
    first: { user: 'ann' },
  },
  {
    who: 'whose site was used a moment ago',
    rule: { spacing: 10_000 },
    prepare: (kit) => use(kit, {}, AT_SHOP),
  },
  {
    who: 'whose site has a tunnel through the member',
    rule: { tunnelsPerMember: 1 },
    prepare: (kit) => acquire(kit, {}, AT_SHOP),
  },
  {
    who: 'who must not use the exit of another session',
    prepare: (kit) => use(kit, ALONE),
    firstHost: 'other.example',
    next: ALONE,
  },
  { who: 'who wants an exit alone', first: ALONE },
  {
    who: 'who wants a longer life than the member has',
    first: { minLifeMs: 900_000 },
  },
])(
  'waiting: a client $who does not hold up the next one',
  async ({ rule, prepare, first, firstHost, next }) => {
    const kit = openKit({
      rotation: { maxTunnelsPerMember: 3 },
      targets: [{ ...DEFAULT_SITE_RULE, match: [SHOP], ...rule }],
    });
    addMembers(kit, 1, 600_000);
    prepare?.(kit);
    const tunnels: { readonly id: number }[] = [];
    for (let room = 3 - (kit.pool.members()[0]?.openTunnels ?? 0); room > 0; room -= 1)
      tunnels.push(acquire(kit, next ?? {}, { targetHost: 'other.example' }));
    const clients = [
      wait(kit, first ?? {}, { targetHost: firstHost ?? SHOP }),
      wait(kit, next ?? {}, { targetHost: 'other.example' }),
    ];
    kit.pool.report({ lease: tunnels[0]?.id ?? 0, kind: 'closed', cut: false });
    await Promise.resolve();
    expect(clients.map(({ isServed }) => isServed)).toEqual([false, true]);
  },
);

test('waiting: a fixed session whose member is full does not hold up the next client', async () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  addMembers(kit, 2, 600_000);
  const own = acquire(kit, FIXED);
  const other = acquire(kit);
  const clients = [wait(kit, FIXED), wait(kit, {})];
  close(kit, other);
  await Promise.resolve();
  expect(clients.map(({ isServed }) => isServed)).toEqual([false, true]);
  close(kit, own);
  await Promise.resolve();
  expect(clients.map(({ isServed }) => isServed)).toEqual([true, true]);
});

test('fixed: says why it has ended, and a site with a rate says so first', () => {
  const kit = openKit({
    clock: new ManualClock(),
    targets: [{ ...DEFAULT_SITE_RULE, match: [SHOP], rate: 1 }],
  });
  addMembers(kit, 2);
  const own = use(kit, FIXED);
  kit.pool.banExit({ host: 'other.example', exit: own.host, evidence: 'report' });
  const why = (routing: RoutingOptions, targetHost: string) => refusal(kit, routing, { targetHost }).reason;
  expect(why(FIXED, 'other.example')).toMatch('has banned the exit');
  use(kit, {}, AT_SHOP);
  expect(why({}, SHOP)).toMatch('at most 1 requests per second');
  expect(why({ ...FIXED, protocol: 'socks5' }, 'third.example')).toMatch('does not fit the routing options');
  expect(refusal(kit, {}, AT_SHOP).code, 'after a session that ended').toBe('limit');
  kit.pool.evict(own.member);
  expect(why(FIXED, 'third.example')).toMatch('has ended');
  expect(wait(kit, {}, { ...AT_SHOP, waitMs: 100 }).isServed, 'a client that waits, too').toBe(false);
});

test('rotation: prefers a member with another exit and without a session, and none is quarantined', () => {
  const kit = openKit({ health: { maxFailures: 9, quarantineMs: 60_000 } });
  for (const [number, exitIp] of ['a', 'a', 'b', 'c'].entries())
    kit.pool.addMembers('city', [drawn(kit, number, 180_000, { exitIp })]);
  const [first = '', second = '', third = '', fourth = ''] = idsOf(kit);
  const at = (...avoid: string[]) => ({ avoid });
  expect(use(kit, { session: 's' }, at(third, fourth, second)).member).toBe(first);
  use(kit, { session: 'other' }, at(first, second, fourth));
  expect(kit.pool.rotateSession('s'), 'not the same exit, not that of a session').toEqual({
    from: first,
    to: fourth,
  });
  for (const id of [first, second, third])
    fail(kit, acquire(kit, {}, at(...idsOf(kit).filter((one) => one !== id))));
  expect(kit.pool.rotateSession('s'), 'the others are quarantined').toEqual({ from: fourth, to: undefined });
});

test('rotation: at the end of a round no exit is used twice in a row', () => {
  const kit = openKit();
  for (const [number, exitIp] of ['a', 'a', 'b'].entries())
    kit.pool.addMembers('city', [drawn(kit, number, 180_000, { exitIp })]);
  const [one = '', two = '', three = ''] = idsOf(kit);
  use(kit, {}, { avoid: [two, one] });
  expect(use(kit, {}, { avoid: [two] }).member).toBe(one);
  expect(use(kit).member, 'not the other member with the same exit').toBe(three);
});

test('failover: a session takes the member through which a hedge won only if that can serve the request', () => {
  const cases: [(kit: PoolKit, id: string) => unknown, RoutingOptions, boolean][] = [
    [() => {}, {}, true],
    [(kit) => kit.pool.banExit({ host: 'example.com', exit: '203.0.0.2', evidence: 'report' }), {}, false],
    [() => {}, { minLifeMs: 100_000 }, false],
    [() => {}, { minLifeMs: 60_000 }, true],
    [(kit) => kit.pool.addMembers('city', [drawn(kit, 1, 60_000)]), { protocol: 'socks5' }, false],
  ];
  for (const [change, routing, isFallback] of cases) {
    const kit = openKit();
    kit.pool.addMembers('city', [drawn(kit, 0, 180_000)]);
    kit.pool.addMembers('city', [drawn(kit, 1, 60_000)]);
    const [own = '', fallback = ''] = idsOf(kit);
    accept(kit, acquire(kit, { session: 's' }, { avoid: [fallback] }));
    accept(kit, acquire(kit, { session: 's' }, { avoid: [own], hedge: true }));
    for (const number of [2, 3])
      kit.pool.addMembers('city', [
        drawn(kit, number, 180_000),
        drawn(kit, number + 5, 180_000, { protocol: 'socks5' }),
      ]);
    change(kit, fallback);
    const lease = acquire(kit, { session: 's', ...routing }, { avoid: [own] });
    expect(lease.member === fallback, JSON.stringify(routing)).toBe(isFallback);
  }
});

test('exclusive: a failover reserves the next exit at once, and a hedge takes none', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const own = use(kit, ALONE);
  expect(refusal(kit, ALONE, { avoid: [own.member], hedge: true }).code).toBe('pool-empty');
  const next = acquire(kit, ALONE, { avoid: [own.member] });
  expect(kit.pool.memberOfSession('alone')).toBe(next.member);
  close(kit, next);
  for (let turn = 0; turn < 4; turn += 1) expect(use(kit).member).not.toBe(next.member);
});

test('assignment: takes no member of another session, one near its end if need be, and opens no session in vain', () => {
  const kit = openKit({ sources: [CITY] });
  const assign = (session: string, mode: 'keep' | 'fill') =>
    kit.pool.assignMember({ session, routing: { session }, taken: new Map(), mode })?.id;
  expect(assign('p', 'keep')).toBeUndefined();
  expect(assign('p', 'fill')).toBeUndefined();
  expect(kit.pool.sessions()).toEqual([]);
  addMembers(kit, 2);
  const [one = '', two = ''] = idsOf(kit);
  use(kit, { session: 's' }, { avoid: [two] });
  expect(assign('p', 'fill')).toBe(two);
  for (const id of [one, two]) kit.pool.evict(id);
  kit.pool.addMembers('city', [drawn(kit, 7, 9_000)]);
  expect(assign('q', 'fill')).toBe(idsOf(kit)[0]);
});

test('fixed: a client that waits for its member is told when that ends, and holds up nobody', async () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  addMembers(kit, 2, 600_000);
  const [own, other] = [acquire(kit, FIXED), acquire(kit)];
  const waiting = kit.pool.acquire(request(FIXED, { waitMs: 15_000 }));
  const behind = wait(kit, {});
  kit.pool.evict(own.member);
  close(kit, other);
  await expect(waiting).resolves.toMatchObject({ code: 'session-ended' });
  expect(behind.isServed).toBe(true);
});

test('life: a member with exactly the life that a client asks for serves it', () => {
  const kit = openKit();
  addMembers(kit, 1, 60_000);
  const query = (minLifeMs: number) => ({ routing: { minLifeMs }, count: 1, isKnown: () => false });
  expect([kit.pool.upcoming(query(60_000)).length, kit.pool.upcoming(query(60_001)).length]).toEqual([1, 0]);
  use(kit, { minLifeMs: 60_000 });
  expect(refusal(kit, { minLifeMs: 60_001 }).code).toBe('pool-empty');
});

test('exclusive: neither another member with the same exit nor the old exit after a draw goes to others', () => {
  const kit = openKit();
  for (const [number, exitIp] of ['a', 'a', 'b'].entries())
    kit.pool.addMembers('city', [drawn(kit, number, 180_000, { exitIp })]);
  const [one = '', two = '', three = ''] = idsOf(kit);
  expect(use(kit, ALONE, { avoid: [two, three] }).member).toBe(one);
  for (let turn = 0; turn < 3; turn += 1) expect(use(kit).member).toBe(three);
  kit.pool.addMembers('city', [drawn(kit, 0, 180_000, { exitIp: 'c' })]);
  for (let turn = 0; turn < 3; turn += 1) expect(use(kit).member).toBe(three);
});

test('exclusive: the session keeps its exit through another member of it', () => {
  const kit = openKit();
  addMembers(kit, 2, 180_000, { exitIp: 'a' });
  const own = use(kit, ALONE).member;
  kit.pool.evict(own);
  expect(refusal(kit).code).toBe('pool-empty');
  expect(use(kit, ALONE).exit).toBe('a');
});

test('assignment: of members in turn, one of another session comes last', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const own = use(kit, { session: 's' }).member;
  for (let turn = 0; turn < 2; turn += 1) use(kit);
  const assigned = ['p', 'q', 'r'].map(
    (session) => kit.pool.assignMember({ session, routing: { session }, taken: new Map(), mode: 'fill' })?.id,
  );
  expect(assigned.indexOf(own)).toBe(2);
});

test('life: a new session takes the longer-lived half of what the first source can give now', () => {
  const kit = openKit({
    ...{ sources: [CITY, { ...CITY, name: 'backup', priority: 2 }] },
    health: { maxFailures: 9, quarantineMs: 100_000 },
  });
  const lives = [60_000, 70_000, 80_000, 300_000, 300_000];
  for (const [number, lifeMs] of lives.entries()) kit.pool.addMembers('city', [drawn(kit, number, lifeMs)]);
  for (let number = 10; number < 20; number += 1)
    kit.pool.addMembers('backup', [drawn(kit, number, 600_000)]);
  const ids = idsOf(kit);
  for (const id of ids.slice(3, 5))
    fail(kit, acquire(kit, {}, { avoid: ids.filter((other) => other !== id) }));
  expect(use(kit, { session: 's' }).member, 'of the three that are not quarantined').toBe(ids[1]);
});

test.each([
  [{ protocol: 'http' }, {}, {}, true],
  [{ protocol: 'http' }, {}, { protocol: 'http' }, true],
  [{ protocol: 'http' }, {}, { protocol: 'socks5' }, false],
  [{ protocol: 'http' }, { protocol: 'socks5' }, { protocol: 'socks5' }, true],
  [{ protocol: 'http' }, { protocol: 'socks5' }, { protocol: 'http' }, true],
  [{}, {}, { protocol: 'socks5' }, true],
  [{ maxLifetimeMs: 60_000 }, {}, { minLifeMs: 60_000 }, true],
  [{ maxLifetimeMs: 60_000 }, {}, { minLifeMs: 60_001 }, false],
  [{ maxLifetimeMs: 60_000 }, { endsAt: 90_000 }, { minLifeMs: 90_000 }, true],
  [{ maxLifetimeMs: 60_000 }, { endsAt: 90_000 }, { minLifeMs: 90_001 }, false],
  [{}, {}, { location: '' }, true],
  [{}, { location: '' }, { location: 'Beijing' }, true],
  [{}, { location: '北京' }, { location: 'Beijing' }, false],
  [{ locationParams: { adr: '广东' } }, {}, { location: '上海' }, false],
  [{ locationParams: { adr: '广东' } }, { location: '上海市' }, { location: '上海' }, true],
] as const)('filter: a source with %j, that drew %j, may serve %j: %s', (options, member, routing, may) => {
  const kit = openKit({
    sources: [{ ...CITY, size: 1, ...options }],
    forecasts: () => [
      { name: 'city', state: 'drawing', reason: '', suspendedMs: 0 },
      { name: 'gone', state: 'drawing', reason: '', suspendedMs: 0 },
    ],
  });
  const lifeMs = 'endsAt' in member ? member.endsAt : 30_000;
  kit.pool.addMembers('city', [drawn(kit, 1, lifeMs, { ...member, endsAt: kit.clock.monotonic() + lifeMs })]);
  kit.pool.evict(idsOf(kit)[0] ?? '');
  expect(refusal(kit, routing).code).toBe(may ? 'pool-empty' : 'bad-routing');
  expect(kit.pool.refusalFor(routing).code).toBe(may ? 'pool-empty' : 'bad-routing');
  expect(kit.pool.isWorthWaiting(routing, 10_000)).toBe(may);
  if (may && !('locationParams' in options))
    expect(kit.pool.refusalFor(routing).sources.map(({ name }) => name)).toEqual(['city']);
});

test('refusal: of a site whose exits are all banned, although a later source has no members', () => {
  const kit = openKit({
    sources: [CITY, { ...CITY, name: 'backup', priority: 2 }],
    targets: [{ ...DEFAULT_SITE_RULE, match: [SHOP], drawsForBans: 0 }],
  });
  addMembers(kit, 2, 7_200_000);
  for (const { host } of kit.pool.members()) kit.pool.banExit({ host: SHOP, exit: host, evidence: 'report' });
  expect(refusal(kit, {}, { ...AT_SHOP, waitMs: 15_000 })).toMatchObject({
    code: 'site-banned',
    retryAfterMs: 600_000,
  });
});

test('refusal: a limit of waiting clients, and the rate of a site in a fleet', () => {
  const kit = openKit({
    limits: { waiting: 2 },
    targets: [{ ...DEFAULT_SITE_RULE, match: [SHOP], rate: 2 }],
  });
  for (let client = 0; client < 2; client += 1) wait(kit, {});
  expect(refusal(kit, {}, { waitMs: 5_000 })).toMatchObject({
    code: 'pool-empty',
    reason: expect.stringMatching('2 other'),
  });
  addMembers(kit, 1);
  kit.pool.parts.members.index.part = {
    ...{ count: 2, index: 0, sharesClock: false, changedAt: 0 },
    machine: { count: 3, index: 0 },
  };
  for (let turn = 0; turn < 2; turn += 1) use(kit, {}, AT_SHOP);
  expect(refusal(kit, {}, AT_SHOP)).toMatchObject({ code: 'limit', retryAfterMs: 3_000 });
});

test('refusal: the forecasts are asked only for clients that wait', () => {
  let asked = 0;
  const kit = openKit({
    forecasts: () => {
      asked += 1;
      return [];
    },
  });
  const moved = () =>
    kit.bus.emit('source.moved', { source: 'city', from: 'drawing', to: 'halted', reason: 'x' });
  addMembers(kit, 1);
  use(kit);
  moved();
  expect(asked).toBe(0);
  wait(kit, { minLifeMs: 3_600_000 });
  asked = 0;
  moved();
  expect(asked).toBe(1);
});

test('waiting: after a reload a client waits once, and gets one lease', async () => {
  const kit = openKit();
  const client = wait(kit, { location: 'east' });
  kit.pool.reconfigure(poolSettings());
  for (const number of [1, 2, 3])
    kit.pool.addMembers('city', [drawn(kit, number, 180_000, { location: 'East' })]);
  await Promise.resolve();
  expect(client.isServed).toBe(true);
  expect(kit.pool.countsOf('city')?.openTunnels).toBe(1);
});

test('waiting: a client that gives up does not count towards those that emit demand.rose', () => {
  const kit = openKit();
  const emitted = () => kit.events('demand.rose').length;
  const counts = [1, 2, 3].map(() => {
    kit.clock.advance(1);
    const before = emitted();
    const client = request({}, { waitMs: 15_000 });
    void kit.pool.acquire(client);
    kit.pool.cancel(client.id);
    return emitted() - before;
  });
  expect(counts.slice(1)).toEqual([1, 1]);
});

test('life: of many members, the first 128 of a source say what is long', () => {
  const kit = openKit();
  for (let number = 0; number < 300; number += 1)
    kit.pool.addMembers('city', [drawn(kit, number, number >= 8 && number < 128 ? 600_000 : 60_000)]);
  expect(use(kit, { session: 's' }).member).toBe(idsOf(kit)[8]);
});
