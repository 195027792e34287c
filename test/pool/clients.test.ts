/** What a client asks about its own requests and says about them, over a whole pool. */
import { expect, test } from 'vitest';
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
  use,
} from './pool-kit.ts';

const NOBODY = { session: undefined, tag: undefined };
const SHOP = { targetHost: 'www.shop.example' };

const say = (
  kit: PoolKit,
  name: { client: string; session?: string; tag?: string },
  verdict: 'banned' | 'ok',
  over: { host?: string; user?: string; forMs?: number } = {},
) =>
  kit.pool.leases.judge(
    { ...NOBODY, ...name },
    { verdict, host: over.host, forMs: over.forMs, user: over.user },
  );

test('clients: a member that accepts after another one has served the client gets no verdict of the client', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const me = { client: 'me', session: 'me:cart' };
  const slow = acquire(kit, me, SHOP);
  const served = acquire(kit, me, { ...SHOP, avoid: [slow.member], hedge: true });
  accept(kit, served);
  kit.pool.report({ lease: slow.id, kind: 'accepted', latencyMs: 400, late: true });
  close(kit, slow);
  close(kit, served);
  say(kit, me, 'banned');
  expect(kit.pool.snapshot().bans.map(({ exit }) => exit)).toEqual([served.exitIp ?? served.host]);
});

test('clients: a client is told its last request, its session and its tags', () => {
  const kit = openKit();
  addMembers(kit, 4);
  const cart = use(kit, { client: 'me', session: 'me:cart' }, SHOP);
  const tagged = use(kit, { client: 'me', tag: 'r1' }, { ...SHOP, avoid: ['gone'] });
  const last = use(kit, { client: 'me' }, { targetHost: 'api.other.example' });
  const describe = (name: object) => kit.pool.leases.describe({ client: 'me', ...NOBODY, ...name });
  expect(describe({ session: 'me:cart' })).toMatchObject({
    session: 'me:cart',
    tag: null,
    member: cart.member,
    exit: cart.exitIp ?? cart.host,
    expiresIn: 180,
    movesAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT.*Z$/),
    attempts: 1,
    sites: ['shop.example'],
  });
  expect(describe({ tag: 'r1' })).toMatchObject({ member: tagged.member, attempts: 2, movesAt: null });
  expect(describe({})).toMatchObject({ session: null, member: last.member, sites: ['other.example'] });
  expect(describe({ session: 'me:other' })).toEqual({
    session: 'me:other',
    tag: null,
    member: null,
    exit: null,
    location: null,
    expiresIn: null,
    movesAt: null,
    attempts: null,
    sites: [],
  });
  expect(kit.pool.leases.describe({ client: 'you', ...NOBODY, tag: 'r1' }).member).toBeNull();
});

test('clients: the last 4,096 tags of a client are remembered', () => {
  const kit = openKit();
  addMembers(kit, 2);
  for (let number = 0; number < 4_097; number += 1) use(kit, { client: 'me', tag: `t${number}` });
  const knows = (tag: string) =>
    kit.pool.leases.describe({ client: 'me', session: undefined, tag }).member !== null;
  expect([knows('t0'), knows('t1'), knows('t4096')]).toEqual([false, true, true]);
});

test('clients: without users, a verdict counts for everybody at once, and ok lifts it', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const { member } = use(kit, { client: 'local', tag: 'a' }, SHOP);
  expect(say(kit, { client: 'local', tag: 'a' }, 'banned')).toEqual({ host: 'www.shop.example' });
  const shop = () => Array.from({ length: 4 }, () => use(kit, { client: 'local' }, SHOP).member);
  expect(shop()).not.toContain(member);
  expect(Array.from({ length: 4 }, () => use(kit, { client: 'local' }).member)).toContain(member);
  say(kit, { client: 'local', tag: 'a' }, 'ok');
  expect(shop()).toContain(member);
});

test("clients: a user's verdict counts for this user, and for everybody once two users agree", () => {
  const kit = openKit();
  addMembers(kit, 2, 36_000_000);
  const route = (user: string) => ({ client: user, user, tag: 'a' });
  const members = (user: string) =>
    Array.from({ length: 4 }, () => {
      kit.clock.advance(301_000); // a ban raises the spacing of the site
      return use(kit, { client: user, user }, SHOP).member;
    });
  const banned = use(kit, route('ann'), SHOP).member;
  expect(say(kit, route('ann'), 'banned', { user: 'ann', forMs: 18_000_000 })).toEqual({
    host: 'www.shop.example',
  });
  expect(members('ann')).not.toContain(banned);
  expect(members('bob')).toContain(banned);
  const next = () => {
    kit.clock.advance(301_000);
    return use(kit, route('bob'), SHOP).member;
  };
  for (let again = next(); again !== banned; again = next());
  say(kit, route('bob'), 'banned', { user: 'bob', forMs: 18_000_000 });
  expect(members('eve')).not.toContain(banned);
});

