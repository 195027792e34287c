/**
 * A real noria process starts completely or not at all, and applies a changed configuration completely or not at all. Either
 * way it prints what is wrong.
 */
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { startNoria } from '../../src/embed.ts';
import { getIp, setUpDaemon, startOn, tunnelThrough } from './daemon-stage.ts';
import { runNoria, writeIn } from './noria-process.ts';

test('process: refuses an invalid configuration with every error, and keeps the old one', async () => {
  const stage = await setUpDaemon();
  const noria = await startOn(stage);
  const tunnel = await tunnelThrough(connect(stage.port, '127.0.0.1'), stage);
  writeFileSync(stage.file, stage.config(', sesion: port', 'dial: { attempts: none }'));
  noria.child.kill('SIGHUP');
  const refused = await noria.line('configuration refused; the previous one stays in force');
  expect(refused).toMatchObject({ level: 50, cause: 'SIGHUP', file: stage.file });
  const errors = String(refused.errors);
  expect(errors).toMatch(/listeners\[0\]\.sesion: unknown key; did you mean session\?/);
  expect(errors).toMatch(/dial\.attempts: /);
  expect(await getIp(tunnel)).toContain('200 OK');
  expect(noria.child.exitCode).toBeNull();
});

test('process: a SIGHUP during the start reloads after it', async () => {
  // This line causes a warning, which is printed before anything is opened.
  const stage = await setUpDaemon('', 'dial: { waitForMember: 60s, deadline: 5s }');
  const noria = runNoria(['run', '-c', stage.file]);
  await noria.line('configuration warning');
  noria.child.kill('SIGHUP');
  await noria.line('noria is running');
  expect(await noria.line('configuration reloaded')).toMatchObject({ cause: 'SIGHUP', changed: [] });
});

test('process: --watch applies a changed file and logs what changed', async () => {
  const stage = await setUpDaemon();
  const noria = await startOn(stage, '--watch');
  const tunnel = await tunnelThrough(connect(stage.port, '127.0.0.1'), stage);
  writeFileSync(stage.file, stage.config('', 'dial: { attempts: 5 }\nworkers: 3'));
  const reloaded = await noria.line('configuration reloaded');
  expect(reloaded).toMatchObject({ cause: 'the file changed', changed: ['dial', 'workers'] });
  expect(await noria.line('some changes need a restart')).toMatchObject({
    keys: ['workers'],
  });
  expect(await getIp(tunnel)).toContain('200 OK');
});

test('process: a start that fails prints the reason, exits with 1 and releases the state folder', async () => {
  const stage = await setUpDaemon();
  const taken = createServer().listen(stage.port, '127.0.0.1');
  await once(taken, 'listening');
  const noria = runNoria(['run', '-c', stage.file, '--log-level', 'warn']);
  expect(await noria.ended).toEqual([1, null]);
  expect(noria.err().trim().split('\n')).toEqual([
    `noria: cannot listen on 127.0.0.1:${stage.port}: another program listens there (address in use); stop it, or choose another port`,
    '  Correct the address in the configuration, or stop the program that uses the address.',
  ]);
  expect(stage.sandbox.stats().calls, 'draws of the failed start').toBe(0);
  taken.close();
  await once(taken, 'close');
  await startOn(stage);
});

test('process: a start that fails closes everything that it had opened', async () => {
  const stage = await setUpDaemon();
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  onTestFinished(() => void taken.close());
  const { port } = taken.address() as AddressInfo;
  const first = `listeners: [{ address: "127.0.0.1:${stage.port}" }, { address: "127.0.0.1:${port}" }]`;
  const config = stage.config('', 'workers: 1').replace(/^listeners: .*$/m, first);
  await expect(startNoria({ config })).rejects.toMatchObject({ code: 'listen-failed' });
  const noria = await startNoria({ config: stage.config('', 'workers: 1') }); // runs in the process of the test, so the end of a process releases nothing
  onTestFinished(() => noria.close());
  expect(noria.addresses.listeners).toEqual([`127.0.0.1:${stage.port}`]);
});

test('process: a second daemon on one state folder refuses to start and names the first', async () => {
  const stage = await setUpDaemon();
  const first = await startOn(stage);
  const other = writeIn(stage.folder, 'other.yaml', stage.config().replace(`:${stage.port}"`, ':0"'));
  const second = runNoria(['run', '-c', other, '--log-level', 'warn']);
  expect(await second.ended).toEqual([1, null]);
  expect(second.err()).toContain(`is in use by the noria with pid ${first.child.pid}\n`);
  expect(first.child.exitCode).toBeNull();
});

test('process: a closed output pipe ends noria quietly', async () => {
  const noria = runNoria(['check', '--schema']);
  noria.child.stdout?.destroy();
  expect(await noria.ended).toEqual([141, null]); // 128 + SIGPIPE
  expect(noria.err()).toBe('');
});
