/** Which member a request gets, and whether the clients that wait behind it may get another one. */
import { expect, test } from 'vitest';
import { isLease, type LeaseRequest, type RoutingOptions } from '../../src/pool/lease.ts';
import { DEFAULT_SITE_RULE } from '../../src/pool/options.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { CITY } from '../support/pool-settings.ts';
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
