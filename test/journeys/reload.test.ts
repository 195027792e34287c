/**
 * An operator changes the configuration of a running noria. Unchanged parts keep their members, sessions and tunnels; a
 * configuration that cannot be applied changes nothing.
 */
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { resolve } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import type { Config } from '../../src/config/config.ts';
import { freePort, freePorts } from '../support/free-port.ts';
import {
  type NoriaOptions,
  openTestSandbox,
  sourceLine,
  startNoria,
  testConfig,
  untilReady,
} from '../support/noria.ts';
import { until } from '../support/until.ts';

async function openTunnel(proxyPort: number, target: string): Promise<Socket> {
  const socket = connect(proxyPort, '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {}); // ignored: noria may reset it
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`);
  const [head] = await once(socket, 'data');
  expect(String(head)).toMatch(/^HTTP\/1\.1 200 /);
  return socket;
}

async function ask(socket: Socket, path: string): Promise<string> {
  socket.write(`GET ${path} HTTP/1.1\r\nHost: target\r\n\r\n`);
  const cut = once(socket, 'close').then(() => {
    throw new Error('noria closed the tunnel');
  });
  const [answer] = await Promise.race([once(socket, 'data'), cut]);
  return String(answer);
}

/** A port that another server listens on. */
async function takenPort(): Promise<number> {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  onTestFinished(() => void taken.close());
  return (taken.address() as AddressInfo).port;
}

const tls = (name: 'first' | 'second') =>
  `, tls: { cert: "${resolve(`test/fixtures/tls/${name}.cert.pem`)}", key: "${resolve(`test/fixtures/tls/${name}.key.pem`)}" }`;

/** The fingerprint of a listener's certificate. */
async function certificateAt(port: number): Promise<string | undefined> {
  const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false });
  onTestFinished(() => void socket.destroy());
  await once(socket, 'secureConnect');
  return socket.getPeerX509Certificate()?.fingerprint256;
}

/** Without a drain time. */
const withoutDrain = (config: Config): Config => ({
  ...config,
  shutdown: { ...config.shutdown, drainTimeoutMs: 0 },
});

function adminAt(port: number, config: Config): Config {
  const address = { kind: 'tcp', host: '127.0.0.1', port, lastPort: port } as const;
  return config.admin === undefined ? config : { ...config, admin: { ...config.admin, address } };
}

function get(proxyPort: number, url: string, user?: string): Promise<number> {
  const headers =
    user === undefined
      ? {}
      : { 'proxy-authorization': `Basic ${Buffer.from(`${user}:x`).toString('base64')}` };
  return new Promise((answered, reject) => {
    const asked = request(
      { port: proxyPort, host: '127.0.0.1', path: url, headers, agent: false },
      (answer) => {
        answer.resume();
        answered(answer.statusCode ?? 0);
      },
    );
    asked.on('error', reject);
    asked.end();
  });
}

async function startTwo(more: Partial<NoriaOptions> = {}) {
  const sandbox = await openTestSandbox({ members: 8, lifetimeMs: 600_000 });
  const before = await freePorts(2);
  const [first, second] = [before + 1, await freePort()];
  const sources = [
    sourceLine(sandbox, 'pure', 'short-pure', 'size: 2, params: { count: 2 }'),
    sourceLine(sandbox, 'shared', 'shared', 'size: 2, params: { count: 2 }'),
  ];
  const listeners = (...ports: string[]) => `listeners: [${ports.join(', ')}]`;
  const plain = (port: number, more = '') => `{ address: "127.0.0.1:${port}", denyTargets: []${more} }`;
  const options: NoriaOptions = { sources, listeners: listeners(plain(first), plain(second)), ...more };
  const noria = await startNoria(options);
  await untilReady(noria, 4);
  return { sandbox, noria, options, sources, before, first, second, listeners, plain };
}

test('reload: an unchanged source keeps its members, a removed one loses them', async () => {
  const { noria, options, sources } = await startTwo();
  const before = noria.control
    .members()
    .filter(({ source }) => source === 'pure')
    .map(({ id }) => id);
  expect(await noria.reload(testConfig({ ...options, sources: sources.slice(0, 1) }))).toEqual([]);
  const after = noria.control.members().map(({ id }) => id);
  expect(before.length).toBe(2);
  expect(after).toEqual(before);
  expect(noria.control.status().sources.map(({ name }) => name)).toEqual(['pure']);
});

test('reload: tunnels stay open, also those of a removed listener', async () => {
  const { sandbox, noria, options, first, second, listeners, plain } = await startTwo({ drain: '60s' });
  const target = new URL(sandbox.targetUrl).host;
  const [kept, leaving] = [await openTunnel(first, target), await openTunnel(second, target)];
  await noria.reload(testConfig({ ...options, listeners: listeners(plain(first)) }));
  expect(await ask(kept, '/ip')).toContain('200 OK');
  expect(await ask(leaving, '/ip')).toContain('200 OK');
  await expect(openTunnel(second, target)).rejects.toThrow(/ECONNREFUSED/);
});

test('reload: a changed listener keeps its address', async () => {
  const { sandbox, noria, options, first, second, listeners, plain } = await startTwo();
  const users = ', users: [{ username: me, password: secret-word }]';
  await noria.reload(testConfig({ ...options, listeners: listeners(plain(first, users), plain(second)) }));
  expect(await get(first, `${sandbox.targetUrl}/ip`)).toBe(407);
  expect(await get(second, `${sandbox.targetUrl}/ip`)).toBe(200);
});

test('reload: a listener may move to an overlapping port range or address', async () => {
  const { sandbox, noria, options, before, first, listeners } = await startTwo();
  const at = (address: string) =>
    testConfig({
      ...options,
      listeners: listeners(
        `{ address: "${address}", denyTargets: [], users: [{ username: me, password: x }] }`,
      ),
    });
  for (const address of [`127.0.0.1:${before}-${first}`, `0.0.0.0:${first}`, `127.0.0.1:${first}`]) {
    expect(await noria.reload(at(address)), address).toEqual([]);
    expect(await get(first, `${sandbox.targetUrl}/ip`, 'me'), address).toBe(200);
  }
});

test('reload: if a port is taken, nothing changes', async () => {
  const { sandbox, noria, options, sources, first, second, listeners, plain } = await startTwo();
  const port = await takenPort();
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
    expect(noria.control.status().sources.length).toBe(2);
  }
});

test('reload: a refused one closes no connection and changes no certificate, wherever it fails', async () => {
  const { sandbox, noria, options, first, second, listeners, plain } = await startTwo();
  const before = listeners(plain(first), plain(second, tls('first')));
  await noria.reload(testConfig({ ...options, listeners: before }));
  const [fingerprint, taken] = [await certificateAt(second), await takenPort()];
  const target = new URL(sandbox.targetUrl).host;
  const tunnels = await Promise.all(Array.from({ length: 10 }, () => openTunnel(first, target)));
  const renewed = plain(second, tls('second'));
  const silent = plain(first, ', idleTimeout: 7s');
  const wide = `{ address: "0.0.0.0:${first}", users: [{ username: me, password: secret-word }] }`;
  const connections = () => noria.control.status().listeners[0]?.connections;
  const refused: Record<string, Config> = {
    'a changed listener, and a port that is taken': withoutDrain(
      testConfig({ ...options, listeners: listeners(renewed, silent, plain(taken)) }),
    ),
    'another address, and a port that is taken': withoutDrain(
      testConfig({ ...options, listeners: listeners(renewed, wide, plain(taken)) }),
    ),
    'changed listeners, and an admin port that is taken': adminAt(
      taken,
      withoutDrain(testConfig({ ...options, listeners: listeners(renewed, silent) })),
    ),
    'a removed listener, and an admin port that is taken': adminAt(
      taken,
      withoutDrain(testConfig({ ...options, listeners: listeners(renewed) })),
    ),
  };
  for (const [what, next] of Object.entries(refused)) {
    await expect(noria.reload(next), what).rejects.toMatchObject({ code: 'listen-failed' });
    await until(`${what}: all tunnels are counted`, () => connections() === tunnels.length);
    for (const tunnel of tunnels) expect(await ask(tunnel, '/ip'), what).toContain('200 OK');
    expect(await get(first, `${sandbox.targetUrl}/ip`), what).toBe(200);
    expect(await certificateAt(second), what).toBe(fingerprint);
  }
  await noria.reload(withoutDrain(testConfig({ ...options, listeners: listeners(renewed, plain(first)) })));
  expect(await certificateAt(second)).not.toBe(fingerprint);
  for (const tunnel of tunnels) expect(await ask(tunnel, '/ip')).toContain('200 OK');
});

test('reload: the admin server and a listener may exchange their addresses', async () => {
  const { sandbox, noria, options, first, listeners, plain } = await startTwo();
  const port = await freePort();
  const other = await freePort();
  const [here, there] = [
    adminAt(port, testConfig({ ...options, listeners: listeners(plain(first)) })),
    adminAt(first, testConfig({ ...options, listeners: listeners(plain(other)) })),
  ];
  for (const [next, admin, proxy] of [
    [here, port, first],
    [there, first, other],
    [here, port, first],
  ] as const) {
    await noria.reload(next);
    expect((await fetch(`http://127.0.0.1:${admin}/readyz`)).status).toBe(200);
    expect(await get(proxy, `${sandbox.targetUrl}/ip`)).toBe(200);
  }
});

