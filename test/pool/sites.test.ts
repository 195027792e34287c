/** Sites: bans by exit and site, spacing, limits and the demand of clients whose exits are banned. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { EventBus } from '../../src/core/events.ts';
import { servedAt } from '../../src/pool/demand.ts';
import type { SiteRule } from '../../src/pool/options.ts';
import { DEFAULT_SITE_RULE } from '../../src/pool/options.ts';
import { Pair, Sites } from '../../src/pool/sites.ts';
import { decodeSnapshot } from '../../src/pool/stored-state.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { CITY, poolSettings } from '../support/pool-settings.ts';
import { runsOf } from '../support/properties.ts';
import {
  acquire,
  addMembers,
  close,
  drawn,
  openKit,
  type PoolKit,
  refusal,
  request,
  use,
} from './pool-kit.ts';

const AT_SHOP = { targetHost: 'www.shop.example' };
const MINUTE_MS = 60_000;

function rule(changes: Partial<SiteRule>): SiteRule {
  return { ...DEFAULT_SITE_RULE, match: ['shop.example', '*.shop.example'], ...changes };
}

function ban(
  kit: PoolKit,
  exit: string,
  changes: { forMs?: number; user?: string; host?: string } = {},
): void {
  kit.pool.banExit({ host: 'shop.example', exit, evidence: 'report', ...changes });
}

function exits(kit: PoolKit): string[] {
  return kit.pool.members().map(({ exitIp, host }) => exitIp ?? host);
}

test.each([
  ['shop.example', 'www.shop.example', true],
  ['a.shop.example', 'b.c.shop.example', true],
  ['shop.co.uk', 'other.co.uk', false],
  ['a.github.io', 'b.github.io', false],
  ['203.0.113.7', '203.0.113.8', false],
  ['2001:db8::1', '2001:db8::2', false],
  ['localhost', 'printer', false],
])('sites: %s and %s are one site: %s', (one, other, same) => {
  const { sites } = openKit().pool;
  expect(sites.of(one) === sites.of(other)).toBe(same);
});

test('sites: the first rule that matches names the site of its hosts', () => {
  const kit = openKit({
    targets: [rule({ match: ['Shop.example', '*.cdn.example'] }), rule({ match: ['*.shop.example'] })],
  });
  const { sites } = kit.pool;
  expect(sites.of('img.cdn.example')).toBe(sites.of('shop.example'));
  expect(sites.of('shop.example')).toMatchObject({ name: 'shop.example', isNamed: true });
  expect(sites.of('www.shop.example').name).toBe('*.shop.example');
  expect(sites.of('cdn.example')).toMatchObject({ name: 'cdn.example', isNamed: false });
});

test('sites: a banned exit is not used for its site, also on another port or by another member', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1)]);
  const own = use(kit, {}, AT_SHOP);
  ban(kit, own.host);
  kit.pool.addMembers('city', [drawn(kit, 1, 180_000, { port: 9000 }), drawn(kit, 2)]);
  for (let round = 0; round < 5; round += 1) expect(use(kit, {}, AT_SHOP).host).not.toBe(own.host);
  const bannedBy = kit.pool.members().map((member) => member.bannedBy.join());
  expect(bannedBy.sort()).toEqual(['', 'shop.example', 'shop.example']);
  const elsewhere = Array.from({ length: 6 }, () => use(kit, {}, { targetHost: 'other.example' }).host);
  expect(elsewhere).toContain(own.host);
});

test('sites: the exit IP decides, not the host of the member', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 180_000, { exitIp: '198.51.100.1' })]);
  ban(kit, '198.51.100.1');
  kit.pool.addMembers('city', [drawn(kit, 2, 180_000, { exitIp: '198.51.100.1' })]);
  expect(refusal(kit, {}, AT_SHOP).code).toBe('pool-empty');
});

test('sites: each further ban of a pair is twice as long, up to the maximum, and ok ends it', () => {
  const kit = openKit({
    targets: [rule({ spacing: 0, ban: { forMs: MINUTE_MS, maxMs: 3 * MINUTE_MS, onStatus: 'auto' } })],
  });
  addMembers(kit, 1, 3_600_000);
  const [exit = ''] = exits(kit);
  for (const minutes of [1, 2, 3, 3]) {
    ban(kit, exit);
    ban(kit, exit); // a second report of the same ban changes nothing
    kit.clock.advance(minutes * MINUTE_MS - 1);
    expect(refusal(kit, {}, AT_SHOP).code, `after ${minutes} min`).toBe('pool-empty');
    kit.clock.advance(1);
    use(kit, {}, AT_SHOP);
  }
  ban(kit, exit);
  kit.pool.unbanExit('shop.example', exit);
  use(kit, {}, AT_SHOP);
  ban(kit, exit);
  kit.clock.advance(MINUTE_MS);
  use(kit, {}, AT_SHOP);
});

test('sites: a named time is taken as it is, at most the maximum', () => {
  const kit = openKit({
    targets: [rule({ ban: { forMs: MINUTE_MS, maxMs: 2 * MINUTE_MS, onStatus: 'auto' } })],
  });
  addMembers(kit, 1, 3_600_000);
  const [exit = ''] = exits(kit);
  for (const [forMs, lasts] of [
    [5_000, 5_000],
    [600_000, 120_000],
  ] as const) {
    ban(kit, exit, { forMs });
    kit.clock.advance(lasts - 1);
    expect(refusal(kit, {}, AT_SHOP).code).toBe('pool-empty');
    kit.clock.advance(1);
    use(kit, {}, AT_SHOP);
  }
});

test('sites: a verdict counts up to ten minutes after the member left', () => {
  const kit = openKit();
  addMembers(kit, 1, 60_000);
  const { member, host } = use(kit, {}, AT_SHOP);
  kit.clock.advance(11 * MINUTE_MS);
  const late = { holder: { member }, host: 'shop.example', verdict: 'banned' } as const;
  expect(kit.pool.ban(late), 'left 10:03 ago').toBe(false);
  kit.pool.addMembers('city', [drawn(kit, 0, 60_000)]);
  const again = use(kit, { session: 'cart' }, AT_SHOP);
  expect(again.host).toBe(host);
  kit.clock.advance(9 * MINUTE_MS);
  expect(kit.pool.ban({ ...late, holder: { session: 'cart' } })).toBe(true);
  expect(kit.events('site.banned')).toMatchObject([{ exit: host }]);
});

test('sites: the verdict of one user counts for that user, and for everybody once a second user agrees', () => {
  const kit = openKit();
  addMembers(kit, 1);
  const [exit = ''] = exits(kit);
  const code = (user: string) => {
    const answer = kit.pool.acquire(request({ user }, AT_SHOP));
    return 'code' in answer ? answer.code : 'served';
  };
  ban(kit, exit, { user: 'ann' });
  expect(['ann', 'ben', 'eve'].map(code)).toEqual(['pool-empty', 'served', 'served']);
  ban(kit, exit, { user: 'ben' });
  expect(['ann', 'ben', 'eve'].map(code)).toEqual(['pool-empty', 'pool-empty', 'pool-empty']);
});

test('sites: bans survive a restart', () => {
  const kit = openKit();
  addMembers(kit, 2, 3_600_000);
  const [exit = '', other] = exits(kit);
  ban(kit, exit);
  const snapshot = decodeSnapshot(JSON.parse(JSON.stringify(kit.pool.snapshot())));
  if (snapshot === undefined) throw new Error('the snapshot is not valid');
  const next = openKit();
  next.pool.restore(snapshot, 4 * MINUTE_MS);
  expect(use(next, {}, AT_SHOP).host).toBe(other);
  expect(use(next, {}, AT_SHOP).host).toBe(other);
  next.clock.advance(6 * MINUTE_MS);
  expect([use(next, {}, AT_SHOP).host, use(next, {}, AT_SHOP).host]).toContain(exit);
});

test('sites: three interleaved sites use all exits equally often', () => {
  const kit = openKit();
  addMembers(kit, 9, 3_600_000);
  const counts = new Map<string, number>();
  for (let turn = 0; turn < 270; turn += 1) {
    const site = `site${turn % 3}.example`;
    const key = `${site} ${use(kit, {}, { targetHost: site }).host}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  expect(counts.size).toBe(27);
  expect([...counts.values()].every((count) => Math.abs(count - 10) <= 1)).toBe(true);
});

test('sites: spacing is learnt from the gap at which a ban came, and falls slowly', () => {
  const kit = openKit();
  addMembers(kit, 1, 7_200_000);
  const [exit = ''] = exits(kit);
  for (let turn = 0; turn < 4; turn += 1) {
    use(kit, {}, AT_SHOP);
    kit.clock.advance(4_000);
  }
  ban(kit, exit, { forMs: 1_000 });
  kit.clock.advance(4_001);
  expect(kit.pool.sites.views()).toMatchObject([{ name: 'shop.example', bans: 1, spacingMs: 8_000 }]);
  use(kit, {}, AT_SHOP);
  kit.clock.advance(7_999);
  expect(refusal(kit, {}, AT_SHOP).code).toBe('pool-empty');
  kit.clock.advance(1);
  use(kit, {}, AT_SHOP);
  kit.clock.advance(10 * MINUTE_MS);
  expect(kit.pool.sites.views()).toMatchObject([{ spacingMs: 7_200 }]);
});

/** Uses the only exit of the pool this often with this gap, and bans it. */
function useAndBan(kit: PoolKit, times: number, gapMs: number): void {
  const [exit = ''] = exits(kit);
  for (let turn = 0; turn < times; turn += 1) {
    use(kit, {}, AT_SHOP);
    if (turn < times - 1) kit.clock.advance(gapMs);
  }
  kit.pool.banExit({ host: 'shop.example', exit, evidence: 'report', source: 'city', forMs: 1_000 });
  kit.clock.advance(1_000);
}

