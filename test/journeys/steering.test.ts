/** An operator controls a running daemon by commands, with the daemon's own configuration file and none of its variables. */
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { expect, onTestFinished, test } from 'vitest';
import { runProgram } from '../../src/commands/program.ts';
import { fakeTerminal } from '../commands/fake-terminal.ts';
import { freePort } from '../support/free-port.ts';
import { until } from '../support/until.ts';
import { type DaemonStage, getIp, setUpDaemon, startOn, tunnelThrough } from './daemon-stage.ts';
import { runNoria } from './noria-process.ts';

const withAdmin = (stage: DaemonStage, port: number, more = '') =>
  stage.config('', more).replace('admin: off', `admin: { address: "127.0.0.1:${port}" }`);

/** Runs a command in this process: a process for each took most of the time of these tests. */
async function command(stage: DaemonStage, ...args: string[]) {
  const terminal = fakeTerminal();
  const code = await runProgram([...args, '-c', stage.file], terminal);
  return { code, out: terminal.printed(), err: terminal.errors() };
}

async function startWithAdmin() {
  const stage = await setUpDaemon();
  const adminPort = await freePort();
  writeFileSync(stage.file, withAdmin(stage, adminPort));
  return { stage, adminPort, noria: await startOn(stage) };
}

test('steering: noria reload applies the file, and says what changed and what waits for a restart', async () => {
  const { stage, adminPort, noria } = await startWithAdmin();
  const tunnel = await tunnelThrough(connect(stage.port, '127.0.0.1'), stage);
  writeFileSync(stage.file, withAdmin(stage, adminPort, 'dial: { attempts: 5 }\nworkers: 3'));
  const reload = runNoria(['reload', '-c', stage.file]);
  expect(await reload.ended).toEqual([0, null]);
  expect([reload.out(), reload.err()]).toEqual([
    'configuration reloaded; changed: dial, workers\n  These changes since noria started need a restart: workers\n',
    '',
  ]);
  expect(await noria.line('configuration reloaded')).toMatchObject({ cause: 'admin API' });
  expect(await getIp(tunnel)).toContain('200 OK');
});

test('steering: noria reload prints every error of an invalid file, and changes nothing', async () => {
  const { stage, adminPort, noria } = await startWithAdmin();
  const admin = ['--admin', String(adminPort)];
  writeFileSync(stage.file, withAdmin(stage, adminPort, 'dial: { attempts: none }\nsorces: []'));
  const { code, out, err } = await command(stage, 'reload', ...admin);
  expect({ code, out }).toEqual({ code: 2, out: '' });
  expect(err).toContain(`${stage.file}:`);
  expect(err).toMatch(/dial\.attempts: /);
  expect(err).toMatch(/sorces: unknown key; did you mean sources\?/);
  await noria.line('configuration refused; the previous one stays in force');
  expect((await command(stage, 'status', ...admin)).code).toBe(0);
});

test('steering: noria reload to an address in use is refused with the address', async () => {
  const { stage, adminPort } = await startWithAdmin();
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  onTestFinished(() => void taken.close());
  const { port } = taken.address() as AddressInfo;
  writeFileSync(stage.file, withAdmin(stage, adminPort).replace(`:${stage.port}"`, `:${port}"`));
  const { code, err } = await command(stage, 'reload');
  expect(err).toContain(`cannot listen on 127.0.0.1:${port}`);
  expect(code).toBe(1);
});

test('steering: noria reload may move the admin API itself', async () => {
  const { stage, adminPort, noria } = await startWithAdmin();
  const nextPort = await freePort();
  writeFileSync(stage.file, withAdmin(stage, nextPort));
  const { code, out } = await command(stage, 'reload', '--admin', String(adminPort));
  expect(out).toMatch(
    /^configuration accepted; changed: admin\n {2}The admin API restarts to apply the change/,
  );
  expect(code).toBe(0);
  await noria.line('configuration reloaded');
  expect((await command(stage, 'status')).code).toBe(0);
});

test('steering: a paused source draws again after noria resume', async () => {
  const { stage } = await startWithAdmin();
  await until('the first draw is over', async () => {
    const { sources } = JSON.parse((await command(stage, 'status', '--json')).out);
    return sources[0].state !== 'drawing';
  });
  expect((await command(stage, 'pause', 'city')).out).toMatch(
    /^city is paused: paused by the operator\n {2}Run noria resume city/,
  );
  expect((await command(stage, 'resume', 'city')).out).toMatch(/^city is (ready|waiting|idle): /);
  const { out } = await command(stage, 'members', '--source', 'city', '--json');
  const [{ id }] = JSON.parse(out);
  expect((await command(stage, 'members', 'evict', id)).code).toBe(0);
  const left = JSON.parse((await command(stage, 'members', '--json')).out) as { id: string }[];
  expect(left.map((member) => member.id)).not.toContain(id);
});
