/** What the ledger says against counts from outside: of the members and the clients, over kills and worker processes. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { RequestJson, UsageJson } from '../../src/admin/schemas.ts';
import { runProgram } from '../../src/commands/program.ts';
import { randomBelow, seededRandom } from '../../src/core/random.ts';
import { fakeTerminal } from '../commands/fake-terminal.ts';
import { type CountingMember, openCountingMember, type Passed } from '../support/counting-member.ts';
import { getThrough } from '../support/exit-through.ts';
import { freePort } from '../support/free-port.ts';
import { NO_HEDGE, startNoria } from '../support/noria.ts';
import { until } from '../support/until.ts';
import { runNoria, testFolder, writeIn } from './noria-process.ts';

const USERS = ['ann', 'ben', 'cy'].map((name) => `{ username: ${name}, password: x }`).join(', ');

function listOf(members: readonly CountingMember[], more = ''): string {
  const file = join(testFolder(), 'members.txt');
  writeFileSync(file, members.map(({ address }) => address).join('\n'));
  return `  - { name: ours, product: list, file: "${file}"${more} }`;
}

async function ask<Answer>(admin: string, path: string): Promise<Answer> {
  return (await (await fetch(`${admin}${path}`)).json()) as Answer;
}

interface Tunnel {
  readonly socket: Socket;
  /** The status of noria's answer. */
  readonly status: number;
  received(): number;
}

/** A CONNECT of the user to `HOST:80`. Resolves with noria's answer; the tunnel's bytes are counted after it. */
function openTunnel(proxy: string, user: string, host: string): Promise<Tunnel> {
  const [address, port] = proxy.split(':');
  const socket = connect({ host: address ?? '', port: Number(port), allowHalfOpen: true });
  onTestFinished(() => void socket.destroy());
  const login = Buffer.from(`${user}:x`).toString('base64');
  socket.write(
    `CONNECT ${host}:80 HTTP/1.1\r\nHost: ${host}:80\r\nProxy-Authorization: Basic ${login}\r\n\r\n`,
  );
  let head = '';
  let received = 0;
  return new Promise((resolve, reject) => {
    socket.on('error', reject).on('data', (chunk) => {
      if (head.includes('\r\n\r\n')) {
        received += chunk.length;
        return;
      }
      head += chunk.toString('latin1');
      const end = head.indexOf('\r\n\r\n');
      if (end < 0) return;
      received = head.length - end - 4;
      socket.off('error', reject).on('error', () => {}); // ignored: the test cuts tunnels
      resolve({ socket, status: Number(head.slice(9, 12)), received: () => received });
    });
  });
}

function sum(passed: Iterable<Passed>): Omit<Passed, 'tunnels'> {
  const total = { up: 0, down: 0 };
  for (const { up, down } of passed) {
    total.up += up;
    total.down += down;
  }
  return total;
}

/** What this host's bytes were at all members. */
function passedTo(members: readonly CountingMember[], host: string): Omit<Passed, 'tunnels'> {
  return sum(members.flatMap(({ passed }) => passed.get(host) ?? []));
}