const learntAfter = (kit: PoolKit) => kit.pool.sites.views()[0]?.spacingMs;

test('sites: a further ban raises the spacing a little above the gap at which it came', () => {
  const kit = openKit();
  addMembers(kit, 1, 7_200_000);
  useAndBan(kit, 4, 4_000);
  expect(learntAfter(kit)).toBe(8_000);
  kit.clock.advance(7_000);
  useAndBan(kit, 40, 8_000);
  expect(learntAfter(kit)).toBe(10_000);
});

test('sites: a ban teaches no spacing with which an exit could serve no more pages in its life', () => {
  const kit = openKit();
  addMembers(kit, 1, 180_000);
  useAndBan(kit, 7, 20_000); // 40 s between uses: four pages in three minutes
  expect(learntAfter(kit)).toBe(0);
});

test('sites: the exits that a site needs because of its spacing are demand for the sources that serve it', () => {
  const kit = openKit({ sources: [{ ...CITY, size: 20 }] });
  addMembers(kit, 8, 7_200_000);
  useAndBan(kit, 8 * 3, 500); // each exit every four seconds
  expect(learntAfter(kit)).toBe(8_000);
  kit.clock.advance(8_000);
  for (let turn = 0; turn < 60; turn += 1) {
    kit.clock.advance(2_000);
    use(kit, {}, AT_SHOP);
  }
  kit.clock.advance(1_000);
  const needed = kit.pool.demand('city').held ?? 0;
  expect(needed, 'half a request a second, eight seconds apart').toBeGreaterThanOrEqual(4);
  expect(needed).toBeLessThanOrEqual(5);
  kit.pool.reconfigure(
    poolSettings({
      sources: [
        { ...CITY, size: 20 },
        { ...CITY, name: 'town' },
      ],
    }),
  );
  expect(kit.pool.demand('town').held ?? 0, 'a source without requests').toBe(0);
});

test('sites: of several clients that wait for one slot, the later ones are demand', () => {
  const kit = openKit({ targets: [rule({ spacing: 5_000 })] });
  addMembers(kit, 1, 3_600_000);
  use(kit, {}, AT_SHOP);
  kit.clock.advance(1_000);
  const waiting = () => {
    void kit.pool.acquire(request({}, { ...AT_SHOP, waitMs: 15_000 }));
    return kit.pool.demand('city').waiting;
  };
  expect([waiting(), waiting(), waiting()], 'slots in 4, 9 and 14 s').toEqual([0, 1, 2]);
});

