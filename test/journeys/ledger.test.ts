/** The ledger: one record for each client request, in /api/requests, in the access log and in usage. */
import { mkdtemp, readFile, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test as withAnyProgram } from 'vitest';
import type { RequestJson, UsageJson } from '../../src/admin/schemas.ts';
import { runProgram } from '../../src/commands/program.ts';
import { fakeTerminal } from '../commands/fake-terminal.ts';
import { curl } from '../support/curl.ts';
import {
  NO_HEDGE,
  type Noria,
  openTestSandbox,
  sourceLine,
  startNoria,
  testConfig,
  untilReady,
} from '../support/noria.ts';
import { hasCommand } from '../support/tools.ts';
import { until } from '../support/until.ts';

const test = withAnyProgram.skipIf(!hasCommand('curl'));

async function runNoria(argv: readonly string[]) {
  const terminal = { ...fakeTerminal(), columns: 200 };
  const exitCode = await runProgram(argv, terminal);
  return { exitCode, out: terminal.printed() };
}

const USERS = 'users: [{ username: ann, password: x }, { username: ben, password: x }]';

async function tempFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'noria-ledger-'));
  onTestFinished(() => rm(folder, { recursive: true, force: true }));
  return folder;
}

async function requests({ admin }: Noria, query = ''): Promise<RequestJson[]> {
  const response = await fetch(`${admin}/api/requests?${query}`);
  return (await response.json()) as RequestJson[];
}

async function usage({ admin }: Noria, by: string): Promise<UsageJson[]> {
  return (await (await fetch(`${admin}/api/usage?by=${by}`)).json()) as UsageJson[];
}

async function start(more = '') {
  const sandbox = await openTestSandbox({
    instances: [{ product: 'short-classic', members: 4 }],
  });
  const noria = await startNoria({
    sources: [sourceLine(sandbox, 'city', 'short-classic', 'price: 0.5')],
    listener: USERS,
    more,
  });
  await untilReady(noria, 1);
  return { sandbox, noria };
}

test('ledger: each protocol leaves one record with its member, its bytes and its times', async () => {
  const { sandbox, noria } = await start();
  const url = `${sandbox.targetUrl}/bytes/5000`;
  await curl('-x', `http://ann-session-cart-tag-shop7:x@${noria.proxy}`, url, '-o', '/dev/null');
  await curl('-p', '-x', `http://ann:x@${noria.proxy}`, url, '-o', '/dev/null');
  await curl('-x', `socks5h://ben:x@${noria.proxy}`, url, '-o', '/dev/null');
  await curl('-x', `http://ben:wrong@${noria.proxy}`, url, '-o', '/dev/null');
  await until('four records', async () => (await requests(noria)).length >= 4);
  const found = (await requests(noria)).sort((one, other) => other.at.localeCompare(one.at));
  expect(
    found.map(({ protocol, user, session, outcome, code }) => [protocol, user, session, outcome, code]),
  ).toEqual([
    ['forward', null, null, 'failed', 'auth-required'],
    ['socks5', 'ben', null, 'served', null],
    ['connect', 'ann', null, 'served', null],
    ['forward', 'ann', 'ann:cart', 'served', null],
  ]);
  expect(new Set(found.map(({ id }) => id)).size).toBe(4);
  const served = found.slice(1);
  for (const record of served) {
    expect(record.target).toBe(`127.0.0.1:${sandbox.target.port}`);
    expect(record.client).toBe('127.0.0.1');
    expect(record.attempts).toMatchObject([{ source: 'city', code: null }]);
    expect(record.bytesDown).toBeGreaterThan(5_000);
    expect(record.bytesUp).toBeGreaterThan(50);
    expect(record.firstByteMs).toBeGreaterThan(0);
    expect(record.ms).toBeGreaterThanOrEqual(record.firstByteMs ?? 0);
  }
  const members = (await (await fetch(`${noria.admin}/api/members`)).json()) as { id: string }[];
  expect(members.map(({ id }) => id)).toContain(served[0]?.attempts[0]?.member);
  expect(await requests(noria, 'user=ann')).toHaveLength(2);
  expect(await requests(noria, 'session=ann:cart')).toHaveLength(1);
  expect(await requests(noria, 'tag=shop7')).toMatchObject([{ session: 'ann:cart', tag: 'shop7' }]);
  expect(await requests(noria, 'failed=1')).toHaveLength(1);
  expect(await requests(noria, `target=127.0.0.1&member=${served[0]?.attempts[0]?.member}`)).not.toHaveLength(
    0,
  );
  expect(await requests(noria, 'target=shop.example')).toEqual([]);
  expect(await requests(noria, 'since=10m&limit=1')).toHaveLength(1);
  expect((await fetch(`${noria.admin}/api/requests?since=soon`)).status).toBe(400);
});

