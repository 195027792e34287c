/**
 * Each call of proxyPool answers as the known pools do. proxy-pool.test.ts also runs with two workers. These tests do not,
 * because a worker takes no part in these answers.
 */
import { expect, test } from 'vitest';
import { rawRequest } from '../admin/open-test-admin.ts';
import { PORTS, startWithPorts } from './proxy-pool-stage.ts';

test('proxyPool: every call answers as the known pools do', async () => {
  const { first, api, get } = await startWithPorts();
  const proxies = Array.from({ length: PORTS }, (_, index) => `127.0.0.1:${first + index}`);
  const one = await get('/get/');
  expect(one).toEqual({
    proxy: proxies[0],
    https: true,
    fail_count: 0,
    region: expect.any(String),
    anonymous: '',
    source: 'pure',
    check_count: 0,
    last_status: true,
    last_time: expect.stringMatching(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/),
    expires_in: expect.any(Number),
  });
  expect(await get('/get?type=https')).toMatchObject({ proxy: proxies[1] });
  expect(await get('/pop/')).toMatchObject({ proxy: proxies[2] });
  expect(await (await fetch(`${api}/random`)).text()).toBe(proxies[3]);
  for (const path of ['/all/', '/get_all', '/get_all/?type=https&source=pure']) {
    const all = (await get(path)) as { proxy: string }[];
    expect(
      all.map(({ proxy }) => proxy),
      path,
    ).toEqual(proxies);
  }
  expect(await (await fetch(`${api}/all`)).text()).toBe(proxies.map((proxy) => `${proxy}\n`).join(''));
  const count = { count: { total: PORTS, https: PORTS }, source: { pure: PORTS } };
  expect([await get('/count/'), await get('/get_status/')]).toEqual([count, count]);
  expect(await (await fetch(`${api}/count`)).text()).toBe(String(PORTS));
  expect(await get(`/delete/?proxy=${proxies[0]}`)).toEqual({ code: 0, src: 1 });
  expect(await get(`/delete?proxy=http://${proxies[0]}`), 'deleted already').toEqual({ code: 0, src: 0 });
  for (const proxy of ['', '203.0.113.7:8000', `203.0.113.7:${first}`, 'nonsense']) {
    expect(await get(`/delete/?proxy=${proxy}`), proxy).toEqual({ code: 0, src: 0 });
  }
  expect(await get('/')).toHaveProperty('url');
});

test('proxyPool: without a member, get answers in the words of the known pools, and random says when to try again', async () => {
  const { noria, sandbox, api, get } = await startWithPorts();
  noria.control.pauseSource('pure');
  for (const { id } of noria.control.members()) noria.control.evictMember(id);
  for (const path of ['/get/', '/pop/', '/get/?source=nowhere']) {
    const answer = await fetch(api + path);
    expect([answer.status, await answer.json()], path).toEqual([200, { code: 0, src: 'no proxy' }]);
  }
  expect(await get('/all/')).toEqual([]);
  expect(await get('/count/')).toEqual({ count: { total: 0, https: 0 }, source: {} });
  const random = await fetch(`${api}/random`);
  expect([random.status, random.headers.get('retry-after')]).toEqual([503, '60']);
  expect(await random.text()).toMatch(/^no proxy: No member .* is free\. Source pure: paused \(.*\)\.\n$/);
  expect(sandbox.strangers()).toEqual([]);
});

test('proxyPool: get waits for the draw that it causes', async () => {
  const { noria, sandbox, get } = await startWithPorts();
  const before = sandbox.stats().calls;
  for (const { id } of noria.control.members()) noria.control.evictMember(id);
  expect(await get('/get/')).toMatchObject({ source: 'pure' });
  expect(sandbox.stats().calls).toBe(before + 1);
});

test('proxyPool: requests that a web page could send are refused, and change nothing', async () => {
  const { api, first, get } = await startWithPorts();
  const host = new URL(api).host;
  await get('/get/');
  const refused: [Record<string, string>, number][] = [
    [{ host: 'rebound.example:5010' }, 421],
    [{ host, origin: 'http://evil.example' }, 403],
    [{ host, 'sec-fetch-site': 'cross-site' }, 403],
    [
      { host, 'sec-fetch-site': 'same-site', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' },
      403,
    ],
  ];
  for (const [headers, status] of refused) {
    expect(await rawRequest(`${api}/delete/?proxy=127.0.0.1:${first}`, headers)).toBe(status);
  }
  expect(await rawRequest(`${api}/pop/`, { host }, 'POST')).toBe(405);
  expect(await rawRequest(`${api}/nothing`, { host })).toBe(404);
  expect(await get(`/delete/?proxy=127.0.0.1:${first}`)).toEqual({ code: 0, src: 1 });
});