test('sites: a site without an exit is named while clients want it, until one is free', () => {
  const kit = openKit({ targets: [rule({ drawsForBans: 0 })] });
  addMembers(kit, 2, 3_600_000);
  const named = () => kit.pool.sites.withoutExit();
  use(kit, {}, AT_SHOP);
  const [one = '', two = ''] = exits(kit);
  ban(kit, one, { forMs: 5 * MINUTE_MS });
  kit.clock.advance(11_000);
  expect(refusalOrUse(kit)).toBe('used');
  ban(kit, two, { forMs: 2 * MINUTE_MS });
  expect(refusalOrUse(kit)).toBe('site-banned');
  expect(named(), 'served a moment ago').toEqual([]);
  kit.clock.advance(11_000);
  expect(named()).toEqual(['shop.example']);
  kit.clock.advance(MINUTE_MS);
  expect(named(), 'nobody wants it').toEqual([]);
  expect(refusalOrUse(kit)).toBe('site-banned');
  expect(named()).toEqual(['shop.example']);
  kit.clock.advance(MINUTE_MS - 10_000);
  expect(refusalOrUse(kit), 'the second ban has ended').toBe('used');
  expect(named()).toEqual([]);
});

function refusalOrUse(kit: PoolKit): string {
  const answer = kit.pool.acquire(request({}, { ...AT_SHOP, waitMs: 1 }));
  if (answer instanceof Promise) return 'waits';
  if ('code' in answer) return answer.code;
  close(kit, answer);
  return 'used';
}

test('sites: without spacing an exit is free at once, also at a fraction of a millisecond', () => {
  const kit = openKit();
  addMembers(kit, 1);
  kit.clock.advance(0.6);
  for (let turn = 0; turn < 3; turn += 1) use(kit, {}, AT_SHOP);
});

test('sites: a spacing that is set is kept, and other sites are free', () => {
  const kit = openKit({ targets: [rule({ spacing: 5_000 })] });
  addMembers(kit, 1);
  use(kit, {}, AT_SHOP);
  expect(refusal(kit, {}, AT_SHOP).code).toBe('pool-empty');
  use(kit, {}, { targetHost: 'other.example' });
  kit.clock.advance(5_000);
  use(kit, {}, AT_SHOP);
});

test('sites: at most tunnelsPerMember tunnels through one exit, and the end of one serves the next client', async () => {
  const kit = openKit({ targets: [rule({ tunnelsPerMember: 1 })] });
  addMembers(kit, 1);
  const tunnel = acquire(kit, {}, AT_SHOP);
  acquire(kit, {}, { targetHost: 'other.example' });
  const next = kit.pool.acquire(request({}, { ...AT_SHOP, waitMs: 5_000 }));
  close(kit, tunnel);
  await expect(next).resolves.toMatchObject({ member: tunnel.member });
});

test('sites: clients of a site with a rate are served in order at that rate, then refused with Retry-After', async () => {
  const kit = openKit({ clock: new ManualClock(), targets: [rule({ rate: 2 })] });
  addMembers(kit, 3);
  use(kit, {}, AT_SHOP);
  const clients = [1, 2, 3].map(() => kit.pool.acquire(request({}, { ...AT_SHOP, waitMs: 1_200 })));
  const answers: number[] = [];
  for (const [index, client] of clients.entries())
    void Promise.resolve(client).then((answer) => 'id' in answer && answers.push(index));
  kit.clock.advance(1_100);
  await clients[1];
  expect(answers).toEqual([0, 1]);
  kit.clock.advance(100);
  await expect(clients[2]).resolves.toMatchObject({ code: 'limit', retryAfterMs: 300 });
  use(kit, {}, { targetHost: 'other.example' });
  expect(refusal(kit, {}, AT_SHOP)).toMatchObject({ code: 'limit' });
});

test('sites: a client waits for a slot that comes soon, and is demand for a draw when none does', () => {
  const kit = openKit({ sources: [{ ...CITY, size: 2 }] });
  addMembers(kit, 2, 3_600_000);
  for (const exit of exits(kit)) ban(kit, exit, { forMs: 4_000 });
  const wait = () => kit.pool.acquire(request({}, { ...AT_SHOP, waitMs: 15_000 }));
  void wait();
  expect(kit.pool.demand('city')).toMatchObject({ waiting: 0 });
  for (const exit of exits(kit)) ban(kit, exit, { forMs: 20_000 });
  expect(kit.pool.demand('city'), 'the ban now lasts longer than the client waits').toMatchObject({
    waiting: 1,
    stranded: 1,
  });
});

test('sites: bans cause at most drawsForBans draws an hour, then site-banned at once', () => {
  const kit = openKit({ sources: [{ ...CITY, size: 2 }], targets: [rule({ drawsForBans: 3 })] });
  addMembers(kit, 2, 7_200_000);
  for (let draw = 0; draw < 3; draw += 1) {
    for (const exit of exits(kit)) ban(kit, exit, { forMs: 60 * MINUTE_MS });
    const client = kit.pool.acquire(request({}, { ...AT_SHOP, waitMs: 15_000 }));
    expect(client, `draw ${draw}`).toBeInstanceOf(Promise);
    expect(kit.pool.demand('city')).toMatchObject({ stranded: 1 });
    kit.pool.addMembers('city', [drawn(kit, 10 + draw, 7_200_000)]);
    kit.clock.advance(MINUTE_MS);
  }
  for (const exit of exits(kit)) ban(kit, exit, { forMs: 60 * MINUTE_MS });
  const refused = refusal(kit, {}, { ...AT_SHOP, waitMs: 15_000 });
  expect(refused).toMatchObject({ code: 'site-banned', retryAfterMs: 57 * MINUTE_MS });
  expect(refused.reason).toMatch(
    /^noria knows of 5 exits that this site has banned, since 3 min; .*\(3 for each source\)\.$/,
  );
  expect(kit.pool.sites.views()).toMatchObject([{ draws: 3, bannedExits: 5, usableExits: 0 }]);
  use(kit, {}, { targetHost: 'other.example' });
  kit.clock.advance(57 * MINUTE_MS);
  expect(kit.pool.acquire(request({}, { ...AT_SHOP, waitMs: 15_000 })), 'an hour later').not.toHaveProperty(
    'code',
  );
});