test('reload: connections of a changed listener are counted until the drain time has passed', async () => {
  const { sandbox, noria, options, first, listeners, plain } = await startTwo({ drain: '4s' });
  const target = new URL(sandbox.targetUrl).host;
  const tunnels = [await openTunnel(first, target), await openTunnel(first, target)];
  const connections = () => noria.control.status().listeners[0]?.connections;
  await noria.reload(testConfig({ ...options, listeners: listeners(plain(first, ', idleTimeout: 7s')) }));
  expect(connections()).toBe(tunnels.length);
  tunnels.push(await openTunnel(first, target));
  await until('all tunnels are counted', () => connections() === tunnels.length);
  const ended = tunnels.slice(0, 2).map((tunnel) => once(tunnel.resume(), 'close'));
  await Promise.all(ended);
  await until('closed tunnels are not counted', () => connections() === 1);
});

test('reload: a session keeps its member, and clients can select a new source', async () => {
  const { sandbox, noria, options, sources, first } = await startTwo();
  const url = `${sandbox.targetUrl}/ip`;
  expect(await get(first, url, 'me-source-city')).toBe(400);
  await get(first, url, 'me-session-one');
  const member = noria.control.sessions().find(({ id }) => id === 'one')?.member;
  await noria.reload(
    testConfig({
      ...options,
      sources: [...sources, sourceLine(sandbox, 'city', 'short-classic', 'size: 1, params: { count: 1 }')],
    }),
  );
  await untilReady(noria, 5);
  expect(noria.control.sessions().find(({ id }) => id === 'one')?.member).toBe(member);
  expect(await get(first, url, 'me-source-city')).toBe(200);
});