test('ledger: a record has every member that was tried, and why it failed', async () => {
  const sandbox = await openTestSandbox({
    instances: [
      {
        product: 'short-classic',
        members: 3,
        behaviour: (n) => (n === 2 ? { how: 'good' } : { how: 'status', status: 503 }),
      },
    ],
  });
  const noria = await startNoria({
    sources: [sourceLine(sandbox, 'city', 'short-classic', 'size: 3')],
    more: `dial: { ${NO_HEDGE} }`,
  });
  await untilReady(noria, 3);
  await until('a request that another member served', async () => {
    await curl('-p', '-x', `http://${noria.proxy}`, `${sandbox.targetUrl}/ip`);
    return (await requests(noria)).some(
      ({ attempts, outcome }) => attempts.length > 1 && outcome === 'served',
    );
  });
  const failing = (await requests(noria)).find(
    ({ attempts, outcome }) => attempts.length > 1 && outcome === 'served',
  );
  expect(failing?.attempts.at(0)?.code).toMatch(/^(member-refused|target-doubted)$/);
  expect(failing?.attempts.at(-1)?.code).toBeNull();
});

test('ledger: the access log has one line for each request, also after logrotate has moved it', async () => {
  const folder = await tempFolder();
  const path = join(folder, 'access.log');
  const { sandbox, noria } = await start(`log: { access: "${path}" }`);
  const url = `${sandbox.targetUrl}/ip`;
  await curl('-x', `http://ann:x@${noria.proxy}`, url);
  const lines = async (file: string) =>
    (await readFile(file, 'utf8')).split('\n').filter((line) => line !== '');
  await until('a line', async () => (await lines(path)).length === 1);
  await rename(path, `${path}.1`);
  await noria.reload(
    testConfig({
      sources: [sourceLine(sandbox, 'city', 'short-classic', 'price: 0.5')],
      listener: USERS,
      more: `log: { access: "${path}" }`,
    }),
  );
  await curl('-x', `http://ann:x@${noria.proxy}`, url);
  await until('a line in the new file', async () => (await lines(path)).length === 1);
  const [first] = await lines(`${path}.1`);
  const record = JSON.parse(first ?? '');
  expect(record).toEqual((await requests(noria)).at(-1));
  expect(Object.keys(record)).toEqual([
    ...['id', 'at', 'user', 'session', 'tag', 'client', 'protocol', 'target', 'outcome', 'code', 'attempts'],
    ...['bytesUp', 'bytesDown', 'firstByteMs', 'ms'],
  ]);
});

test('ledger: usage counts the bytes of the members to the byte, and divides their price', async () => {
  const { sandbox, noria } = await start();
  const url = `${sandbox.targetUrl}/bytes/70000`;
  for (const user of ['ann', 'ann', 'ann', 'ben']) {
    await curl('-p', '-x', `http://${user}:x@${noria.proxy}`, url, '-o', '/dev/null');
  }
  await until('four requests', async () => (await requests(noria)).length === 4);
  const byUser = await usage(noria, 'user');
  const records = await requests(noria);
  for (const [at, name] of ['ann', 'ben'].entries()) {
    const own = records.filter(({ user }) => user === name);
    expect(byUser[at]).toMatchObject({
      name,
      requests: own.length,
      failed: 0,
      bytesUp: own.reduce((sum, { bytesUp }) => sum + bytesUp, 0),
      bytesDown: own.reduce((sum, { bytesDown }) => sum + bytesDown, 0),
    });
  }
  const metrics = await (await fetch(`${noria.admin}/metrics`)).text();
  const [down = ''] =
    /noria_bytes_total\{source="city",direction="down"\} (\d+)/.exec(metrics)?.slice(1) ?? [];
  const [bySource] = await usage(noria, 'source');
  expect(bySource).toMatchObject({ name: 'city', bytesDown: Number(down) });
  const drawn = Number(/noria_members_drawn_total\{source="city"\} (\d+)/.exec(metrics)?.[1]);
  expect(bySource?.spend).toBe(drawn * 0.5);
  expect(metrics).toContain(`noria_spend_total{source="city"} ${drawn * 0.5}`);
  expect(metrics).toContain('noria_user_requests_total{user="ann",outcome="served"} 3');
  const used = new Set(records.flatMap(({ attempts }) => attempts.map(({ member }) => member))).size;
  const spent = byUser.reduce((sum, { spend }) => sum + spend, 0);
  expect(spent).toBeCloseTo(used * 0.5, 5);
  const csv = await (
    await fetch(`${noria.admin}/api/usage?by=user`, { headers: { accept: 'text/csv' } })
  ).text();
  expect(csv.split('\r\n')[0]).toBe('name,requests,failed,bytesUp,bytesDown,members,spend');
  expect((await fetch(`${noria.admin}/api/usage?day=2020-01-01`)).status).toBe(404);
});

test('ledger: usage goes on after a restart', async () => {
  const folder = await tempFolder();
  const { sandbox, noria } = await start(`state: { dir: "${folder}" }`);
  await curl('-x', `http://ann:x@${noria.proxy}`, `${sandbox.targetUrl}/ip`);
  await until('a request', async () => (await usage(noria, 'user'))[0]?.requests === 1);
  const before = await usage(noria, 'user');
  await noria.close();
  const again = await startNoria({
    sources: [sourceLine(sandbox, 'city', 'short-classic', 'price: 0.5')],
    listener: USERS,
    more: `state: { dir: "${folder}" }`,
  });
  expect(await usage(again, 'user')).toEqual(before);
});