test('sites: a waiting client is refused when the last exit of its site is banned and no draw is left', async () => {
  const kit = openKit({
    sources: [{ ...CITY, size: 1 }],
    targets: [rule({ drawsForBans: 0, tunnelsPerMember: 1 })],
  });
  addMembers(kit, 1, 7_200_000);
  acquire(kit, {}, AT_SHOP);
  const client = kit.pool.acquire(request({}, { ...AT_SHOP, waitMs: 15_000 }));
  for (const exit of exits(kit)) ban(kit, exit);
  await expect(client).resolves.toMatchObject({ code: 'site-banned' });
});

test('sites: a site gets the exits that the sites with waiting clients cannot use', () => {
  const kit = openKit();
  addMembers(kit, 4, 3_600_000);
  const [one = '', , , four = ''] = exits(kit);
  for (const exit of [one, four]) ban(kit, exit);
  void kit.pool.acquire(request({ location: 'nowhere' }, { ...AT_SHOP, waitMs: 15_000 }));
  const used = [1, 2].map(() => use(kit, {}, { targetHost: 'other.example' }).host);
  expect(used).toEqual([one, four]);
});

test('sites: a rule may name the source of its site', () => {
  const kit = openKit({ sources: [CITY, { ...CITY, name: 'town' }], targets: [rule({ source: 'town' })] });
  addMembers(kit, 3);
  kit.pool.addMembers('town', [drawn(kit, 9)]);
  for (let turn = 0; turn < 3; turn += 1) expect(use(kit, {}, AT_SHOP).source).toBe('town');
  expect(use(kit, { source: 'city' }, AT_SHOP).source).toBe('city');
});

test('sites: the table is bounded, and sites used lately stay', () => {
  const kit = openKit();
  addMembers(kit, 1, 1e9);
  const first = kit.pool.sites.of('first.example');
  for (let number = 0; number < 12_000; number += 1) {
    kit.clock.advance(1);
    use(kit, {}, { targetHost: `site${number}.example` });
    if (number % 500 === 0) use(kit, {}, { targetHost: 'first.example' });
  }
  expect(kit.pool.sites.byName.size).toBeLessThanOrEqual(10_000);
  expect(kit.pool.sites.of('first.example')).toBe(first);
});

test('sites: of the bans that replicas and snapshots tell, the one that began later applies', () => {
  const kit = openKit({ clock: new ManualClock(), targets: [rule({ spacing: 0 })] });
  const { sites } = kit.pool;
  kit.clock.advance(100_000);
  const told = { site: 'shop.example', exit: 'x', source: 'city', forMs: 5_000, spacingMs: 0 };
  const adopt = (sinceAt: number, untilAt: number, changes = {}) => {
    sites.adopt({ ...told, ...changes, sinceAt, untilAt });
    return [...sites.bans()].map((ban) => [ban.sinceAt, ban.untilAt]);
  };
  expect(adopt(90_000, 200_000)).toEqual([[90_000, 200_000]]);
  expect(adopt(80_000, 300_000), 'it began earlier').toEqual([[90_000, 200_000]]);
  expect(adopt(90_000, 150_000), 'the same one, as a replica knew it before').toEqual([[90_000, 200_000]]);
  expect(adopt(90_000.4, 250_000)).toEqual([[90_000, 250_000]]);
  expect(adopt(95_000, 120_000)).toEqual([[95_000, 120_000]]);
  expect(adopt(95_000, 100_000), 'it was lifted').toEqual([]);
  expect(adopt(96_000, 120_000, { user: 'ann' })).toEqual([[96_000, 120_000]]);
  expect([...sites.bans()]).toEqual([{ ...told, sinceAt: 96_000, untilAt: 120_000, user: 'ann' }]);
  adopt(96_000, 120_000, { site: 'other.example', spacingMs: 4_000 });
  adopt(96_000, 120_000, { site: 'other.example', spacingMs: 3_000 });
  expect([...sites.bans()].at(-1), 'the greater spacing').toMatchObject({ spacingMs: 4_000 });
});

test('sites: the next ban of a pair that another replica told is twice as long as the last', () => {
  const kit = openKit({ targets: [rule({})] });
  const told = { site: 'shop.example', exit: 'x', source: '', sinceAt: 0, untilAt: 1, forMs: MINUTE_MS };
  kit.pool.sites.adopt({ ...told, spacingMs: 0 });
  kit.clock.advance(1);
  ban(kit, 'x');
  expect(kit.events('site.banned')).toMatchObject([{ forMs: 2 * MINUTE_MS }]);
});

test('sites: what the page shows of each site: its exits, and when the next of them is free', () => {
  const kit = openKit({ targets: [rule({ spacing: 5_000 })] });
  const slot = (inMs: number) => new Date(kit.clock.now() + inMs).toISOString();
  const view = (name = 'shop.example') => kit.pool.sites.views().find((site) => site.name === name);
  addMembers(kit, 2, 7_200_000);
  const [one = '', two = ''] = exits(kit);
  ban(kit, 'gone');
  expect(view()).toEqual({
    ...{ name: 'shop.example', uses: 0, bans: 1, bannedExits: 1, usableExits: 2, spacingMs: 5_000, draws: 0 },
    nextSlotAt: slot(0),
  });
  use(kit, {}, AT_SHOP);
  expect(view(), 'the other exit is free').toMatchObject({ uses: 1, nextSlotAt: slot(0) });
  kit.clock.advance(2_000);
  use(kit, {}, AT_SHOP);
  expect(view()).toMatchObject({ uses: 2, usableExits: 2, nextSlotAt: slot(3_000) });
  ban(kit, one, { forMs: 60_000 });
  expect(view()).toMatchObject({ bans: 2, bannedExits: 2, usableExits: 1, nextSlotAt: slot(5_000) });
  ban(kit, two, { forMs: 30_000 });
  expect(view()).toMatchObject({ bannedExits: 3, usableExits: 0, nextSlotAt: slot(30_000) });
  kit.clock.advance(30_000);
  expect(view()).toMatchObject({ bannedExits: 2, usableExits: 1, nextSlotAt: slot(0) });
  for (const { id } of kit.pool.members()) kit.pool.evict(id);
  expect(view()).toMatchObject({ bannedExits: 2, usableExits: 0, nextSlotAt: null });
  for (let turn = 0; turn < 3; turn += 1) refusal(kit, {}, { targetHost: 'other.example' });
  addMembers(kit, 1, 7_200_000, { port: 9_000 });
  for (let turn = 0; turn < 3; turn += 1) use(kit, {}, { targetHost: 'other.example' });
  expect(
    kit.pool.sites.views().map(({ name }) => name),
    'the busiest first',
  ).toEqual(['other.example', 'shop.example']);
});