describe.each([1, 2])('ledger: with %i workers', (workers) => {
  test('usage is what the members counted, to the byte, also beside tunnels that are cut', async () => {
    const members = [await openCountingMember(), await openCountingMember()];
    const noria = await startNoria({
      sources: [listOf(members)],
      listener: `users: [${USERS}]`,
      more: `workers: ${workers}\ndial: { ${NO_HEDGE}, warm: off }`,
    });
    const random = seededRandom(workers);
    const sent = { ann: 0, ben: 0, cy: 0 };
    /** ann ends her tunnels, ben resets his, and the member cuts those of cy. */
    const play = async (user: 'ann' | 'ben' | 'cy') => {
      const { socket, status, received } = await openTunnel(noria.proxy, user, `${user}.example`);
      expect(status).toBe(200);
      const down = randomBelow(random, 300_000);
      const up = Buffer.concat([Buffer.from(`${down}\n`), Buffer.alloc(randomBelow(random, 100_000))]);
      sent[user] += up.length;
      socket.write(up);
      if (user === 'cy') {
        await until('the tunnel is open at a member', () => members.some(({ open }) => open.size > 0));
        for (const { open } of members) {
          for (const cut of open) if (randomBelow(random, 2) === 0) cut.resetAndDestroy();
        }
        socket.resetAndDestroy();
      } else if (user === 'ben') {
        await until('some bytes', () => received() > 0 || down === 0);
        socket.resetAndDestroy();
      } else {
        await until('all bytes', () => received() === down);
        const closed = new Promise((resolve) => socket.on('close', resolve));
        socket.end();
        await closed;
      }
    };
    // The cut tunnels have a time of their own, because cy cuts what is open.
    for (let round = 0; round < 12; round += 1) {
      await Promise.all(['ann', 'ben', 'ann', 'ben'].map((user) => play(user === 'ann' ? 'ann' : 'ben')));
      await play('cy');
    }
    await until(
      'the records of all',
      async () => (await ask<RequestJson[]>(noria.admin, '/api/requests')).length === 60,
    );
    const records = await ask<RequestJson[]>(noria.admin, '/api/requests');
    const byUser = await ask<UsageJson[]>(noria.admin, '/api/usage?by=user');
    for (const name of ['ann', 'ben', 'cy'] as const) {
      const own = records.filter(({ user }) => user === name);
      const row = byUser.find((one) => one.name === name);
      expect(row).toMatchObject({
        requests: own.length,
        bytesUp: own.reduce((total, { bytesUp }) => total + bytesUp, 0),
        bytesDown: own.reduce((total, { bytesDown }) => total + bytesDown, 0),
      });
      const { up, down } = passedTo(members, `${name}.example`);
      if (name === 'ann') expect([row?.bytesUp, row?.bytesDown]).toEqual([up, down]);
      expect(row?.bytesUp).toBeGreaterThanOrEqual(up);
      expect(row?.bytesUp).toBeLessThanOrEqual(sent[name]);
      expect(row?.bytesDown).toBeLessThanOrEqual(down);
    }
    const [bySource] = await ask<UsageJson[]>(noria.admin, '/api/usage?by=source');
    const metrics = await (await fetch(`${noria.admin}/metrics`)).text();
    for (const [direction, bytes] of [
      ['up', bySource?.bytesUp],
      ['down', bySource?.bytesDown],
    ]) {
      expect(metrics).toContain(`noria_bytes_total{source="ours",direction="${direction}"} ${bytes}\n`);
    }
    expect(byUser.reduce((total, { bytesDown }) => total + bytesDown, 0)).toBe(bySource?.bytesDown);
  });

  test('a switched connection counts its request and its 101, as the member does', async () => {
    const member = await openCountingMember();
    const noria = await startNoria({ sources: [listOf([member])], more: `workers: ${workers}` });
    const [host, port] = noria.proxy.split(':');
    const socket = connect({ host: host ?? '', port: Number(port) });
    onTestFinished(() => void socket.destroy());
    socket.write(
      'GET http://switch.example/ HTTP/1.1\r\nHost: switch.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n',
    );
    await new Promise((resolve) => socket.on('data', () => {}).on('close', resolve));
    await until(
      'the record',
      async () => (await ask<RequestJson[]>(noria.admin, '/api/requests')).length === 1,
    );
    const [record] = await ask<RequestJson[]>(noria.admin, '/api/requests');
    const { up, down } = passedTo([member], 'switch.example');
    expect(up).toBeGreaterThan(50);
    expect([record?.bytesUp, record?.bytesDown]).toEqual([up, down]);
  });

  test('a user exceeds `tunnels` by at most one for each process, and gets every place back', async () => {
    const member = await openCountingMember();
    const limit = 5;
    const noria = await startNoria({
      sources: [listOf([member])],
      listener: `users: [{ username: ann, password: x, limits: { tunnels: ${limit} } }]`,
      more: `workers: ${workers}`,
    });
    for (let round = 0; round < 3; round += 1) {
      const tunnels = await Promise.all(
        Array.from({ length: 4 * limit }, () => openTunnel(noria.proxy, 'ann', 'shop.example')),
      );
      const opened = tunnels.filter(({ status }) => status === 200).length;
      expect(opened).toBeLessThanOrEqual(limit + workers - 1);
      expect(opened).toBeGreaterThanOrEqual(Math.floor(limit / workers));
      expect(tunnels.filter(({ status }) => status === 429).length).toBe(tunnels.length - opened);
      for (const { socket } of tunnels) socket.destroy();
      const ended = (round + 1) * tunnels.length;
      await until(
        'the tunnels have ended',
        async () => (await ask<RequestJson[]>(noria.admin, '/api/requests')).length === ended,
      );
    }
  });
});

