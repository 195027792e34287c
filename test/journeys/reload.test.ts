/**
 * An operator changes the configuration of a running noria: what did not change keeps its members, sessions and tunnels;
 * what cannot be had leaves everything as it was.
 */
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { freePort } from '../support/free-port.ts';
import {
  type NoriaOptions,
  openTestSandbox,
  sourceLine,
  startNoria,
  testConfig,
  untilReady,
} from '../support/noria.ts';
import { until } from '../support/until.ts';

/** A free port not far below this one: all from it on can be listened on. */
async function freePortBefore(port: number): Promise<number> {
  const server = createServer().listen(port - 1, '127.0.0.1');
  try {
    await once(server, 'listening');
    return port - 1;
  } catch {
    return port; // handled: taken, so the range is this port alone
  } finally {
    server.close();
  }
}

async function openTunnel(proxyPort: number, target: string): Promise<Socket> {
  const socket = connect(proxyPort, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {}); // ended by the test
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`);
  const [head] = await once(socket, 'data');
  expect(String(head)).toMatch(/^HTTP\/1\.1 200 /);
  return socket;
}

async function ask(socket: Socket, path: string): Promise<string> {
  socket.write(`GET ${path} HTTP/1.1\r\nHost: target\r\n\r\n`);
  const [answer] = await once(socket, 'data');
  return String(answer);
}

function get(proxyPort: number, url: string, user?: string): Promise<number> {
  const headers =
    user === undefined
      ? {}
      : { 'proxy-authorization': `Basic ${Buffer.from(`${user}:x`).toString('base64')}` };
  return new Promise((resolve, reject) => {
    const asked = request(
      { port: proxyPort, host: '127.0.0.1', path: url, headers, agent: false },
      (answer) => {
        answer.resume();
        resolve(answer.statusCode ?? 0);
      },
    );
    asked.on('error', reject);
    asked.end();
  });
}

async function startTwo() {
  const sandbox = await openTestSandbox({ members: 8, lifetimeMs: 60_000 });
  const [first, second] = [await freePort(), await freePort()];
  const sources = [
    sourceLine(sandbox, 'pure', 'short-pure', 'size: 2, params: { count: 2 }'),
    sourceLine(sandbox, 'shared', 'shared', 'size: 2, params: { count: 2 }'),
  ];
  const listeners = (...ports: string[]) => `listeners: [${ports.join(', ')}]`;
  const plain = (port: number, more = '') => `{ address: "127.0.0.1:${port}", denyTargets: []${more} }`;
  const options: NoriaOptions = { sources, listeners: listeners(plain(first), plain(second)) };
  const noria = await startNoria(options);
  await untilReady(noria, 4);
  return { sandbox, noria, options, sources, first, second, listeners, plain };
}

test('reload: an unchanged source keeps its members, a removed one lets them go', async () => {
  const { noria, options, sources } = await startTwo();
  const before = noria.watched
    .members()
    .filter(({ source }) => source === 'pure')
    .map(({ id }) => id);
  expect(await noria.reload(testConfig({ ...options, sources: sources.slice(0, 1) }))).toEqual([]);
  const after = noria.watched.members().map(({ id }) => id);
  expect(before.length).toBe(2);
  expect(after).toEqual(before);
  expect(noria.watched.status().sources.map(({ name }) => name)).toEqual(['pure']);
});

test('reload: tunnels of an unchanged listener go on, and those of a removed one may finish', async () => {
  const { sandbox, noria, options, first, second, listeners, plain } = await startTwo();
  const target = new URL(sandbox.targetUrl).host;
  const [kept, leaving] = [await openTunnel(first, target), await openTunnel(second, target)];
  await noria.reload(testConfig({ ...options, listeners: listeners(plain(first)) }));
  expect(await ask(kept, '/ip')).toContain('200 OK');
  expect(await ask(leaving, '/ip')).toContain('200 OK');
  await expect(openTunnel(second, target)).rejects.toThrow(/ECONNREFUSED/);
});

test('reload: a changed listener takes its address over from the one before', async () => {
  const { sandbox, noria, options, first, second, listeners, plain } = await startTwo();
  const users = ', users: [{ username: me, password: secret-word }]';
  await noria.reload(testConfig({ ...options, listeners: listeners(plain(first, users), plain(second)) }));
  expect(await get(first, `${sandbox.targetUrl}/ip`)).toBe(407);
  expect(await get(second, `${sandbox.targetUrl}/ip`)).toBe(200);
});

test('reload: a listener may be given other ports, some of them its own, and another address', async () => {
  const { sandbox, noria, options, first, listeners } = await startTwo();
  const port = await freePortBefore(first);
  const at = (address: string) =>
    testConfig({
      ...options,
      listeners: listeners(
        `{ address: "${address}", denyTargets: [], users: [{ username: me, password: x }] }`,
      ),
    });
  for (const address of [`127.0.0.1:${port}-${first}`, `0.0.0.0:${first}`, `127.0.0.1:${first}`]) {
    expect(await noria.reload(at(address)), address).toEqual([]);
    expect(await get(first, `${sandbox.targetUrl}/ip`, 'me'), address).toBe(200);
  }
});

test('reload: when an address cannot be had, everything stays as it was', async () => {
  const { sandbox, noria, options, sources, first, second, listeners, plain } = await startTwo();
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  onTestFinished(() => void taken.close());
  const { port } = taken.address() as AddressInfo;
  const users = ', users: [{ username: me, password: secret-word }]';
  for (const changed of [plain(first, users), `{ address: "0.0.0.0:${first}"${users} }`]) {
    const next = testConfig({
      ...options,
      sources: sources.slice(0, 1),
      listeners: listeners(changed, plain(port)),
    });
    await expect(noria.reload(next)).rejects.toMatchObject({ code: 'listen-failed' });
    expect(await get(first, `${sandbox.targetUrl}/ip`), changed).toBe(200);
    expect(await get(second, `${sandbox.targetUrl}/ip`), changed).toBe(200);
    expect(noria.watched.status().sources.length).toBe(2);
  }
});

test('reload: a session keeps its member, and a new source can be wished for', async () => {
  const { sandbox, noria, options, sources, first } = await startTwo();
  const url = `${sandbox.targetUrl}/ip`;
  expect(await get(first, url, 'me-source-city')).toBe(400);
  await get(first, url, 'me-session-one');
  const member = noria.watched.sessions().find(({ id }) => id === 'one')?.member;
  await noria.reload(
    testConfig({
      ...options,
      sources: [...sources, sourceLine(sandbox, 'city', 'short-classic', 'size: 1, params: { count: 1 }')],
    }),
  );
  await untilReady(noria, 5);
  expect(noria.watched.sessions().find(({ id }) => id === 'one')?.member).toBe(member);
  expect(await get(first, url, 'me-source-city')).toBe(200);
});

test('reload: what is read once at the start is named', async () => {
  const { noria, options } = await startTwo();
  expect(await noria.reload(testConfig({ ...options, more: 'workers: 3' }))).toEqual(['workers']);
});

test('shutdown: clients are refused, readiness says so, a tunnel may finish within the drain time', async () => {
  const { sandbox, noria, first } = await startTwo();
  const tunnel = await openTunnel(first, new URL(sandbox.targetUrl).host);
  const closing = noria.close();
  await until('readiness says it', () => !noria.watched.status().ready);
  expect(noria.watched.status().reason).toMatch(/shutting down/);
  expect(await ask(tunnel, '/ip')).toContain('200 OK');
  tunnel.end();
  await closing;
  await expect(get(first, sandbox.targetUrl)).rejects.toThrow();
});