test('sites: metrics name the spacing of the sites with a rule, and the greatest of all others', () => {
  const kit = openKit({
    clock: new ManualClock(),
    targets: [rule({ spacing: 5_000 })],
    rotation: { perHostSpacingMs: 700 },
  });
  const { sites } = kit.pool;
  for (const host of ['shop.example', 'one.example', 'two.example']) sites.of(host);
  expect(sites.namedSpacings()).toEqual(
    new Map([
      ['shop.example', 5_000],
      ['other', 700],
    ]),
  );
  sites.of('one.example').adoptSpacing(2_000, 0);
  sites.of('two.example').adoptSpacing(1_000, 0);
  expect(sites.namedSpacings().get('other')).toBe(2_000);
});

test.each([
  ['is twice the gap of the first ban', 4_000, 2, {}, 8_000],
  ['is at least a second', 200, 2, {}, 1_000],
  ['is at most five minutes', 200_000, 2, {}, 300_000],
  ['is not learnt from uses five minutes apart', 300_000, 2, {}, 0],
  ['is not learnt from one use', 4_000, 1, {}, 0],
  ['is not learnt against a rule', 4_000, 2, { spacing: 0 }, 0],
] as const)('sites: the learnt spacing %s', (_, gapMs, times, changes, expected) => {
  const kit = openKit({ targets: [rule(changes)] });
  addMembers(kit, 1, 86_400_000);
  useAndBan(kit, times, gapMs);
  expect(learntAfter(kit)).toBe(expected);
});

test('sites: a learnt spacing is forgotten when it has fallen below a second', () => {
  const kit = openKit({ clock: new ManualClock() });
  kit.pool.sites.of('shop.example').adoptSpacing(1_200, 0);
  kit.clock.advance(10 * MINUTE_MS);
  expect(learntAfter(kit)).toBe(1_080);
  kit.clock.advance(10 * MINUTE_MS);
  expect(learntAfter(kit)).toBe(0);
});

test('sites: a ban that an exit could outlive with the spacing teaches it, of a source that is not known, too', () => {
  const site = openKit().pool.sites.of('shop.example');
  const pair = Object.assign(new Pair(), { gapMs: 10_000, uses: 9 });
  site.learn(pair, 179_999, 0);
  expect([site.learntAt(0), pair.uses]).toEqual([0, 0]);
  site.learn(Object.assign(pair, { uses: 9 }), 180_000, 0);
  expect(site.learntAt(0)).toBe(20_000);
  site.learn(Object.assign(pair, { gapMs: 8_000, uses: 9 }), Number.POSITIVE_INFINITY, 0);
  expect(site.learntAt(0), 'a shorter gap does not lower it').toBe(20_000);
});

test('sites: pairs are dropped when there are too many, but no ban, open lease or recent use', () => {
  const kit = openKit({ targets: [rule({ ban: { forMs: 1_000, maxMs: 60_000, onStatus: 'auto' } })] });
  const site = kit.pool.sites.of('shop.example');
  kit.clock.advance(20 * MINUTE_MS);
  const now = kit.clock.monotonic();
  const pairs: Record<string, Partial<Pair>> = {
    'used before': { usedAt: now - 10 * MINUTE_MS - 1 },
    'used lately': { usedAt: now - 10 * MINUTE_MS },
    'in use': { openLeases: 1 },
    banned: { untilAt: now + 1, forMs: 1_000 },
    'banned for a named time': { untilAt: now + 1 },
    'ban doubles': { untilAt: now - 59_999, forMs: 1_000 },
    'ban is over': { untilAt: now - 60_000, forMs: 1_000 },
    'named ban is over': { untilAt: now },
  };
  for (const [exit, pair] of Object.entries(pairs)) site.pairs.set(exit, Object.assign(new Pair(), pair));
  Object.assign(site.pairOfUser('ann', 'x'), { untilAt: now + 1 });
  Object.assign(site.pairOfUser('bob', 'x'), { untilAt: now });
  const before = site.pairs.get('used before');
  site.prune(now);
  expect([...site.pairs.keys()]).toEqual([
    'used lately',
    'in use',
    'banned',
    'banned for a named time',
    'ban doubles',
  ]);
  expect([...(site.usersBans?.keys() ?? [])]).toEqual(['ann']);
  expect(before?.isDeleted).toBe(true);
});

