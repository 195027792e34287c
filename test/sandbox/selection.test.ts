/** Which proxies the parameters select, and the counters of an answer. */
import { expect, test } from 'vitest';
import { ManualClock } from '../support/manual-clock.ts';
import { runsOf } from '../support/properties.ts';
import { ask, draw, open, seeded } from './client.ts';

const MINUTE = 60;

test.each([
  ['short-classic', '0', 1 * MINUTE, 6 * MINUTE],
  ['short-classic', '5', 5 * MINUTE, 6 * MINUTE],
  ['short-socks5', '3', 3 * MINUTE, 6 * MINUTE],
  ['shared', '3', 3 * MINUTE, 10 * MINUTE],
  ['long-residential', '29', 29 * MINUTE, 30 * MINUTE],
  ['residential-socks5', '6', 6 * MINUTE, 30 * MINUTE],
  ['short-pure', '3', 3 * MINUTE, 6 * MINUTE],
] as const)(
  'timespan: %s with %s selects lives of %i to %i seconds',
  async (product, timespan, least, most) => {
    const sandbox = await open();
    const entries = await draw(sandbox, product, { timespan, count: '20' });
    expect(entries).toHaveLength(20);
    for (const { timeout, expired_seconds } of entries) {
      const seconds = Number(timeout ?? expired_seconds);
      expect(seconds).toBeGreaterThanOrEqual(least);
      expect(seconds).toBeLessThanOrEqual(most);
    }
  },
);

test('timespan: a proxy is handed out again only while enough of its life remains', async () => {
  const clock = new ManualClock();
  const sandbox = await open({ clock, members: 3, random: () => 0 });
  const first = await draw(sandbox, 'short-classic', { timespan: '3' });
  expect(first.map(({ timeout }) => timeout)).toEqual([180, 180, 180]);
  clock.advance(10_000);
  expect((await draw(sandbox, 'short-classic', { timespan: '2' })).map(({ timeout }) => timeout)).toEqual([
    170, 170, 170,
  ]);
  clock.advance(10_000);
  expect((await ask(sandbox, 'short-classic', { timespan: '3' })).code).toBe('12009');
});

test('lifetimeMs: overrides timespan', async () => {
  const sandbox = await open({ lifetimeMs: [2_000, 2_000] });
  const entries = await draw(sandbox, 'long-residential', { timespan: '29' });
  expect(entries.map(({ timeout }) => timeout)).toEqual([2, 2, 2]);
});

test('adr and nadr: select locations with any keyword of adr and none of nadr', async () => {
  const sandbox = await open({ paceMs: 0 });
  for (const { adr } of await draw(sandbox, 'short-classic', { adr: '广东,江苏', count: '20' })) {
    expect(adr).toMatch(/^(广东|江苏)省/);
  }
  for (const { adr } of await draw(sandbox, 'shared', { adr: '广东', nadr: '电信,移动' })) {
    expect(adr).toMatch(/^广东省.+联通$/);
  }
});

test('tunnel: selects public and reverse proxies, public ones, or reverse ones', async () => {
  const sandbox = await open({
    paceMs: 0,
    random: seeded(7),
    members: 60,
    instances: [{ product: 'long-residential', singlePullLimit: 20 }],
  });
  const timeouts = async (tunnel: string) =>
    (await draw(sandbox, 'long-residential', { tunnel, count: '20' })).map(({ timeout }) => Number(timeout));
  expect(new Set(await timeouts('3'))).toEqual(new Set([-1]));
  expect(Math.min(...(await timeouts('2')))).toBeGreaterThan(0);
  const both = new Set((await timeouts('1')).map((timeout) => timeout === -1));
  expect(both).toEqual(new Set([true, false]));
});

test('reverse proxies: share one address, have separate exits, and expire', async () => {
  const clock = new ManualClock();
  const sandbox = await open({ clock, lifetimeMs: 5_000 });
  const entries = await draw(sandbox, 'long-residential', { tunnel: '3' });
  expect(new Set(entries.map(({ ip }) => ip)).size).toBe(1);
  expect(new Set(entries.map(({ outip }) => outip)).size).toBe(3);
  clock.advance(5_000);
  expect(sandbox.members()).toEqual([]);
});

