/**
 * The process as an operator lives with it: it starts wholly or not at all, says in a line what is wrong, reloads without a
 * loss, and ends when told. Seen by a real process, its exit code, its log and its listeners.
 */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chownSync, copyFileSync, existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { type TLSSocket, connect as tlsConnect } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { startNoria } from '../../src/embed.ts';
import type { Sandbox } from '../../src/sandbox/sandbox.ts';
import { freePort } from '../support/free-port.ts';
import { openTestSandbox, sourceLine, WORKERS_LINE } from '../support/noria.ts';
import { until } from '../support/until.ts';
import { type NoriaProcess, runNoria, testFolder, writeIn } from './noria-process.ts';

interface Stage {
  readonly sandbox: Sandbox;
  readonly folder: string;
  readonly file: string;
  readonly port: number;
  /** The configuration with further keys inside its one listener, and further sections. */
  config(listener?: string, more?: string): string;
}

async function setUp(listener = '', more = ''): Promise<Stage> {
  const sandbox = await openTestSandbox({ members: 4, lifetimeMs: 60_000 });
  const folder = testFolder();
  const port = await freePort();
  const config = (inListener = '', sections = '') => `
sources:
${sourceLine(sandbox, 'city', 'short-classic', 'size: 2, params: { count: 2 }')}
pool: { allowPrivateAddresses: true }
listeners: [{ address: "127.0.0.1:${port}", denyTargets: []${inListener} }]
admin: off
state: { dir: "${join(folder, 'state')}" }
${/^workers:/m.test(sections) ? '' : WORKERS_LINE}
${sections}
`;
  return { sandbox, folder, port, config, file: writeIn(folder, 'noria.yaml', config(listener, more)) };
}

async function startOn(stage: Stage, ...args: string[]): Promise<NoriaProcess> {
  const noria = runNoria(['run', '-c', stage.file, ...args]);
  await noria.line('noria is running');
  await noria.line('draw done');
  return noria;
}

/** An open tunnel to the sandbox's target. */
async function tunnelThrough(socket: Socket, { sandbox }: Stage): Promise<Socket> {
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {}); // ended by the test
  const { host } = new URL(sandbox.targetUrl);
  socket.write(`CONNECT ${host} HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  const [head] = await once(socket, 'data');
  expect(String(head)).toMatch(/^HTTP\/1\.1 200 /);
  return socket;
}

async function refuses(port: number): Promise<boolean> {
  const late = connect(port, '127.0.0.1');
  try {
    await once(late, 'connect');
    return false;
  } catch (error) {
    return error instanceof Error && error.message.includes('ECONNREFUSED');
  } finally {
    late.destroy();
  }
}

async function ask(socket: Socket): Promise<string> {
  socket.write('GET /ip HTTP/1.1\r\nHost: target\r\n\r\n');
  const [answer] = await once(socket, 'data');
  return String(answer);
}

test('process: a configuration that became invalid is refused with every error, and the one before goes on', async () => {
  const stage = await setUp();
  const noria = await startOn(stage);
  const tunnel = await tunnelThrough(connect(stage.port, '127.0.0.1'), stage);
  writeFileSync(stage.file, stage.config(', sesion: port', 'dial: { attempts: none }'));
  noria.child.kill('SIGHUP');
  const refused = await noria.line('configuration refused: the one before goes on');
  expect(refused).toMatchObject({ level: 50, cause: 'SIGHUP', file: stage.file });
  const errors = String(refused.errors);
  expect(errors).toMatch(/listeners\[0\]\.sesion: unknown key; did you mean session\?/);
  expect(errors).toMatch(/dial\.attempts: /);
  expect(await ask(tunnel)).toContain('200 OK');
  expect(noria.child.exitCode).toBeNull();
});

test('process: --watch takes over what was written, and says what changed', async () => {
  const stage = await setUp();
  const noria = await startOn(stage, '--watch');
  const tunnel = await tunnelThrough(connect(stage.port, '127.0.0.1'), stage);
  writeFileSync(stage.file, stage.config('', 'dial: { attempts: 5 }\nworkers: 3'));
  const reloaded = await noria.line('configuration reloaded');
  expect(reloaded).toMatchObject({ cause: 'the file changed', changed: ['dial', 'workers'] });
  expect(await noria.line('these sections take effect at the next start')).toMatchObject({
    sections: ['workers'],
  });
  expect(await ask(tunnel)).toContain('200 OK');
});

test('process: a new certificate is taken over while connections go on', async () => {
  const stage = await setUp();
  const [cert, key] = [join(stage.folder, 'cert.pem'), join(stage.folder, 'key.pem')];
  const use = (name: 'first' | 'second') => {
    copyFileSync(`test/fixtures/tls/${name}.cert.pem`, cert);
    copyFileSync(`test/fixtures/tls/${name}.key.pem`, key);
  };
  const open = async (): Promise<TLSSocket> => {
    const socket = tlsConnect({ port: stage.port, host: '127.0.0.1', rejectUnauthorized: false });
    onTestFinished(() => void socket.destroy());
    await once(socket, 'secureConnect');
    return socket;
  };
  use('first');
  writeFileSync(stage.file, stage.config(`, tls: { cert: "${cert}", key: "${key}" }`));
  const noria = await startOn(stage);
  const before = await open();
  const tunnel = await tunnelThrough(before, stage);
  use('second');
  noria.child.kill('SIGHUP');
  await noria.line('configuration reloaded');
  const after = await open();
  expect(after.getPeerX509Certificate()?.fingerprint256).not.toBe(
    before.getPeerX509Certificate()?.fingerprint256,
  );
  expect(await ask(tunnel)).toContain('200 OK');
});

test('process: SIGTERM lets a tunnel finish, takes no new client, and ends with 0', async () => {
  const stage = await setUp();
  const noria = await startOn(stage);
  const tunnel = await tunnelThrough(connect(stage.port, '127.0.0.1'), stage);
  noria.child.kill('SIGTERM');
  await noria.line('noria is shutting down');
  expect(await ask(tunnel)).toContain('200 OK');
  await until('no new client is taken', () => refuses(stage.port)); // at once, or as soon as all workers have heard
  tunnel.end();
  expect(await noria.ended).toEqual([0, null]);
  expect(existsSync(join(stage.folder, 'state/snapshot.json'))).toBe(true);
});

test('process: a second signal ends it at once, whatever is open', async () => {
  const stage = await setUp();
  const noria = await startOn(stage);
  await tunnelThrough(connect(stage.port, '127.0.0.1'), stage);
  noria.child.kill('SIGINT');
  await noria.line('noria is shutting down');
  noria.child.kill('SIGTERM');
  expect(await noria.ended).toEqual([143, null]); // 128 + SIGTERM
});

test('process: what fails to open leaves nothing: one line, exit code 1, and the state folder is free', async () => {
  const stage = await setUp();
  const taken = createServer().listen(stage.port, '127.0.0.1');
  await once(taken, 'listening');
  const noria = runNoria(['run', '-c', stage.file, '--log-level', 'warn']);
  expect(await noria.ended).toEqual([1, null]);
  expect(noria.err().trim().split('\n')).toEqual([
    `noria: cannot listen on 127.0.0.1:${stage.port}: another program listens there`,
    '  Free the port, choose another one, or grant the permission.',
  ]);
  expect(stage.sandbox.stats().calls, 'nothing is drawn for a start that fails').toBe(0);
  taken.close();
  await once(taken, 'close');
  await startOn(stage);
});

test('process: a start that fails gives back what it had opened: port, state folder, and all', async () => {
  const stage = await setUp();
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  onTestFinished(() => void taken.close());
  const { port } = taken.address() as AddressInfo;
  const first = `listeners: [{ address: "127.0.0.1:${stage.port}" }, { address: "127.0.0.1:${port}" }]`;
  const config = stage.config('', 'workers: 1').replace(/^listeners: .*$/m, first);
  await expect(startNoria({ config })).rejects.toMatchObject({ code: 'listen-failed' });
  const noria = await startNoria({ config: stage.config('', 'workers: 1') }); // in the same process: no dead owner helps
  onTestFinished(() => noria.close());
  expect(noria.addresses.listeners).toEqual([`127.0.0.1:${stage.port}`]);
});

test('process: a second daemon on one state folder refuses, and names the first', async () => {
  const stage = await setUp();
  const first = await startOn(stage);
  const other = writeIn(stage.folder, 'other.yaml', stage.config().replace(`:${stage.port}"`, ':0"'));
  const second = runNoria(['run', '-c', other, '--log-level', 'warn']);
  expect(await second.ended).toEqual([1, null]);
  expect(second.err()).toContain(`is in use by the noria with pid ${first.child.pid}\n`);
  expect(first.child.exitCode).toBeNull();
});

