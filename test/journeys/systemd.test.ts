/**
 * systemd receives noria's state, reloads and stops it, and passes it a socket; both units are valid. The tests use a real
 * datagram socket, systemd-socket-activate and systemd-analyze.
 */
import { spawn, spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { curl } from '../support/curl.ts';
import { freePort } from '../support/free-port.ts';
import { openTestSandbox, sourceLine, WORKERS_LINE } from '../support/noria.ts';
import { hasCommand } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { NORIA, runNoria, testFolder, writeIn } from './noria-process.ts';

const HAS_NOTIFY = hasCommand('systemd-notify') && hasCommand('python3');
const HAS_ACTIVATE = hasCommand('systemd-socket-activate') && hasCommand('curl');
const HAS_ANALYZE = hasCommand('systemd-analyze');

/** Receives on a Unix datagram socket, which Node does not support. Prints each message as a line of JSON. */
const RECEIVER = `
import json, socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
print('[]', flush=True)
while True: print(json.dumps(s.recv(4096).decode().splitlines()), flush=True)
`;

/** Returns all messages to the socket, without the barrier that systemd-notify adds. */
async function listenAsSystemd(path: string): Promise<() => readonly string[]> {
  const child = spawn('python3', ['-c', RECEIVER, path], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill());
  let text = '';
  child.stdout.on('data', (chunk) => {
    text += chunk;
  });
  await until('the socket is bound', () => text !== '');
  const lines = () => text.split('\n').slice(1, -1);
  return () =>
    lines()
      .flatMap((line) => JSON.parse(line))
      .filter((field) => field !== 'BARRIER=1');
}

async function configFor(listener: string): Promise<{ file: string; folder: string; targetUrl: string }> {
  const sandbox = await openTestSandbox({ members: 4, lifetimeMs: 600_000 });
  const folder = testFolder();
  const text = `
sources:
${sourceLine(sandbox, 'city', 'short-classic', 'size: 2, params: { count: 2 }')}
pool: { fill: size, allowPrivateAddresses: true }
listeners: [{ address: "${listener}", denyTargets: [] }]
admin: off
state: off
${WORKERS_LINE}
`;
  return { file: writeIn(folder, 'noria.yaml', text), folder, targetUrl: sandbox.targetUrl };
}

test.skipIf(!HAS_NOTIFY)(
  'systemd: receives readiness, watchdog, reload and stop notifications in that order',
  async () => {
    const { file, folder } = await configFor('127.0.0.1:0');
    const socket = join(folder, 'notify');
    const received = await listenAsSystemd(socket);
    const noria = runNoria(['run', '-c', file], { env: { NOTIFY_SOCKET: socket, WATCHDOG_USEC: '900000' } });
    const hasReceived = (field: string, times = 1) =>
      received().filter((each) => each === field).length >= times;
    await until('READY=1', () => hasReceived('READY=1'));
    await until('two watchdog messages', () => hasReceived('WATCHDOG=1', 2));
    await until('a status', () =>
      received().some((field) => /^STATUS=serving: 2 members are usable/.test(field)),
    );
    noria.child.kill('SIGHUP');
    await until(
      'RELOADING=1, then ready again',
      () => hasReceived('RELOADING=1') && hasReceived('READY=1', 2),
    );
    noria.child.kill('SIGTERM');
    expect(await noria.ended).toEqual([0, null]);
    await until('STOPPING=1', () => hasReceived('STOPPING=1'));

    const order = received().filter((field) => /^(READY|RELOADING|STOPPING)=/.test(field));
    expect(order).toEqual(['READY=1', 'RELOADING=1', 'READY=1', 'STOPPING=1']);
    const reloadedUs = Number(
      received()
        .find((field) => field.startsWith('MONOTONIC_USEC='))
        ?.split('=')[1],
    );
    expect(reloadedUs).toBeLessThan(Number(process.hrtime.bigint() / 1_000n));
    const status =
      /^STATUS=not serving: noria is shutting down: it refuses new clients, and waits for open tunnels until /;
    expect(received()).toContainEqual(expect.stringMatching(status));
    expect(received()).toContain('EXTEND_TIMEOUT_USEC=35000000');
  },
);

test.skipIf(!HAS_NOTIFY)(
  'systemd: noria logs once that it cannot notify systemd, and continues',
  async () => {
    const { file } = await configFor('127.0.0.1:0');
    const noria = runNoria(['run', '-c', file], {
      env: { NOTIFY_SOCKET: '/nowhere', WATCHDOG_USEC: '300000' },
    });
    await noria.line('cannot notify systemd');
    noria.child.kill('SIGTERM');
    expect(await noria.ended).toEqual([0, null]);
    expect(noria.lines('cannot notify systemd').length).toBe(1);
  },
);

test.skipIf(!HAS_ACTIVATE)('systemd: noria listens on an inherited socket', async () => {
  const { file, folder, targetUrl } = await configFor('fd:3');
  const port = await freePort();
  const noria = runNoria([...NORIA, 'run', '-c', file], {
    command: ['systemd-socket-activate', '-E', 'NODE_COMPILE_CACHE', '-l', `127.0.0.1:${port}`],
  });
  await until('systemd-socket-activate listens', () => /Listening on/.test(noria.err()));
  // This connection starts noria, and waits in the backlog until noria accepts it.
  const first = await curl('-x', `http://127.0.0.1:${port}`, `${targetUrl}/ip`);
  expect(first).toMatchObject({ exitCode: 0, out: expect.stringMatching(/^127\./) });
  expect((await noria.line('noria is running'))['listeners']).toEqual([`127.0.0.1:${port}`]);

  // A socket cannot be inherited twice. So a reload that changes the listener is refused, and the listener remains.
  writeIn(
    folder,
    'noria.yaml',
    readFileSync(file, 'utf8').replace('denyTargets: []', 'denyTargets: [":99"]'),
  );
  noria.child.kill('SIGHUP');
  const refused = await noria.line('configuration refused; the previous one stays in force');
  expect(String(refused['errors'])).toMatch(
    /fd:3: an inherited socket can be opened only once; restart noria/,
  );
  const again = await curl('-x', `http://127.0.0.1:${port}`, `${targetUrl}/ip`);
  expect(again).toMatchObject({ exitCode: 0, out: expect.stringMatching(/^127\./) });
});

test('systemd: fd:3 without an inherited socket is refused with advice', async () => {
  const { file } = await configFor('fd:3');
  const noria = runNoria(['run', '-c', file], { env: { LISTEN_FDS: '1', LISTEN_PID: '1' } });
  expect(await noria.ended).toEqual([1, null]);
  expect(noria.err()).toMatch(
    /cannot listen on fd:3: noria inherited no socket with this number; start noria through a systemd/,
  );
});

const UNITS = ['systemd/noria.service', 'systemd/noria.socket'];

test.skipIf(!HAS_ANALYZE)('systemd: systemd-analyze verifies both units without a message', () => {
  // This machine does not have the program that the unit starts.
  const { status, stderr } = spawnSync('systemd-analyze', ['verify', '--man=no', ...UNITS], {
    encoding: 'utf8',
  });
  const messages = stderr.split('\n').filter((line) => line !== '' && !/is not executable/.test(line));
  expect(messages).toEqual([]);
  if (stderr === '') expect(status).toBe(0);
});

test('systemd: noria writes no core dump, which would contain secrets', () => {
  expect(readFileSync(UNITS[0] ?? '', 'utf8')).toMatch(/^LimitCORE=0$/m);
});

test.skipIf(!HAS_ANALYZE)('systemd: the exposure of the service is below 2.0', () => {
  const { stdout } = spawnSync('systemd-analyze', ['security', '--offline=true', UNITS[0] ?? ''], {
    encoding: 'utf8',
  });
  const exposure = Number(/Overall exposure level for noria\.service: ([\d.]+)/.exec(stdout)?.[1]);
  expect(exposure).toBeLessThan(2);
});