test('clients: a verdict needs a host only after several sites, and a known request', () => {
  const kit = openKit();
  addMembers(kit, 2);
  use(kit, { client: 'me', session: 's' }, { targetHost: 'a.shop.example' });
  use(kit, { client: 'me', session: 's' }, { targetHost: 'b.shop.example' });
  expect(say(kit, { client: 'me', session: 's' }, 'ok')).toEqual({ host: 'a.shop.example' });
  use(kit, { client: 'me', session: 's' }, { targetHost: 'other.example' });
  expect(say(kit, { client: 'me', session: 's' }, 'ok')).toBe('host-needed');
  expect(say(kit, { client: 'me', session: 'unknown' }, 'ok', { host: 'a.example' })).toBe('unknown');
  expect(say(kit, { client: 'me', tag: 'unknown' }, 'ok', { host: 'a.example' })).toBe('unknown');
});

test('clients: a verdict about a member that has left still bans its exit, also on another port', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000)]);
  const first = use(kit, { client: 'local', tag: 'a' }, SHOP);
  kit.clock.advance(9 * 60_000);
  say(kit, { client: 'local', tag: 'a' }, 'banned', { forMs: 600_000 });
  kit.pool.addMembers('city', [drawn(kit, 1, 600_000, { port: 9_000 })]);
  expect(use(kit, { client: 'local' }).host).toBe(first.host);
  expect(refusal(kit, { client: 'local' }, SHOP).code).toBeOneOf(['pool-empty', 'site-banned']);
});

test("clients: close names the open tunnels of the client's session to the site", () => {
  const kit = openKit();
  addMembers(kit, 2);
  const open = (session: string, targetHost: string) => {
    const lease = acquire(kit, { client: 'me', session }, { targetHost });
    accept(kit, lease);
    return lease;
  };
  const leases = [open('s', 'a.shop.example'), open('s', 'other.example'), open('t', 'a.shop.example')];
  const name = { client: 'me', session: 's', tag: undefined };
  expect(kit.pool.leases.to(name, 'b.shop.example')).toEqual([leases[0]?.id]);
  for (const lease of leases) close(kit, lease);
});

test('clients: the latest use that several processes know has the sites of all, but only for a session or a tag', () => {
  const [here, there] = [openKit(), openKit()];
  const name = { client: 'me', session: 's', tag: 'r' };
  const used = (kit: PoolKit, targetHost: string) => {
    addMembers(kit, 1);
    kit.clock.advance(1_000);
    use(kit, name, { targetHost });
    return kit.pool.leases.lastUse(name);
  };
  there.clock.advance(5_000);
  const late = used(there, 'b.example');
  const early = used(here, 'a.example');
  const hosts = ['a.example', 'b.example'];
  const latest = (asked: object) =>
    here.pool.leases.latest({ client: 'me', ...NOBODY, ...asked }, [late, undefined, early]);
  expect(latest({ session: 's' })).toEqual({ ...late, hosts });
  expect(latest({ tag: 'r' })).toEqual({ ...late, hosts });
  expect(latest({})).toBe(late);
  expect(here.pool.leases.latest(name, [undefined])).toBeUndefined();
});

test('clients: a session moves minRemaining before its member ends; a fixed one and one without an end do not', () => {
  const kit = openKit({ minRemainingMs: 10_000 });
  addMembers(kit, 2);
  const movesAt = (session: string) => kit.pool.leases.describe({ client: 'me', ...NOBODY, session }).movesAt;
  use(kit, { client: 'me', session: 's' });
  expect(movesAt('s')).toBe(new Date(kit.clock.now() + 170_000).toISOString());
  use(kit, { client: 'me', session: 'f', fixed: true });
  expect(movesAt('f')).toBeNull();
  const endless = openKit();
  endless.pool.addMembers('city', [drawn(endless, 1, 0, { endsAt: undefined })]);
  use(endless, { client: 'me', session: 's' });
  expect(endless.pool.leases.describe({ client: 'me', ...NOBODY, session: 's' })).toMatchObject({
    expiresIn: null,
    movesAt: null,
  });
});

test('clients: a tag names its session, and says nothing of the member to which the session has moved since', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const first = use(kit, { client: 'me', session: 's', tag: 'r' });
  const tagged = () => kit.pool.leases.describe({ client: 'me', session: undefined, tag: 'r' });
  expect(tagged()).toMatchObject({ session: 's', movesAt: expect.any(String) });
  fail(kit, acquire(kit, { client: 'me', session: 's' }));
  const next = use(kit, { client: 'me', session: 's' }, { avoid: [first.member] });
  expect(next.member).not.toBe(first.member);
  expect(tagged()).toMatchObject({ session: 's', member: first.member, movesAt: null });
});

test('clients: a session that another process served gets a verdict that names its host, a tag of it does not', () => {
  const kit = openKit();
  addMembers(kit, 2);
  const member = kit.pool.members()[0];
  const record = { user: '', address: '', member: member?.id ?? '', ttlMs: 600_000, idleMs: 0, uses: 1 };
  kit.pool.parts.sessions.restore([['s', { record, ageMs: 0 }]]);
  const me = { client: 'me', session: 's' };
  expect(say(kit, me, 'banned')).toBe('host-needed');
  expect(say(kit, { ...me, tag: 'r' }, 'banned', { host: 'www.shop.example' })).toBe('unknown');
  expect(kit.pool.snapshot().bans).toEqual([]);
  expect(say(kit, me, 'banned', { host: 'www.shop.example' })).toEqual({ host: 'www.shop.example' });
  expect(kit.pool.snapshot().bans).toHaveLength(1);
  expect(use(kit, {}, SHOP).member).not.toBe(member?.id);
});