test('process: a reader that leaves early ends it quietly', async () => {
  const noria = runNoria(['check', '--schema']);
  noria.child.stdout?.destroy();
  expect(await noria.ended).toEqual([141, null]); // 128 + SIGPIPE
  expect(noria.err()).toBe('');
});

/** Root can write everywhere: where the tests run as root, noria runs as `nobody`. */
const UNPRIVILEGED = process.getuid?.() === 0 ? { uid: 65_534 } : {};

test('process: names a state folder that it cannot write', async () => {
  const stage = await setUp();
  const locked = join(stage.folder, 'locked');
  mkdirSync(locked, { mode: 0o555 });
  const file = writeIn(stage.folder, 'noria.yaml', stage.config().replace(stage.folder, locked));
  const { uid } = UNPRIVILEGED;
  if (uid !== undefined) for (const path of [stage.folder, file]) chownSync(path, uid, uid);
  const noria = runNoria(['run', '-c', file, '--log-level', 'warn'], UNPRIVILEGED);
  expect(await noria.ended).toEqual([1, null]);
  expect(noria.err()).toMatch(
    /^noria: the state folder \S+\/locked\/state .*EACCES.*\n {2}Give the user that runs noria/,
  );
});

/** Whether noria can be made the first process of a container's namespace here. */
const CAN_UNSHARE = spawnSync('unshare', ['--pid', '--fork', '--kill-child', 'true']).status === 0;

test.skipIf(!CAN_UNSHARE)('process: as PID 1 it hears SIGTERM, and ends with 0', async () => {
  const stage = await setUp();
  const noria = runNoria([process.execPath, 'src/main.ts', 'run', '-c', stage.file], {
    command: ['unshare', '--pid', '--fork', '--kill-child', '--mount-proc'],
  });
  await noria.line('noria is running');
  const { stdout } = spawnSync('pgrep', ['-P', String(noria.child.pid)], { encoding: 'utf8' });
  process.kill(Number(stdout.trim()), 'SIGTERM');
  expect(await noria.ended).toEqual([0, null]);
});