test('sites: random verdicts end as a small model says, and a banned pair is never used', () => {
  const exit = fc.nat({ max: 3 });
  const site = fc.nat({ max: 2 });
  const step = fc.oneof(
    fc.record({
      do: fc.constant('ban' as const),
      exit,
      site,
      forMs: fc.option(fc.integer({ min: 1, max: 900_000 })),
    }),
    fc.record({ do: fc.constant('ok' as const), exit, site }),
    fc.record({ do: fc.constant('use' as const), site }),
    fc.record({ do: fc.constant('redraw' as const), exit }),
    fc.record({ do: fc.constant('restart' as const) }),
    fc.record({ do: fc.constant('pass' as const), ms: fc.integer({ min: 1, max: 400_000 }) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      let kit = openKit({ targets: [rule({ spacing: 0 })] });
      const untils = new Map<string, { until: number; forMs: number }>();
      let passedMs = 0; // the clocks of earlier runs
      const now = () => passedMs + kit.clock.monotonic();
      const hostOf = (number: number) => (number === 0 ? 'shop.example' : `other${number}.example`);
      const add = (number: number) => kit.pool.addMembers('city', [drawn(kit, number, 1e9)]);
      for (let number = 0; number < 4; number += 1) add(number);
      for (const action of steps) {
        if (action.do === 'pass') kit.clock.advance(action.ms);
        else if (action.do === 'redraw') {
          const member = kit.pool.members().find(({ host }) => host.endsWith(`.${action.exit + 1}`));
          if (member !== undefined) kit.pool.evict(member.id);
          kit.pool.addMembers('city', [drawn(kit, action.exit, 1e9, { port: 9000 })]);
        } else if (action.do === 'restart') {
          const snapshot = decodeSnapshot(JSON.parse(JSON.stringify(kit.pool.snapshot())));
          passedMs += kit.clock.monotonic();
          kit.pool.close();
          kit = openKit({ targets: [rule({ spacing: 0 })] });
          if (snapshot !== undefined) kit.pool.restore(snapshot, 0);
          for (const known of untils.values()) if (known.until <= now()) known.forMs = 0;
        } else if (action.do === 'use') {
          const answer = kit.pool.acquire(request({}, { targetHost: hostOf(action.site) }));
          const usable = kit.pool
            .members()
            .filter(({ host }) => (untils.get(`${host} ${action.site}`)?.until ?? 0) <= now() + 1);
          if ('code' in answer)
            expect(
              usable.filter(({ host }) => (untils.get(`${host} ${action.site}`)?.until ?? 0) <= now() - 1),
            ).toEqual([]);
          else if ('id' in answer) expect(usable.map(({ host }) => host)).toContain(answer.host);
        } else {
          const host = `203.0.0.${action.exit + 1}`;
          const key = `${host} ${action.site}`;
          const known = untils.get(key) ?? { until: 0, forMs: 0 };
          if (action.do === 'ok') {
            kit.pool.unbanExit(hostOf(action.site), host);
            if (known.until > now()) untils.set(key, { until: 0, forMs: 0 });
            continue;
          }
          kit.pool.banExit({
            host: hostOf(action.site),
            exit: host,
            evidence: 'report',
            forMs: action.forMs ?? undefined,
          });
          if (action.forMs !== null) untils.set(key, { ...known, until: now() + action.forMs });
          else if (known.until <= now()) {
            const forMs = known.forMs === 0 ? 600_000 : Math.min(86_400_000, 2 * known.forMs);
            untils.set(key, { until: now() + forMs, forMs });
          }
        }
      }
    }),
    { numRuns: runsOf(1_000) },
  );
});

test('sites: 100,000 banned pairs take less than 20 MiB', () => {
  const sites = new Sites(new ManualClock(), new EventBus(() => {}), () => {}); // a kit would keep the events
  setFlagsFromString('--expose-gc');
  const collect: () => void = runInNewContext('gc');
  const used = () => {
    collect();
    return process.memoryUsage().heapUsed;
  };
  const before = used();
  for (let number = 0; number < 100_000; number += 1) {
    // a flat string, as an exit of the service's answer is; the parts of a joined one would take memory, too
    const exit = Buffer.from(`203.${number >> 16}.${(number >> 8) & 255}.${number & 255}`).toString('latin1');
    sites.ban({ host: `shop${number % 10}.example`, exit, evidence: 'report' });
  }
  expect((used() - before) / 1024 / 1024).toBeLessThan(20);
  expect([...sites.bans()]).toHaveLength(100_000);
});

test('sites: a verdict ok of a user lifts the bans of that user and of everybody, one of an operator all', () => {
  const bansAfter = (user: string | undefined) => {
    const kit = openKit();
    addMembers(kit, 1);
    ban(kit, 'shared');
    ban(kit, 'x', { user: 'ann' });
    ban(kit, 'y', { user: 'bob' });
    expect(kit.pool.members().flatMap(({ bannedBy }) => bannedBy)).toEqual([]);
    for (const exit of ['shared', 'x', 'y']) kit.pool.unbanExit('shop.example', exit, user);
    return [...kit.pool.sites.bans()].map(({ exit }) => exit);
  };
  expect([bansAfter('ann'), bansAfter('bob'), bansAfter(undefined)]).toEqual([['y'], ['x'], []]);
});

test('sites: the ban of one user is no ban of the exit, and a pool without members has no site without an exit', () => {
  const kit = openKit({ targets: [rule({ drawsForBans: 0 })] });
  addMembers(kit, 1, 3_600_000);
  const [exit = ''] = exits(kit);
  ban(kit, exit, { user: 'ann' });
  kit.clock.advance(11_000);
  expect(kit.pool.members()).toMatchObject([{ bannedBy: [] }]);
  expect(refusal(kit, { user: 'ann' }, AT_SHOP).code).toBe('pool-empty');
  expect(kit.pool.sites.withoutExit()).toEqual([]);
  ban(kit, exit);
  expect(kit.pool.sites.withoutExit()).toEqual(['shop.example']);
  for (const { id } of kit.pool.members()) kit.pool.evict(id);
  expect(kit.pool.sites.withoutExit()).toEqual([]);
});

test('sites: a ban is over at its end, for everybody and for a user, and nobody waits a moment longer', async () => {
  for (const user of [undefined, 'ann']) {
    const kit = openKit({ targets: [rule({ spacing: 0 })] });
    addMembers(kit, 1, 7_200_000);
    const routing = user === undefined ? {} : { user };
    const [exit = ''] = exits(kit);
    kit.pool.banExit({ host: 'shop.example', exit, evidence: 'report', forMs: 20_000, user });
    kit.clock.advance(19_999);
    expect(refusal(kit, routing, AT_SHOP).code).toBe('pool-empty');
    const waiting = kit.pool.acquire(request(routing, { ...AT_SHOP, waitMs: 5_000 }));
    expect(kit.pool.sites.withoutExit()).toEqual(user === undefined ? ['shop.example'] : []);
    kit.clock.advance(1);
    await expect(waiting).resolves.toMatchObject({ waitedMs: 1 });
    expect(kit.pool.sites.withoutExit()).toEqual([]);
    expect(kit.pool.snapshot().bans).toEqual([]);
  }
});