test('ledger: after kill -9, usage has what was served until its last write', async () => {
  const folder = testFolder();
  const member = await openCountingMember();
  const [proxyPort, adminPort] = [await freePort(), await freePort()];
  const file = writeIn(
    folder,
    'noria.yaml',
    `
sources:
${listOf([member])}
pool: { allowPrivateAddresses: true }
listeners: [{ address: "127.0.0.1:${proxyPort}", users: [${USERS}] }]
admin: { address: "127.0.0.1:${adminPort}" }
state: { dir: "${folder}/state" }
`,
  );
  const admin = `http://127.0.0.1:${adminPort}`;
  const stored = () => {
    const today = new Date();
    const day = [today.getFullYear(), today.getMonth() + 1, today.getDate()]
      .map((part) => String(part).padStart(2, '0'))
      .join('-');
    const path = join(folder, 'state', `usage.${day}.json`);
    return existsSync(path) ? JSON.parse(readFileSync(path, 'utf8')).user.ann : undefined;
  };
  const noria = runNoria(['run', '-c', file]);
  await noria.line('noria is running');
  const tunnel = await openTunnel(`127.0.0.1:${proxyPort}`, 'ann', 'open.example');
  tunnel.socket.write('1000\n');
  for (let n = 0; n < 3; n += 1) {
    expect(await getThrough(`127.0.0.1:${proxyPort}`, 'http://shop.example/', 'ann:x')).toBe('200 ok');
  }
  const bytes = sum(member.passed.values());
  // the bytes of the tunnel that is still open, too
  await until('the file has all bytes', () => stored()?.bytesDown === bytes.down);
  noria.child.kill('SIGKILL');
  await noria.ended;
  const again = runNoria(['run', '-c', file]);
  await again.line('noria is running');
  const [row] = await ask<UsageJson[]>(admin, '/api/usage?by=user');
  expect(row).toMatchObject({ name: 'ann', requests: 3, bytesUp: bytes.up, bytesDown: bytes.down });
});

test('ledger: one command each says which exit, why it failed, who used most and what a page costs', async () => {
  const refusing = await openCountingMember((host) => host === 'closed.example');
  const noria = await startNoria({
    sources: [listOf([refusing], ', price: 0.5')],
    listener: `users: [${USERS}]`,
  });
  const get = (user: string, url: string) => getThrough(noria.proxy, url, `${user}:x`);
  for (let n = 0; n < 4; n += 1) expect(await get('ann', 'http://www.shop.example/page')).toBe('200 ok');
  for (let n = 0; n < 2; n += 1) expect(await get('ben', 'http://other.example/')).toBe('200 ok');
  expect(await get('cy', 'http://closed.example/')).toMatch(/^502 /);
  await until(
    'seven records',
    async () => (await ask<RequestJson[]>(noria.admin, '/api/requests')).length === 7,
  );
  const run = async (...args: string[]) => {
    const terminal = { ...fakeTerminal(), columns: 200 };
    await runProgram([...args, '--admin', noria.admin], terminal);
    return terminal.printed();
  };
  const [host] = refusing.address.split(':');
  expect(await run('why', 'http://www.shop.example/page')).toMatch(
    new RegExp(
      `ann {2}forward {2}www\\.shop\\.example:80 {2}served .*\\n {4}\\S+ ${host} \\(ours\\): accepted`,
    ),
  );
  expect(await run('why', 'closed.example')).toMatch(
    new RegExp(
      `cy {2}forward {2}closed\\.example:80 {2}target-unreachable .*\\n {4}\\S+ ${host} \\(ours\\): `,
    ),
  );
  const [title, most, ...rest] = (await run('usage')).trimEnd().split('\n');
  expect(title).toMatch(/^USER +REQUESTS /);
  expect(most).toMatch(/^ann +4 +0 /);
  expect(rest.map((line) => line.split(' ')[0])).toEqual(['ben', 'cy']);
  const served = [...refusing.passed.values()].reduce((total, { tunnels }) => total + tunnels, 0);
  const uses = refusing.passed.get('www.shop.example')?.tunnels ?? 0;
  const perAnswer = (0.5 * uses) / served / 4;
  const shop = (await run('usage', '--by', 'site'))
    .split('\n')
    .find((line) => line.startsWith('shop.example'));
  expect(Number(shop?.trimEnd().split(/ +/).at(-1))).toBeCloseTo(perAnswer, 4);
});