test('reload: returns the sections that take effect at the next start, until they are as at this start', async () => {
  const { noria, options } = await startTwo();
  const reload = (more: string) => noria.reload(testConfig({ ...options, more }));
  expect(await reload('workers: 3')).toEqual(['workers']);
  expect(await reload('workers: 3')).toEqual(['workers']);
  expect(await reload('')).toEqual([]);
});

test('shutdown: refuses new clients, is not ready, and lets a tunnel finish within the drain time', async () => {
  const { sandbox, noria, first } = await startTwo({ drain: '60s' });
  const tunnel = await openTunnel(first, new URL(sandbox.targetUrl).host);
  const closing = noria.close();
  await until('noria is not ready', () => !noria.control.status().ready);
  expect(noria.control.status().reason).toMatch(/shutting down/);
  expect(await ask(tunnel, '/ip')).toContain('200 OK');
  tunnel.end();
  await closing;
  await expect(get(first, sandbox.targetUrl)).rejects.toThrow();
});

test('shutdown: readiness says until when noria waits for tunnels, and the log reports it at info', async () => {
  const { sandbox, noria, first } = await startTwo({ drain: '60s' });
  const tunnel = await openTunnel(first, new URL(sandbox.targetUrl).host);
  const earliestAt = Date.now() + 60_000;
  const closing = noria.close();
  const [, end = ''] = / waits for open tunnels until (\S+)$/.exec(noria.control.status().reason) ?? [];
  expect(Date.parse(end)).toBeGreaterThanOrEqual(earliestAt);
  expect(Date.parse(end)).toBeLessThanOrEqual(Date.now() + 60_000);
  const answer = await fetch(`${noria.admin}/readyz`);
  expect([answer.status, await answer.text()]).toEqual([
    503,
    expect.stringMatching(
      /^not serving: noria is shutting down: .*Z\nnoria has been in this state for \d+ s\.\n$/,
    ),
  ]);
  tunnel.end();
  await closing;
  const changes = noria.lines
    .map((line) => JSON.parse(line))
    .filter(({ msg }) => msg === 'readiness changed');
  expect(changes.at(-1)).toMatchObject({ level: 30, to: 'not-serving', shuttingDown: true });
});

test('reload: one that starts after the shutdown is refused, and changes nothing', async () => {
  const { noria, options } = await startTwo();
  const { config } = noria;
  const closing = noria.close();
  const reload = noria.reload(testConfig({ ...options, more: 'dial: { attempts: 7 }' }));
  await expect(reload).rejects.toMatchObject({ code: 'shutting-down' });
  await closing;
  expect(noria.config).toBe(config);
});