test('sites: a client waits for the exit that is free first, in whatever order it sees them', async () => {
  for (const ends of [
    [20_000, 10_000],
    [10_000, 20_000],
  ]) {
    const kit = openKit({ targets: [rule({ spacing: 0 })] });
    addMembers(kit, 2, 7_200_000);
    for (const [index, forMs] of ends.entries()) ban(kit, exits(kit)[index] ?? '', { forMs });
    const waiting = kit.pool.acquire(request({}, { ...AT_SHOP, waitMs: 60_000 }));
    kit.clock.advance(10_000);
    await expect(waiting).resolves.toMatchObject({ waitedMs: 10_000 });
  }
});

test('sites: an exit that was banned but never used has no spacing, in the first minutes of the process, too', () => {
  const kit = openKit({ clock: new ManualClock(), targets: [rule({ spacing: 60_000 })] });
  addMembers(kit, 1, 7_200_000);
  const [exit = ''] = exits(kit);
  ban(kit, exit);
  kit.pool.unbanExit('shop.example', exit);
  expect(kit.pool.sites.views()).toMatchObject([{ nextSlotAt: new Date(kit.clock.now()).toISOString() }]);
  const { parts, sites } = kit.pool;
  const candidates = parts.members.index.find({}, 0);
  expect(servedAt(request({}, AT_SHOP), candidates, sites, 0)).toBe(0);
  use(kit, {}, AT_SHOP);
  expect(refusal(kit, {}, AT_SHOP).code).toBe('pool-empty');
});

test('sites: the gap of uses is their average, from the first moment of the process', () => {
  const kit = openKit({ clock: new ManualClock() });
  addMembers(kit, 1, 86_400_000);
  for (const gapMs of [10_000, 20_000, 0]) {
    use(kit, {}, AT_SHOP);
    kit.clock.advance(gapMs);
  }
  ban(kit, exits(kit)[0] ?? '');
  expect(learntAfter(kit)).toBe(30_000);
});

test('sites: an equal spacing begins anew, a shorter one does not, and a rule learns none', () => {
  const kit = openKit({ targets: [rule({ spacing: 0, match: ['ruled.example'] })] });
  const { sites } = kit.pool;
  const site = sites.of('shop.example');
  const start = kit.clock.monotonic();
  site.adoptSpacing(10_000, start);
  site.adoptSpacing(9_999, start + 4 * MINUTE_MS);
  expect(site.learntAt(start + 10 * MINUTE_MS)).toBe(9_000);
  site.adoptSpacing(10_000, start + 5 * MINUTE_MS);
  expect([12, 15].map((minutes) => site.learntAt(start + minutes * MINUTE_MS))).toEqual([10_000, 9_000]);
  const ruled = sites.of('ruled.example');
  ruled.learn(Object.assign(new Pair(), { gapMs: 10_000, uses: 2 }), Number.POSITIVE_INFINITY, start);
  expect(ruled.learntAt(start)).toBe(0);
});

test('sites: a reload gives hosts to the rules that now match them, and a rule may be of names and addresses', () => {
  const kit = openKit();
  const { sites } = kit.pool;
  const hosts = [
    'www.shop.example',
    'shop.example',
    '192.0.2.1',
    '2001:db8::1',
    'a.cdn.example',
    'cdn.example',
  ];
  const names = () => hosts.map((host) => sites.of(host).name);
  expect(names()).toEqual([
    'shop.example',
    'shop.example',
    '192.0.2.1',
    '2001:db8::1',
    'cdn.example',
    'cdn.example',
  ]);
  const match = ['Www.Shop.example', 'not a host!', '192.0.2.1', '*.cdn.example', ':443'];
  kit.pool.reconfigure(poolSettings({ targets: [rule({ match })] }));
  const name = 'www.shop.example';
  expect(names()).toEqual([name, 'shop.example', name, '2001:db8::1', name, 'cdn.example']);
});

test('sites: an exit that two members have stays until the second leaves', () => {
  const kit = openKit();
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000, { exitIp: 'x' })]);
  kit.pool.addMembers('city', [drawn(kit, 2, 90_000, { exitIp: 'x' })]);
  kit.pool.sites.of('shop.example');
  const usable = () => kit.pool.sites.views()[0]?.usableExits;
  const counts = [57_000, 30_000].map((ms) => {
    const before = usable();
    kit.clock.advance(ms);
    return [before, usable()];
  });
  expect(counts).toEqual([
    [1, 1],
    [1, 0],
  ]);
});

test('sites: a ban that changes nothing says nothing, and one that names another time is no new ban', () => {
  const kit = openKit();
  addMembers(kit, 1, 7_200_000);
  const [exit = ''] = exits(kit);
  ban(kit, exit);
  void kit.pool.acquire(request({}, { ...AT_SHOP, waitMs: 15_000 }));
  const rose = kit.events('demand.rose').length;
  ban(kit, exit);
  expect(kit.events('demand.rose')).toHaveLength(rose);
  ban(kit, exit, { forMs: 5_000 });
  expect([kit.events('site.banned').length, kit.pool.sites.views()[0]?.bans]).toEqual([1, 1]);
  kit.clock.advance(5_000);
  ban(kit, exit);
  expect(
    kit.events('site.banned').map(({ forMs }) => forMs),
    'the named time is not doubled',
  ).toEqual([600_000, 1_200_000]);
  kit.clock.advance(1_200_000);
  kit.pool.unbanExit('shop.example', exit); // a ban that is over is not lifted
  ban(kit, exit);
  expect(kit.events('site.banned').at(-1)).toMatchObject({ forMs: 2_400_000 });
});

test('sites: the ban of a user who reports again stays that of this user, and of another one is over at its end', () => {
  const kit = openKit({ targets: [rule({ spacing: 0 })] });
  addMembers(kit, 1, 7_200_000);
  const report = (user: string, forMs: number) =>
    kit.pool.banExit({ host: 'shop.example', exit: exits(kit)[0] ?? '', evidence: 'report', user, forMs });
  report('ann', 5_000);
  report('ann', 10_000);
  expect(use(kit, {}, AT_SHOP).member).toBeDefined();
  kit.clock.advance(10_000);
  report('bob', 10_000);
  expect(use(kit, {}, AT_SHOP).member).toBeDefined();
  report('ann', 10_000);
  expect(refusal(kit, {}, AT_SHOP).code).toBe('pool-empty');
});

