/**
 * A scraper that only knows the API of a raw proxy pool works with noria unchanged: it loses no page while members die, and each
 * call of the API answers as those pools do.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { expect, onTestFinished, test } from 'vitest';
import { rawRequest } from '../admin/open-test-admin.ts';
import { curl } from '../support/curl.ts';
import { childEnvironment } from '../support/environment.ts';
import { freePort, freePorts } from '../support/free-port.ts';
import { openTestSandbox, sourceLine, startNoria, testConfig, untilReady } from '../support/noria.ts';
import { PYTHON } from '../support/python.ts';
import { hasCommand } from '../support/tools.ts';

const PORTS = 6;

/**
 * A scraper in the style of scrapers for raw pools: it gets a proxy, uses it, deletes it when it fails, and tries
 * again.
 */
const SCRAPER = `
import sys, requests

def get_proxy():
    return requests.get("http://%s/get/" % sys.argv[1]).json()

def delete_proxy(proxy):
    requests.get("http://%s/delete/?proxy={}".format(proxy) % sys.argv[1])

def get_page(url):
    for attempt in range(5):
        proxy = get_proxy().get("proxy")
        try:
            answer = requests.get(url, proxies={"http": "http://{}".format(proxy)}, timeout=30)
            answer.raise_for_status()
            return answer.text.strip()
        except Exception:
            delete_proxy(proxy)
    return None

for url in sys.stdin:
    print(get_page(url.strip()), flush=True)
`;

async function startWithPorts({ members = 12, size = PORTS, more = '', listeners = '' } = {}) {
  const first = await freePorts(PORTS);
  const sandbox = await openTestSandbox({
    members,
    lifetimeMs: 600_000,
    instances: [{ product: 'short-pure' }],
  });
  const options = {
    sources: [
      sourceLine(sandbox, 'pure', 'short-pure', `interval: 200ms, size: ${size}, params: { count: ${size} }`),
    ],
    more: `proxyPool: { address: "127.0.0.1:0", ports: ${first}-${first + PORTS - 1} }\n${more}`,
    listeners: `listeners: [{ address: "127.0.0.1:0", denyTargets: [] }${listeners.replaceAll('FIRST-LAST', `${first}-${first + PORTS - 1}`)}]`,
  };
  const noria = await startNoria(options);
  await untilReady(noria, size);
  const api = `http://${noria.addresses.proxyPool}`;
  const get = async (path: string) => (await fetch(api + path)).json();
  return { noria, sandbox, options, first, api, get };
}

/** The URL of a page of the sandbox's target. Only members resolve its name. */
const pageOf = (targetUrl: string, path: string) => `http://target.example:${new URL(targetUrl).port}${path}`;

test.skipIf(!PYTHON.modules.includes('requests'))(
  'proxyPool: a scraper that knows only get and delete loses no page while members die',
  async () => {
    const { noria, sandbox } = await startWithPorts({
      members: 60,
      more: 'dial: { waitForMember: 60s, deadline: 60s }',
    });
    const pages = 60;
    let rejected = 0;
    noria.bus.on('member.quarantined', ({ fault }) => {
      if (fault === 'member-rejected') rejected += 1;
    });
    const scraper = spawn(PYTHON.command, ['-c', SCRAPER, noria.addresses.proxyPool ?? ''], {
      env: childEnvironment(),
      stdio: ['pipe', 'pipe', 'inherit'],
    });
    onTestFinished(() => void scraper.kill());
    const answers = createInterface({ input: scraper.stdout })[Symbol.asyncIterator]();
    const nextPage = async (): Promise<string> => {
      scraper.stdin.write(`${pageOf(sandbox.targetUrl, '/ip')}\n`);
      return (await answers.next()).value ?? 'the scraper ended';
    };
    const exits: string[] = [];
    let broken = '';
    const idOf = (exit = '') => sandbox.members().find((member) => member.exit === exit)?.id;
    while (exits.length < pages) {
      exits.push(await nextPage());
      const used = idOf(exits.at(-1));
      if (used !== undefined && exits.length % 6 === 0) await sandbox.kill(used);
      if (used === undefined || exits.length % 6 !== 3) continue;
      // The scraper gets half of a page through this member, so it deletes its port.
      if (sandbox.members().some(({ id }) => id === broken)) {
        await sandbox.setBehaviour(broken, { how: 'good' });
      }
      await sandbox.setBehaviour(used, { how: 'cut', afterBytes: 100 });
      broken = used;
    }
    expect(exits.filter((exit) => !/^127(\.\d+){3}$/.test(exit))).toEqual([]);
    expect(new Set(exits).size).toBeGreaterThan(PORTS);
    expect(rejected, 'members that the scraper deleted').toBeGreaterThan(0);
    expect(sandbox.strangers()).toEqual([]);
  },
);

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

test('proxyPool: with users on the listener of the ports, the API asks for the same credentials', async () => {
  const listeners = `, { address: "127.0.0.1:FIRST-LAST", session: port, users: [{ username: alice, password: one }, { username: bob, password: two }] }`;
  const { noria, sandbox, api } = await startWithPorts({ listeners });
  const call = (path: string, credentials?: string) =>
    fetch(api + path, {
      headers: credentials === undefined ? {} : { authorization: `Basic ${btoa(credentials)}` },
    });
  const refused = await call('/get/');
  expect([refused.status, refused.headers.get('www-authenticate')]).toEqual([
    401,
    'Basic realm="noria", charset="UTF-8"',
  ]);
  expect((await call('/get/', 'alice:two')).status).toBe(401);
  const { proxy } = (await (await call('/get/', 'alice:one')).json()) as { proxy: string };
  expect(
    ((await (await call('/get/', 'bob:two')).json()) as { proxy: string }).proxy,
    'a ring of his own',
  ).toBe(proxy);
  const sessions = noria.control.sessions();
  expect(sessions.map(({ id }) => id).sort()).toEqual(
    ['alice', 'bob'].map((user) => `${user}:port=${proxy.split(':')[1]}`),
  );
  const member = sandbox
    .members()
    .find(({ port }) => noria.control.members().find(({ id }) => id === sessions[0]?.member)?.port === port);
  if (!hasCommand('curl')) return;
  const { out } = await curl('-x', `http://alice:one@${proxy}`, pageOf(sandbox.targetUrl, '/ip'));
  expect(out.trim()).toBe(member?.exit);
});

test('proxyPool: a reload opens, moves and closes it, and its address and ports are never targets', async () => {
  const { noria, options, api, get } = await startWithPorts();
  await get('/get/');
  const port = await freePort();
  const moved = { ...options, more: options.more.replace('127.0.0.1:0', `127.0.0.1:${port}`) };
  await noria.reload(testConfig(moved));
  await expect(fetch(api)).rejects.toThrow();
  expect((await fetch(`http://127.0.0.1:${port}/get/`)).status).toBe(200);
  if (hasCommand('curl')) {
    const { out } = await curl('-x', `http://${noria.proxy}`, `http://127.0.0.1:${port}/pop/`);
    expect(out).toContain('address of noria itself');
  }
  await noria.reload(testConfig({ ...options, more: '' }));
  expect(noria.control.status().listeners).toHaveLength(1);
  await expect(fetch(`http://127.0.0.1:${port}`)).rejects.toThrow();
});