test('order: 1 sorts by remaining life, longest first', async () => {
  const sandbox = await open({ paceMs: 0, clock: new ManualClock() });
  for (const product of ['shared', 'exclusive'] as const) {
    const lives = (await draw(sandbox, product, { order: '1', count: '20' })).map(({ timeout }) =>
      Number(timeout),
    );
    expect(lives).toEqual(lives.toSorted((a, b) => b - a));
    const atRandom = (await draw(sandbox, product, { order: '2', count: '20' })).map(({ timeout }) =>
      Number(timeout),
    );
    expect(
      atRandom.toSorted((a, b) => b - a),
      'the same ones',
    ).toEqual(lives);
    expect(atRandom).not.toEqual(lives);
  }
});

test('pro: HTTP and SOCKS5 are different proxies', async () => {
  const sandbox = await open({ paceMs: 0, members: 2 });
  await draw(sandbox, 'shared', { pro: '1' });
  await draw(sandbox, 'shared', { pro: '2' });
  expect(sandbox.members().map(({ protocol }) => protocol)).toEqual(['http', 'http', 'socks5', 'socks5']);
});

test('count: defaults to the single-pull limit, and is limited by the number of proxies', async () => {
  const sandbox = await open({
    paceMs: 0,
    members: 7,
    instances: [{ product: 'short-classic', singlePullLimit: 5 }],
  });
  expect(await draw(sandbox, 'short-classic', { count: undefined })).toHaveLength(5);
  const second = await draw(sandbox, 'short-classic', { count: undefined });
  expect(second).toHaveLength(5);
  expect(sandbox.members()).toHaveLength(7);
  const all = await draw(sandbox, 'short-classic', { count: '5' });
  expect(new Set(all.map(({ ip }) => ip)).size, 'repeated, but none twice in one answer').toBe(5);
});

test('free: applies every filter', async () => {
  const sandbox = await open({ paceMs: 0, members: 100 });
  const wanted = {
    dalu: '0',
    level_type: '3',
    lastcheck_type: '1',
    sleep_type: '1',
    alive_type: '7',
    count: '20',
  };
  for (const { adr, level } of await draw(sandbox, 'free', wanted)) {
    expect(adr).toMatch(/^(日本|新加坡|德国|美国)$/);
    expect(level).toBe('匿名');
  }
  for (const [value, label] of Object.entries({ '1': 'http', '2': 'socks4', '3': 'socks5', '4': 'https' })) {
    const labels = (await draw(sandbox, 'free', { protocol_type: value })).map(({ protocol }) => protocol);
    expect(new Set(labels)).toEqual(new Set([label]));
  }
  for (const { adr } of await draw(sandbox, 'free', { isp: '电信' })) expect(adr).toMatch(/电信$/);
});

test('free: a proxy is handed out again only to a call whose filters it matches', async () => {
  const worst = await open({ paceMs: 0, members: 1, random: () => 0.99 });
  await draw(worst, 'free', { protocol_type: '1' });
  const code = async (params: Record<string, string>) =>
    (await ask(worst, 'free', { protocol_type: '1', ...params })).code;
  for (const name of ['lastcheck_type', 'sleep_type', 'level_type']) {
    expect(await code({ [name]: '5' }), name).toBe('10001');
    expect(await code({ [name]: '4' }), name).toBe('12009');
  }
  expect(await code({ protocol_type: '4' }), 'the same protocol under another label').toBe('12009');
  const young = await open({ paceMs: 0, members: 1, random: () => 0 });
  await draw(young, 'free');
  expect((await ask(young, 'free', { alive_type: '1' })).code).toBe('12009');
});

test('residential counters: new in this call, alive, drawn today, remaining', async () => {
  const sandbox = await open({
    paceMs: 0,
    instances: [{ product: 'long-residential', members: 4, distinctLimit: 10 }],
  });
  const counters = async () => {
    const { data } = await ask(sandbox, 'long-residential');
    return [data?.['update_count'], data?.['active_count'], data?.['today_count'], data?.['surplus_count']];
  };
  expect(await counters()).toEqual([3, 3, 3, 7]);
  expect(await counters()).toEqual([1, 4, 4, 6]);
  await Promise.all(sandbox.members().map(({ id }) => sandbox.kill(id)));
  expect(await counters()).toEqual([3, 3, 7, 3]);
});

