/**
 * A scraper that only knows the API of a raw proxy pool works with noria unchanged: it loses no page while members die.
 * proxy-pool-api.test.ts tests the answers of each call.
 */
import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { expect, onTestFinished, test } from 'vitest';
import { curl } from '../support/curl.ts';
import { childEnvironment } from '../support/environment.ts';
import { freePort } from '../support/free-port.ts';
import { testConfig } from '../support/noria.ts';
import { PYTHON } from '../support/python.ts';
import { hasCommand } from '../support/tools.ts';
import { PORTS, pageOf, startWithPorts } from './proxy-pool-stage.ts';

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
    // On a busy machine, hedged attempts move many ports to other members before the scraper meets a broken one.
    while (exits.length < pages || (rejected === 0 && exits.length < 10 * pages)) {
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