test('ledger: without an access log no target is in the log at info', async () => {
  const { sandbox, noria } = await start();
  await curl('-x', `http://ann:x@${noria.proxy}`, 'http://secret-shop.example:1/');
  await curl('-x', `http://ann:wrong@${noria.proxy}`, `${sandbox.targetUrl}/ip`);
  await until('two records', async () => (await requests(noria)).length === 2);
  const shown = noria.lines.filter((line) => JSON.parse(line).level >= 30);
  expect(shown.length).toBeGreaterThan(0);
  expect(shown.filter((line) => line.includes('secret-shop'))).toEqual([]);
});

test('ledger: noria why tells the story of a request, noria usage what was used', async () => {
  const { sandbox, noria } = await start();
  await curl('-x', `http://ann:x@${noria.proxy}`, `${sandbox.targetUrl}/ip`);
  await until('a record', async () => (await requests(noria)).length === 1);
  const [record] = await requests(noria);
  const run = (...args: string[]) => runNoria([...args, '--admin', noria.admin]);
  const why = await run('why', '127.0.0.1');
  expect(why.out.split('\n')[0]).toMatch(/ann {2}forward {2}127\.0\.0\.1:\d+ {2}served {2}\d+ ms/);
  expect(why.out).toContain(`    ${record?.attempts[0]?.member}`);
  expect((await run('why', '--failed')).out).toBe('no such request\n');
  expect(JSON.parse((await run('why', '--json')).out)).toEqual([record]);
  expect((await run('why', '--since', 'soon')).exitCode).toBe(2);
  expect((await run('usage')).out).toMatch(/^USER +REQUESTS .*\nann +1 +0 /);
  expect((await run('usage', '--by', 'source', '--csv')).out).toMatch(/^name,requests,.*\r\ncity,1,0,/);
  expect((await run('usage', '--day', '2020-01-01')).exitCode).toBe(1);
});

async function startLimited(limits: string) {
  const sandbox = await openTestSandbox({ instances: [{ product: 'short-classic', members: 4 }] });
  const noria = await startNoria({
    sources: [sourceLine(sandbox, 'city', 'short-classic')],
    listener: `users: [{ username: ann, password: x, limits: ${limits} }, { username: ben, password: x }]`,
  });
  await untilReady(noria, 1);
  const status = async (user: string, path: string, ...args: string[]) => {
    const url = `${sandbox.targetUrl}${path}`;
    const format = '%{http_code} %header{x-noria-error} %header{retry-after}';
    const options = ['-x', `http://${user}:x@${noria.proxy}`, '-o', '/dev/null', '-w', format];
    return (await curl(...options, ...args, url)).out.trim();
  };
  return { sandbox, noria, status };
}

test('ledger: a user beyond rate gets 429 with Retry-After; other users do not', async () => {
  const { status } = await startLimited('{ rate: 2/h }');
  expect(await status('ann', '/ip')).toBe('200');
  expect(await status('ann', '/ip')).toMatch(/^429 limit \d{3,4}$/);
  expect(await status('ben', '/ip')).toBe('200');
});

test('ledger: a user has at most `tunnels` requests at once, and the place is free after the end', async () => {
  const { noria, status } = await startLimited('{ tunnels: 1 }');
  const slow = status('ann', '/delay/700');
  await until('the first request', () => noria.control.status().pool.openTunnels === 1);
  expect(await status('ann', '/ip')).toBe('429 limit 1');
  expect(await status('ben', '/ip')).toBe('200');
  expect(await slow).toBe('200');
  expect(await status('ann', '/ip')).toBe('200');
  expect(await status('ann', '/ip', '-p')).toBe('200');
  expect(await status('ann', '/ip', '-p')).toBe('200');
});

test('ledger: bytesPerDay ends open tunnels within seconds, and refuses the next request', async () => {
  const { noria, status } = await startLimited('{ bytesPerDay: 64KiB }');
  const cut = await status('ann', `/bytes/${2 ** 40}`, '-p', '--limit-rate', '4M');
  expect(cut).toMatch(/^(200|000)/);
  expect(await status('ann', '/ip')).toMatch(/^429 limit \d+$/);
  const [row] = await usage(noria, 'user');
  expect(row?.name).toBe('ann');
  expect((row?.bytesUp ?? 0) + (row?.bytesDown ?? 0)).toBeGreaterThan(65_536);
  expect(await status('ben', '/ip')).toBe('200');
});

test('ledger: membersPerDay and source limit which members a user gets', async () => {
  const { status } = await startLimited('{ membersPerDay: 1 }');
  expect(await status('ann', '/ip')).toBe('200');
  await until('the count of the first member', async () =>
    (await status('ann', '/ip')).startsWith('429 limit'),
  );
  const other = await startLimited('{ source: city }');
  expect(await other.status('ann', '/ip')).toBe('200');
});
