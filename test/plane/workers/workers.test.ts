/**
 * A whole noria with two workers does everything that one process does, also when a worker exits. A test chooses which
 * worker accepts a connection: it stops the other one (SIGSTOP) during that time.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { type Clock, systemClock } from '../../../src/core/clock.ts';
import { startNoria as embedNoria } from '../../../src/embed.ts';
import type { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { runNoria, testFolder, writeIn } from '../../journeys/noria-process.ts';
import { freePort } from '../../support/free-port.ts';
import { openTestSandbox, sourceLine, testConfig } from '../../support/noria.ts';
import { hasCommand } from '../../support/tools.ts';
import { until } from '../../support/until.ts';
import {
  ask,
  basic,
  connectTo,
  getIp,
  LOST,
  lines,
  openTunnel,
  startPair,
  untilLost,
  untilStatus,
  whileAlone,
  workersOf,
} from './worker-pair.ts';

test('workers: a killed worker loses only its own tunnels, and is replaced', async () => {
  const { noria, workers, through } = await startPair();
  const target = await openPatientTarget();
  const [dying, staying] = [await through(0), await through(1)];
  for (const socket of [dying, staying]) expect(await openTunnel(socket, target)).toMatch(/^HTTP\/1\.1 200 /);
  await until('both are counted', () => noria.control.status().listeners[0]?.connections === 2);
  const ended = once(dying, 'close');
  process.kill(workers[0], 'SIGKILL');
  await ended;
  expect(await getIp(staying)).toContain('200 OK');
  await untilLost(noria);
  await untilStatus(
    noria,
    ({ pool, listeners }) => pool.openTunnels === 1 && listeners[0]?.connections === 1,
  );
  expect(noria.control.members().filter(({ faults }) => faults > 0)).toEqual([]);
  const again = connect(Number(noria.proxy.split(':')[1]), '127.0.0.1');
  onTestFinished(() => void again.destroy());
  expect(await openTunnel(again, target)).toMatch(/^HTTP\/1\.1 200 /);

  await untilStatus(noria, ({ workers }) => workers.running === 2);
  expect(lines(noria, LOST)).toMatchObject([
    { level: 50, pid: workers[0], how: 'killed by SIGKILL', connections: 1 },
  ]);
  let page = '';
  // Workers report their events ten times a second, or later on a busy machine.
  await until('the metrics count the open connections', async () => {
    page = await (await fetch(`${noria.admin}/metrics`)).text();
    return /^noria_connections_open\{listener="127\.0\.0\.1:0"\} 2$/m.test(page);
  });
  expect(page).toMatch(/^noria_workers 2$/m);
  expect(page).toMatch(/^noria_connections_total\{.*protocol="unknown",outcome="internal"\} 1$/m);
});

test('workers: noria is not ready while all workers are down', async () => {
  const held: (() => void)[] = [];
  let isHeld = false;
  const hold = (run: () => void) => {
    held.push(run);
    return { [Symbol.dispose]: () => {} };
  };
  const after: Clock['after'] = (ms, run) => (isHeld ? hold(run) : systemClock.after(ms, run));
  const { noria, workers } = await startPair({}, { ...systemClock, after });
  isHeld = true; // no worker starts, however long the answer takes
  for (const pid of workers) process.kill(pid, 'SIGKILL');
  await untilLost(noria, 2);
  const answer = await fetch(`${noria.admin}/readyz`);
  expect([answer.status, await answer.text()]).toEqual([
    503,
    expect.stringMatching(/^not serving: all workers are down; restarting/),
  ]);
  isHeld = false;
  for (const run of held) run();
  await untilStatus(noria, ({ ready }) => ready);
});

test('workers: a replacement has the current configuration', async () => {
  const { noria, options, workers, target, connectToWorker, through } = await startPair();
  const users = 'denyTargets: [], users: [{ username: me, password: right-one }]';
  const listeners = `listeners: [{ address: "${noria.proxy}", ${users} }]`; // the same port as before, now written as a number
  expect(await noria.reload(testConfig({ ...options, listeners }))).toEqual([]);
  expect(await openTunnel(await through(0), target)).toMatch(/^HTTP\/1\.1 407 /);
  process.kill(workers[0], 'SIGKILL');
  await untilLost(noria);
  await untilStatus(noria, ({ workers }) => workers.running === 2);
  const fresh = workersOf(process.pid).find((pid) => !workers.includes(pid)) ?? 0;
  const socket = await connectToWorker(fresh, [workers[1], fresh]);
  expect(await openTunnel(socket, target)).toMatch(/^HTTP\/1\.1 407 /);
  const again = await connectToWorker(fresh, [workers[1], fresh]);
  expect(await openTunnel(again, target, basic('me', 'right-one'))).toMatch(/^HTTP\/1\.1 200 /);
});

test('workers: a session keeps its member in every worker', async () => {
  const { target, through } = await startPair();
  const members: (string | undefined)[] = [];
  for (const worker of [0, 1, 0, 1] as const) {
    const answer = await openTunnel(await through(worker), target, basic('me-session-one'));
    members.push(/^X-Noria-Member: (\S+)\r$/m.exec(answer)?.[1]);
  }
  expect(members[0]).toBeDefined();
  expect(new Set(members).size).toBe(1);
});

test('workers: the limit on sessions counts a client over all of them', async () => {
  const more = 'workers: 2\nrotation: { maxSessionsPerClient: 2 }';
  const { noria, target, through } = await startPair({ more });
  for (const [worker, name] of [
    [0, 'one'],
    [1, 'two'],
    [0, 'three'],
  ] as const) {
    const tunnel = await openTunnel(await through(worker), target, basic(`me-session-${name}`));
    expect(tunnel).toMatch(/^HTTP\/1\.1 200 /);
  }
  await until('the new session has ended another one', () => {
    const ids = noria.control.sessions().map(({ id }) => id);
    return ids.length === 2 && ids.includes('three');
  });
});

test('workers: tunnels of a session are closed in all workers', async () => {
  const { noria, target, through } = await startPair();
  const sockets = [await through(0), await through(1)];
  for (const socket of sockets) await openTunnel(socket, target, basic('me-session-one'));
  const other = await through(0);
  await openTunnel(other, target);
  const ended = sockets.map((socket) => new Promise((resolve) => socket.on('error', resolve)));
  expect(noria.control.rotateSession('one', true)).toBe(true);
  await Promise.all(ended);
  expect(await getIp(other)).toContain('200 OK');
});

test('workers: a client asks about a tag, and reports it, through any worker', async () => {
  const { noria, target, through } = await startPair();
  const [tunnel, desk] = [await through(0), await through(1)];
  const tagged = basic('me-tag-r1');
  expect(await openTunnel(tunnel, target, tagged)).toMatch(/^HTTP\/1\.1 200 /);
  const exit = (await getIp(tunnel)).split('\r\n\r\n')[1]?.trim();
  const say = (path: string, headers = tagged) =>
    ask(desk, `GET http://noria.invalid${path} HTTP/1.1\r\nHost: x\r\n${headers}\r\n`);
  const described = JSON.parse((await say('/')).split('\r\n\r\n')[1] ?? '');
  expect(described).toMatchObject({ tag: 'r1', exit, attempts: 1, sites: ['127.0.0.1'] });
  expect(await say('/banned', basic('me-tag-r2'))).toMatch(/^HTTP\/1\.1 404 /);
  const ended = new Promise((resolve) => tunnel.on('close', resolve));
  expect(await say('/banned?for=30m&close=1')).toMatch(/^HTTP\/1\.1 204 /);
  await ended;
  const requests = () => fetch(`${noria.admin}/api/requests?tag=r1`).then((answer) => answer.json());
  await until('the record is known', async () => ((await requests()) as unknown[]).length === 1);
  expect(await requests()).toMatchObject([{ tag: 'r1', attempts: [{ exit }] }]);
  const sites = await (await fetch(`${noria.admin}/api/sites`)).json();
  expect(sites).toMatchObject([{ name: '127.0.0.1', bannedExits: 1 }]);
});

test('workers: without a tag or a session, a report means the last request in any worker', async () => {
  const { target, through } = await startPair();
  const sockets = [await through(0), await through(1), await through(0)] as const;
  const [first, second, desk] = sockets;
  const exits: (string | undefined)[] = [];
  for (const tunnel of [first, second]) {
    expect(await openTunnel(tunnel, target)).toMatch(/^HTTP\/1\.1 200 /);
    exits.push((await getIp(tunnel)).split('\r\n\r\n')[1]?.trim());
  }
  const answer = await ask(desk, 'GET http://noria.invalid/ HTTP/1.1\r\nHost: x\r\n\r\n');
  expect(JSON.parse(answer.split('\r\n\r\n')[1] ?? '')).toMatchObject({ exit: exits[1] });
});

test('workers: maxConnections limits all workers together, and a freed connection can be used by any worker', async () => {
  const { noria, target, through } = await startPair({ listener: 'maxConnections: 3' });
  const open = [await through(0), await through(0), await through(1)];
  for (const socket of open) expect(await openTunnel(socket, target)).toMatch(/^HTTP\/1\.1 200 /);
  for (const worker of [0, 1] as const) {
    expect(await openTunnel(await through(worker), target)).toMatch(
      /^HTTP\/1\.1 503 .*X-Noria-Error: too-many-connections\r\n/s,
    );
  }
  await until(
    'only those within the limit are open',
    () => noria.control.status().listeners[0]?.connections === 3,
  );
  open[0]?.destroy();
  await until('a connection has closed', () => noria.control.status().listeners[0]?.connections === 2);
  expect(await openTunnel(await through(1), target), 'the permit was held by the other worker').toMatch(
    /^HTTP\/1\.1 200 /,
  );
  expect(await openTunnel(await through(0), target)).toMatch(/^HTTP\/1\.1 503 /);
});

/** Answers each request, and closes no connection that is idle for long, as on a busy machine. */
async function openPatientTarget(): Promise<string> {
  const server = createServer((socket) => {
    socket
      .on('error', () => {})
      .on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'));
  }).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Listens on the port like another program. */
async function occupy(port: number, host: string) {
  const program = createServer().listen(port, host);
  onTestFinished(() => void program.close());
  await once(program, 'listening');
  return program;
}

test('workers: a reload to a taken port changes nothing, and succeeds once the port is free', async () => {
  const { noria, options, workers, target, through } = await startPair();
  const tunnels = [await through(0), await through(1)];
  for (const socket of tunnels) expect(await openTunnel(socket, target)).toMatch(/^HTTP\/1\.1 200 /);
  const port = await freePort();
  const program = await occupy(port, '127.0.0.1');
  const listeners = `listeners: [{ address: "127.0.0.1:0", denyTargets: [] }, { address: "127.0.0.1:${port}" }]`;
  const next = testConfig({ ...options, listeners });
  for (let n = 0; n < 3; n += 1) {
    await expect(noria.reload(next)).rejects.toMatchObject({
      code: 'listen-failed',
      message: `cannot listen on 127.0.0.1:${port}: another program listens there (address in use); stop it, or choose another port`,
    });
  }
  program.close();
  await once(program, 'close');
  await noria.reload(next);
  expect(await refuses(`127.0.0.1:${port}`)).toBe(false);
  for (const socket of tunnels) expect(await getIp(socket)).toContain('200 OK');
  expect(workers.filter(isAlive)).toEqual(workers);
});

test('workers: maxConnections is unchanged after failed reloads', async () => {
  const { noria, options, through, target } = await startPair({ listener: 'maxConnections: 3' });
  const [host, port] = noria.proxy.split(':');
  const first = [await through(0), await through(1)]; // so that both workers hold permits
  for (const socket of first) await openTunnel(socket, target);
  await untilStatus(noria, ({ listeners }) => listeners[0]?.connections === 2);
  for (const socket of first) socket.destroy();
  await untilStatus(noria, ({ listeners }) => listeners[0]?.connections === 0);
  await occupy(Number(port), '127.0.0.2'); // this occupies 0.0.0.0, but not noria's own address
  const users = 'users: [{ username: me, password: right-one }]';
  const listeners = `listeners: [{ address: "0.0.0.0:${port}", ${users} }]`;
  for (let n = 0; n < 3; n += 1) {
    await expect(noria.reload(testConfig({ ...options, listeners }))).rejects.toMatchObject({
      code: 'listen-failed',
    });
  }
  const proxy = `${host}:${port}`;
  expect(noria.addresses.listeners).toEqual([proxy]);
  for (const worker of [0, 1, 0] as const) {
    expect(await openTunnel(await through(worker), target)).toMatch(/^HTTP\/1\.1 200 /);
  }
  expect(await openTunnel(await through(1), target)).toMatch(/^HTTP\/1\.1 503 /);
});

test('workers: wrong passwords are counted over all workers', async () => {
  const { target, through } = await startPair({
    listener: 'users: [{ username: me, password: right-one }]',
  });
  const guessing = [await through(0), await through(1)] as const;
  const honest = [await through(0), await through(1)] as const;
  const guess = (worker: 0 | 1) => openTunnel(guessing[worker], target, basic('me', 'guess'));
  for (let n = 0; n < 10; n += 1) {
    for (const worker of [0, 1] as const) expect(await guess(worker)).toMatch(/^HTTP\/1\.1 407 /);
  }
  for (const worker of [0, 1] as const) {
    await until('a wrong password must wait', async () => /^HTTP\/1\.1 429 /.test(await guess(worker)));
    expect(await openTunnel(honest[worker], target, basic('me', 'right-one'))).toMatch(/^HTTP\/1\.1 200 /);
  }
});

test('workers: closing lets open tunnels finish, then ends all workers', async () => {
  const { noria, workers, target, through } = await startPair({ drain: '60s' });
  const tunnels = [await through(0), await through(1)];
  for (const socket of tunnels) await openTunnel(socket, target);
  const closing = noria.close();
  await until('new clients are refused', () => refuses(noria.proxy));
  for (const socket of tunnels) {
    expect(await getIp(socket)).toContain('200 OK');
    socket.end();
  }
  await closing;
  expect(workersOf(process.pid).filter((pid) => workers.includes(pid))).toEqual([]);
  expect(lines(noria, LOST)).toEqual([]);
});

test('workers: a worker that hangs delays neither the close nor a reload in progress by more than a second', async () => {
  const firedMs: number[] = [];
  const clock: Clock = {
    ...systemClock,
    after: (ms, fn) =>
      systemClock.after(ms, () => {
        firedMs.push(ms);
        fn();
      }),
  };
  const { noria, options, workers, target, through } = await startPair({ drain: '4s' }, clock);
  const tunnel = await through(1);
  await openTunnel(tunnel, target);
  process.kill(workers[0], 'SIGSTOP');
  const listeners = `listeners: [{ address: "127.0.0.1:0", denyTargets: [] }, { address: "127.0.0.1:${await freePort()}" }]`;
  const reloaded = noria.reload(testConfig({ ...options, listeners }));
  const closing = noria.close();
  await reloaded;
  expect(await getIp(tunnel)).toContain('200 OK');
  tunnel.end();
  await closing;
  expect(firedMs, 'a reload alone would wait 30 s for the worker').not.toContain(30_000);
  expect(workers.filter(isAlive)).toEqual([]);
});

async function refuses(proxy: string): Promise<boolean> {
  const socket = connect(Number(proxy.split(':')[1]), '127.0.0.1');
  try {
    await once(socket, 'connect');
    return false;
  } catch {
    return true; // handled: there is no listener
  } finally {
    socket.destroy();
  }
}

/** Writes a configuration with two workers that listen on this address. */
function pairFile(sandbox: Sandbox, address: string): string {
  const config = `
sources:
${sourceLine(sandbox, 'city', 'short-classic', 'size: 2, params: { count: 2 }')}
pool: { fill: size, allowPrivateAddresses: true }
listeners: [{ address: "${address}", denyTargets: [] }]
admin: off
state: off
workers: 2
`;
  return writeIn(testFolder(), 'noria.yaml', config);
}

/** Runs `noria run` with two workers. */
async function runPair() {
  const sandbox = await openTestSandbox({ members: 4, lifetimeMs: 600_000 });
  const port = await freePort();
  const noria = runNoria(['run', '-c', pairFile(sandbox, `127.0.0.1:${port}`)]);
  await noria.line('noria is running');
  await noria.line('draw done');
  const workers = workersOf(noria.child.pid);
  expect(workers.length).toBe(2);
  return { noria, workers, proxy: `127.0.0.1:${port}`, target: new URL(sandbox.targetUrl).host };
}

const isAlive = (pid: number) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false; // handled: there is no such process
  }
};

