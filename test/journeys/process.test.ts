/** A real noria process replaces a certificate without closing a connection, and ends when it receives a signal. */
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { type TLSSocket, connect as tlsConnect } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { hasCommand } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { getIp, setUpDaemon, startOn, tunnelThrough } from './daemon-stage.ts';
import { NORIA, runNoria } from './noria-process.ts';

test('process: SIGHUP loads a new certificate and keeps connections open', async () => {
  const stage = await setUpDaemon();
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
  expect(await getIp(tunnel)).toContain('200 OK');
});

test('process: SIGTERM lets a tunnel finish, refuses new clients, and ends with 0', async () => {
  const stage = await setUpDaemon();
  const noria = await startOn(stage);
  const tunnel = await tunnelThrough(connect(stage.port, '127.0.0.1'), stage);
  noria.child.kill('SIGTERM');
  await noria.line('noria is shutting down');
  expect(await getIp(tunnel)).toContain('200 OK');
  await until('new clients are refused', () => refuses(stage.port)); // with several workers, this takes until all of them have stopped listening
  tunnel.end();
  expect(await noria.ended).toEqual([0, null]);
  expect(existsSync(join(stage.folder, 'state/snapshot.json'))).toBe(true);
});

test('process: the last log line says how many connections noria cut when the drain time had passed', async () => {
  const stage = await setUpDaemon('', 'shutdown: { drainTimeout: 0s }');
  const noria = await startOn(stage, '--log-level', 'trace');
  await tunnelThrough(connect(stage.port, '127.0.0.1'), stage);
  await noria.line('connection opened'); // with several workers, a worker reports the connection to the primary
  noria.child.kill('SIGTERM');
  expect(await noria.line('noria has ended')).toMatchObject({ level: 30, cutConnections: 1 });
  expect(await noria.ended).toEqual([0, null]);
});

test('process: a second signal ends noria at once, also with open tunnels', async () => {
  const stage = await setUpDaemon();
  const noria = await startOn(stage);
  await tunnelThrough(connect(stage.port, '127.0.0.1'), stage);
  noria.child.kill('SIGINT');
  await noria.line('noria is shutting down');
  noria.child.kill('SIGTERM');
  expect(await noria.ended).toEqual([143, null]); // 128 + SIGTERM
  expect(noria.lines('noria ends at once, because of a second signal')).toHaveLength(1);
});

/** Whether this machine lets a test start a process as PID 1 of a new namespace. */
const UNSHARE = ['--pid', '--fork', '--kill-child', '--mount-proc'];
// An ordinary user may do so as the root of a new user namespace, where the machine allows that.
if (process.getuid?.() !== 0) UNSHARE.push('--user', '--map-root-user');
const CAN_UNSHARE = hasCommand('pgrep') && spawnSync('unshare', [...UNSHARE, 'true']).status === 0;

test.skipIf(!CAN_UNSHARE)('process: as PID 1, noria receives SIGTERM and ends with 0', async () => {
  const stage = await setUpDaemon();
  const noria = runNoria([...NORIA, 'run', '-c', stage.file], {
    command: ['unshare', ...UNSHARE],
  });
  await noria.line('noria is running');
  const { stdout } = spawnSync('pgrep', ['-P', String(noria.child.pid)], { encoding: 'utf8' });
  process.kill(Number(stdout.trim()), 'SIGTERM');
  expect(await noria.ended).toEqual([0, null]);
});

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