test('sites: draws count for the source that made them', () => {
  const kit = openKit({ targets: [rule({ drawsForBans: 2 })] });
  const site = kit.pool.sites.of('shop.example');
  const now = kit.clock.monotonic();
  const { part } = kit.pool.parts.members.index;
  for (const source of ['city', 'city', 'town']) site.drew(source, now);
  const left = (laterMs: number) =>
    ['city', 'town', 'new'].map((source) => site.drawsLeft(source, part, now + laterMs));
  expect([left(0), left(3_599_999), left(3_600_000)]).toEqual([
    [0, 1, 2],
    [0, 1, 2],
    [2, 2, 2],
  ]);
});

test('sites: a member notices that its pair was forgotten', () => {
  const kit = openKit();
  addMembers(kit, 1, 7_200_000);
  use(kit, {}, AT_SHOP);
  const site = kit.pool.sites.of('shop.example');
  const prunedAfter = (ms: number) => {
    kit.clock.advance(ms);
    site.prune(kit.clock.monotonic());
    return site.pairs.size;
  };
  expect([prunedAfter(600_000), prunedAfter(1)]).toEqual([1, 0]);
  use(kit, {}, AT_SHOP);
  expect([...site.pairs.values()]).toMatchObject([{ uses: 1 }]);
});

test('sites: each member says which sites have banned its exit, after a restart, too', () => {
  const before = openKit();
  addMembers(before, 2);
  const [one = ''] = exits(before);
  const hosts = ['a.example', 'b.example'];
  for (const host of hosts) before.pool.banExit({ host, exit: one, evidence: 'report' });
  before.pool.banExit({ host: 'c.example', exit: one, evidence: 'report', user: 'ann' });
  const bannedBy = (kit: PoolKit) => kit.pool.members().map((member) => member.bannedBy);
  expect(bannedBy(before)).toEqual([hosts, []]);
  const after = openKit();
  after.pool.restore(before.pool.snapshot(), 10_000);
  expect(bannedBy(after)).toEqual([hosts, []]);
  after.pool.evict(after.pool.members()[1]?.id ?? '');
  refusal(after, {}, { targetHost: 'a.example' });
  expect(after.pool.sites.withoutExit()).toEqual([]);
  after.clock.advance(10_000);
  refusal(after, {}, { targetHost: 'a.example' });
  expect(after.pool.sites.withoutExit(), 'by a ban of the last run').toEqual(['a.example']);
});

test('sites: one without an exit was wanted in the last minute and not served for ten seconds', () => {
  const kit = openKit();
  addMembers(kit, 2, 7_200_000);
  for (const exit of exits(kit)) ban(kit, exit, { forMs: 3_600_000 });
  const named = (ms: number) => {
    kit.clock.advance(ms);
    return kit.pool.sites.withoutExit();
  };
  refusal(kit, {}, AT_SHOP);
  expect([named(9_999), named(1), named(50_000), named(1)]).toEqual([
    [],
    ['shop.example'],
    ['shop.example'],
    [],
  ]);
  refusal(kit, {}, AT_SHOP);
  kit.pool.unbanExit('shop.example', exits(kit)[0] ?? '');
  expect(named(0), 'one exit is free').toEqual([]);
  ban(kit, exits(kit)[0] ?? '', { forMs: 20_000 });
  expect([named(19_999), named(1)], 'its ban is over').toEqual([['shop.example'], []]);
});

test('sites: the page shows the hundred busiest', () => {
  const kit = openKit();
  for (let number = 0; number < 101; number += 1) kit.pool.sites.of(`s${number}.example`);
  expect(kit.pool.sites.views()).toHaveLength(100);
});

test('sites: at a fraction of a millisecond, no session takes its last use for a ban', () => {
  const kit = openKit();
  addMembers(kit, 2);
  kit.clock.advance(0.6);
  const { member } = use(kit, { session: 's' });
  expect(use(kit, { session: 's' }).member).toBe(member);
  expect(kit.events('session.moved')).toEqual([]);
});

test('sites: another exit than the last is picked, although a client waits for the same site', () => {
  const kit = openKit();
  for (const [number, exitIp] of ['a', 'a', 'b'].entries())
    kit.pool.addMembers('city', [drawn(kit, number, 180_000, { exitIp })]);
  void kit.pool.acquire(request({ minLifeMs: 180_001 }, { ...AT_SHOP, waitMs: 15_000 }));
  expect([use(kit, {}, AT_SHOP).exit, use(kit, {}, AT_SHOP).exit]).toEqual(['a', 'b']);
});

test('sites: of 300,000 pairs, those that no longer matter go first, then the sites used longest ago', () => {
  const clock = ManualClock.dayOld();
  const sites = new Sites(clock, new EventBus(() => {}), () => {});
  const fill = (name: string, count: number, isBanned = false) => {
    const site = sites.of(name);
    const untilAt = isBanned ? clock.monotonic() + 86_400_000 : 0;
    for (let exit = 0; exit < count; exit += 1) {
      const member = { exit: `${exit}`, lastSite: undefined, lastPair: undefined };
      const pair = sites.used(site, member, false, clock.monotonic());
      pair.openLeases = 0;
      pair.untilAt = untilAt;
    }
    clock.advance(601_000);
    return [...sites.byName.values()].map(({ pairs }) => pairs.size);
  };
  expect(fill('banned.example', 100_000, true)).toEqual([100_000]);
  expect(fill('old.example', 190_000)).toEqual([100_000, 190_000]);
  expect(fill('third.example', 10_000, true)).toEqual([100_000, 190_000, 10_000]);
  expect(fill('fourth.example', 1, true)).toEqual([100_000, 0, 10_000, 1]);
  expect(fill('fifth.example', 189_999, true)).toEqual([100_000, 0, 10_000, 1, 189_999]);
  expect(fill('sixth.example', 2, true), 'at most 270,000 stay').toEqual([0, 10_000, 1, 189_999, 2]);
});