test("distinct limit: new exits up to the limit, then 12010 until the service's midnight", async () => {
  const clock = new ManualClock(Date.UTC(2030, 0, 1, 15, 59, 50)); // ten seconds before midnight at UTC+8
  const sandbox = await open({
    clock,
    paceMs: 0,
    instances: [{ product: 'residential-socks5', distinctLimit: 2 }],
  });
  expect(await draw(sandbox, 'residential-socks5')).toHaveLength(2);
  expect((await ask(sandbox, 'residential-socks5')).code).toBe('12010');
  clock.advance(9_999);
  expect((await ask(sandbox, 'residential-socks5')).code).toBe('12010');
  clock.advance(1);
  expect((await ask(sandbox, 'residential-socks5')).code).toBe('10001');
});

test('distinct limit: pay-per-use counts in total, even extraction reports no surplus', async () => {
  const clock = new ManualClock();
  const sandbox = await open({
    clock,
    paceMs: 0,
    instances: [
      { product: 'long-residential', accounting: 'pay-per-use', distinctLimit: 3 },
      { product: 'residential-socks5', accounting: 'even', distinctLimit: 1 },
    ],
  });
  expect((await ask(sandbox, 'long-residential')).data?.['surplus_count']).toBe(0);
  clock.advance(86_400_000);
  expect((await ask(sandbox, 'long-residential')).code).toBe('12010');
  const { data } = await ask(sandbox, 'residential-socks5');
  expect(data).toMatchObject({ count: 3, update_count: 3, today_count: 3 });
  expect(data).not.toHaveProperty('surplus_count');
});

test('pure edition: data and msg report new and remaining exits; dedup excludes those drawn today', async () => {
  const sandbox = await open({
    paceMs: 0,
    instances: [{ product: 'short-pure', members: 4, distinctLimit: 100 }],
  });
  const first = await ask(sandbox, 'short-pure');
  expect(first.data).toMatchObject({ dedup_count: 3, today_left_count: 97 });
  expect(first.msg).toMatch(/3.*97/);
  const second = await ask(sandbox, 'short-pure');
  expect(second.data).toMatchObject({ count: 3, dedup_count: 1, today_left_count: 96 });
  const fresh = second.data?.proxy_list.map((entry) => entry['is_new_dedup']);
  expect(fresh?.toSorted()).toEqual([false, false, true]);
  expect((await ask(sandbox, 'short-pure', { dedup: '1' })).code).toBe('12009');
});

test("pure edition: hands out only known exits once the day's limit is reached", async () => {
  const sandbox = await open({ paceMs: 0, instances: [{ product: 'short-pure', distinctLimit: 2 }] });
  expect((await ask(sandbox, 'short-pure')).data).toMatchObject({ count: 2, today_left_count: 0 });
  const again = await ask(sandbox, 'short-pure');
  expect(again.data).toMatchObject({ count: 2, dedup_count: 0, today_left_count: 0 });
});

test('cometime and timeout: one grows, the other shrinks', async () => {
  const clock = new ManualClock();
  const sandbox = await open({ clock, members: 1, lifetimeMs: 60_000 });
  const [before] = await draw(sandbox, 'exclusive');
  clock.advance(10_000);
  const [after] = await draw(sandbox, 'exclusive');
  expect(Number(after?.['timeout'])).toBe(Number(before?.['timeout']) - 10);
  expect(Number(after?.['cometime'])).toBe(Number(before?.['cometime']) + 10);
});

test('repeats: false: every draw of a small instance gets other exits, as often as it is drawn', async () => {
  const sandbox = await open({ members: 2, repeats: false, paceMs: 0, lifetimeMs: 600_000 });
  const draws = runsOf(500);
  const exits: unknown[] = [];
  for (let at = 0; at < draws; at += 1)
    exits.push(...(await draw(sandbox, 'short-classic', { count: '1' })).map(({ ip }) => ip));
  expect(exits).toHaveLength(draws);
  expect(new Set(exits).size).toBe(draws);
});