test('workers: exit when the primary is killed', async () => {
  const { noria, workers, proxy } = await runPair();
  noria.child.kill('SIGKILL');
  await noria.ended;
  await until('they have exited', () => !workers.some(isAlive));
  expect(await refuses(proxy)).toBe(true);
});

test('workers: ignore signals that a terminal sends to all processes', async () => {
  const { noria, workers, proxy, target } = await runPair();
  for (const pid of workers) {
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.kill(pid, signal);
  }
  const socket = connect(Number(proxy.split(':')[1]), '127.0.0.1');
  onTestFinished(() => void socket.destroy());
  expect(await openTunnel(socket, target)).toMatch(/^HTTP\/1\.1 200 /);
  for (const pid of [...workers, noria.child.pid ?? 0]) process.kill(pid, 'SIGINT');
  await noria.line('noria is shutting down');
  expect(await getIp(socket)).toContain('200 OK');
  socket.end();
  expect(await noria.ended).toEqual([0, null]);
  expect(noria.lines('noria has ended').length).toBe(1);
  expect(
    noria
      .err()
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('{')),
  ).toEqual([]);
});

test.skipIf(!hasCommand('systemd-socket-activate'))(
  'workers: all serve an inherited socket, and noria ends with the last of them',
  async () => {
    const sandbox = await openTestSandbox({ members: 4, lifetimeMs: 600_000 });
    const port = await freePort();
    const file = pairFile(sandbox, 'fd:3');
    const noria = runNoria([process.execPath, 'src/main.ts', 'run', '-c', file], {
      command: ['systemd-socket-activate', '-E', 'NODE_COMPILE_CACHE', '-l', `127.0.0.1:${port}`],
    });
    await until('the socket is open', () => /Listening on/.test(noria.err()));
    const first = connect(port, '127.0.0.1'); // this connection waits in the socket's queue until noria runs
    onTestFinished(() => void first.destroy());
    await noria.line('draw done');
    const target = new URL(sandbox.targetUrl).host;
    expect(await openTunnel(first, target)).toMatch(/^HTTP\/1\.1 200 /);
    const workers = workersOf(noria.child.pid);
    for (const pid of workers) {
      const answer = await whileAlone(pid, workers, async () =>
        openTunnel(await connectTo(`127.0.0.1:${port}`), target),
      );
      expect(answer).toMatch(/^HTTP\/1\.1 200 /);
    }
    for (const pid of workers) process.kill(pid, 'SIGKILL');
    expect(await noria.ended).toEqual([1, null]);
    expect(noria.err()).toContain(
      'noria: all workers have exited, and an inherited socket cannot be opened again\n',
    );
  },
);

test('workers: an embedded noria refuses workers', async () => {
  const config = `
sources: [{ name: city, product: short-classic, instance: "1", akey: "0123456789abcdef", baseUrl: "http://127.0.0.1:9" }]
workers: auto
`;
  await expect(embedNoria({ config })).rejects.toMatchObject({
    code: 'bad-config',
    message: 'noria.yaml: workers: auto works only with noria run; an embedded noria needs workers: 1',
  });
});
