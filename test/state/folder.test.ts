import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { openState, type StateOptions } from '../../src/state/folder.ts';
import { temporaryFolder } from './temporary-folder.ts';

const OWNER = join(import.meta.dirname, 'owning-process.ts');

async function open(dir: string | undefined, changes: Partial<StateOptions> = {}) {
  const warnings: string[] = [];
  const warn = (message: string) => warnings.push(message);
  const state = await openState({
    dir,
    daemon: true,
    fleet: undefined,
    clock: systemClock,
    warn,
    ...changes,
  });
  onTestFinished(() => state.close());
  return { state, warnings };
}

test('state folder: is created with access for its owner only', async () => {
  const dir = join(temporaryFolder(), 'deep', 'state');
  await open(dir);
  expect(statSync(dir).mode & 0o777).toBe(0o700);
  for (const name of readdirSync(dir)) expect(statSync(join(dir, name)).mode & 0o077, name).toBe(0);
});

test('state folder: a second daemon fails with the pid of the first until that has closed', async () => {
  const dir = temporaryFolder();
  const { state } = await open(dir);
  await expect(open(dir)).rejects.toMatchObject({ code: 'state-locked', context: { pid: process.pid } });
  await expect(open(dir)).rejects.toThrow(`in use by the noria with pid ${process.pid}`);
  await state.close();
  await state.close();
  await open(dir);
});

test('state folder: a daemon that fails to start does not lock it', async () => {
  const dir = temporaryFolder();
  const stopped = () => {
    throw new Error('the clock has stopped');
  };
  await expect(open(dir, { clock: { ...systemClock, monotonic: stopped } })).rejects.toThrow('has stopped');
  await open(dir);
});

test('state folder: a killed daemon does not lock it, a running one does', async () => {
  const dir = temporaryFolder();
  const owner = spawn(process.execPath, [OWNER, dir], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void owner.kill('SIGKILL'));
  await once(owner.stdout, 'data');
  await expect(open(dir)).rejects.toMatchObject({ code: 'state-locked', context: { pid: owner.pid } });
  owner.kill('SIGKILL');
  await once(owner, 'exit');
  await open(dir);
});

test('state folder: exactly one of five daemons that start at once gets it', async () => {
  const dir = temporaryFolder();
  const starts = await Promise.allSettled(Array.from({ length: 5 }, () => open(dir)));
  const codes = starts.map((start) => (start.status === 'fulfilled' ? 'open' : start.reason.code));
  expect(codes.sort()).toEqual(['open', 'state-locked', 'state-locked', 'state-locked', 'state-locked']);
});

test('state folder: a reused pid does not lock it', async () => {
  const dir = temporaryFolder();
  const { state } = await open(dir);
  await state.close();
  // Process 1 runs, but it did not start when this owner did.
  const owner = { pid: 1, boot: 'another boot', startTicks: 1 };
  writeFileSync(join(dir, 'daemon.99.json'), JSON.stringify({ id: 'x', value: { owner } }));
  await open(dir);
});

test('state folder: an owner whose start time is unknown locks it while a process has its pid', async () => {
  const dir = temporaryFolder();
  const own = (pid: number | undefined) =>
    JSON.stringify({ id: 'x', value: { owner: { pid, boot: 'another boot' } } });
  const { pid: ended } = spawnSync(process.execPath, ['--version']);
  writeFileSync(join(dir, 'daemon.7.json'), own(process.pid));
  await expect(open(dir)).rejects.toMatchObject({ code: 'state-locked', context: { pid: process.pid } });
  writeFileSync(join(dir, 'daemon.8.json'), own(ended));
  await open(dir);
});

test('state folder: daemons that create it and its parents at once do not fail because another was first', async () => {
  const dir = join(temporaryFolder(), 'several', 'new', 'folders');
  const starts = await Promise.allSettled(Array.from({ length: 8 }, () => open(dir)));
  const codes = starts.map((start) => (start.status === 'fulfilled' ? 'open' : start.reason.code));
  expect(codes.sort()).toEqual(['open', ...Array.from({ length: 7 }, () => 'state-locked')]);
});

test('state folder: a command shares the pace with a daemon and never writes the snapshot', async () => {
  const dir = temporaryFolder();
  const { state: daemon } = await open(dir);
  const { state: command } = await open(dir, { daemon: false });
  await daemon.pace.change('k', (_entry, now) => ({
    newEntry: {
      call: { id: 'a', claimedAt: now, arrivedWithinMs: 7, holdMs: 0, fate: 'pending' },
      queue: [],
    },
    result: undefined,
  }));
  expect(await command.pace.change('k', (entry) => ({ result: entry?.call?.arrivedWithinMs }))).toBe(7);
  command.snapshot.addPart('pool', () => 'mine');
  await command.snapshot.save();
  expect(readdirSync(dir)).not.toContain('snapshot.json');
});

test('state folder: fails if it cannot be created', async () => {
  const file = join(temporaryFolder(), 'file');
  writeFileSync(file, '');
  for (const dir of [file, join(file, 'state'), join(file, 'deep', 'state')])
    await expect(open(dir)).rejects.toMatchObject({
      code: 'state-unwritable',
      message: expect.stringMatching(
        `^cannot use the state folder ${dir}: (EEXIST|ENOTDIR): .*, mkdir '${file}`,
      ),
      context: { folder: dir },
    });
});

test.runIf(existsSync('/proc/self')).each(['/proc', '/proc/noria', '/proc/noria/deep'])(
  'state folder: fails at once in %s, where files cannot be created',
  async (dir) => {
    await expect(open(dir)).rejects.toThrow(`the state folder ${dir}: `);
    await expect(open(dir)).rejects.toMatchObject({ code: 'state-unwritable' });
  },
);

test('state folder: without one, the pace is in memory and there is no snapshot', async () => {
  const { state } = await open(undefined);
  const queue = [{ id: 'a', intervalMs: 1, renewedAt: state.pace.now(), validMs: 1 }];
  await state.pace.change('k', () => ({ newEntry: { queue }, result: undefined }));
  expect(await state.pace.change('k', (entry) => ({ result: entry?.queue }))).toEqual(queue);
  const { state: fleet } = await open(undefined);
  expect(state.addOwnCalls(fleet.pace)).toBe(fleet.pace);
  expect(state.snapshot.read('pool')).toBeUndefined();
});

test('state folder: the drafts of a crashed process are removed at the next start', async () => {
  const dir = temporaryFolder();
  writeFileSync(join(dir, 'pace.dead.tmp'), '{');
  await open(dir);
  expect(readdirSync(dir)).not.toContain('pace.dead.tmp');
});
