/**
 * Files of others in the state folder that have one of noria's names. noria reports them immediately, and never writes
 * through or over them.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import {
  chownSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { openState } from '../../src/state/folder.ts';
import {
  findOwnerProblem,
  inspectFolder,
  type Owners,
  readStateFile,
  replaceStateFile,
  sweepDrafts,
} from '../../src/state/state-files.ts';
import { temporaryFolder } from './temporary-folder.ts';

async function open(dir: string, daemon = true) {
  const warnings: string[] = [];
  const warn = (message: string) => warnings.push(message);
  const state = await openState({ dir, daemon, fleet: undefined, clock: systemClock, warn });
  onTestFinished(() => state.close());
  return { state, warnings };
}

const makeFifo = (path: string) => void execFileSync('mkfifo', [path]);

/** Leaves the socket of a process that was killed. It opens its name only, because a socket's path has at most 107 bytes. */
function makeSocket(path: string): void {
  const open = `require('node:net').createServer().listen(process.argv[1], () => process.kill(process.pid, 'SIGKILL'))`;
  spawnSync(process.execPath, ['-e', open, basename(path)], { cwd: dirname(path) });
}

const kinds: [string, string, (path: string) => void | Promise<void>][] = [
  'snapshot.json',
  'pace.3.json',
  'daemon.1.json',
  'sessions.jsonl',
].flatMap((name): [string, string, (path: string) => void | Promise<void>][] => [
  [name, 'a FIFO', makeFifo],
  [name, 'a directory', (path) => mkdirSync(path)],
  [name, 'a symbolic link', (path) => symlinkSync('/dev/null', path)],
  [name, 'a symbolic link', (path) => symlinkSync('missing', path)],
  [name, 'a socket', makeSocket],
]);

test.each(kinds)('state folder: %s that is %s ends the start with a message', async (name, kind, make) => {
  const dir = temporaryFolder();
  const path = join(dir, name);
  await make(path);
  const problem = `${path} is ${kind}, not a regular file; remove it`;
  for (const daemon of [true, false]) {
    await expect(open(dir, daemon)).rejects.toMatchObject({
      code: 'state-unwritable',
      message: `cannot use the state folder ${dir}: ${problem}`,
    });
  }
  expect(await inspectFolder(dir)).toEqual([problem]);
  expect(readdirSync(dir)).toEqual([name]);
});

test.each(['pace.9007199254740992.json', 'daemon.9007199254740993.json', `pace.${'9'.repeat(30)}.json`])(
  'state folder: %s, which has no successor, ends the start with a message',
  async (name) => {
    const dir = temporaryFolder();
    writeFileSync(join(dir, name), '{}');
    const problem = `${join(dir, name)} has a version number above 1000000000000, so noria did not write it; remove it`;
    await expect(open(dir)).rejects.toThrow(problem);
    expect(await inspectFolder(dir)).toEqual([problem]);
  },
);

test('state folder: a version without successor that appears later fails each change with a message', async () => {
  const dir = temporaryFolder();
  const { state } = await open(dir);
  writeFileSync(join(dir, 'pace.9007199254740992.json'), '{}');
  await expect(state.pace.change('k', () => ({ result: 1 }))).rejects.toThrow(
    'pace.9007199254740992.json has a version number above 1000000000000, so noria did not write it; remove it',
  );
});

test('state folder: other names are ignored, and only drafts of noria are removed', async () => {
  const dir = temporaryFolder();
  mkdirSync(join(dir, 'x.tmp'));
  mkdirSync(join(dir, 'lost+found'));
  makeFifo(join(dir, 'fifo'));
  writeFileSync(join(dir, 'mine.tmp'), 'mine');
  writeFileSync(join(dir, 'pace.dead.tmp'), '{');
  const { state, warnings } = await open(dir);
  await state.close();
  const names = readdirSync(dir).filter((name) => !/^(daemon|pace)\.\d\.json$/.test(name));
  expect(names.sort()).toEqual(['fifo', 'lost+found', 'mine.tmp', 'x.tmp']);
  expect(warnings).toEqual([]);
});

test('state folder: a draft that is a directory ends the start with a message', async () => {
  const dir = temporaryFolder();
  mkdirSync(join(dir, 'pace.x.tmp'));
  await expect(open(dir)).rejects.toThrow(
    `${join(dir, 'pace.x.tmp')} is a directory, not a regular file; remove it`,
  );
});

test('state file: is never written through a link that appears after the start', async () => {
  const dir = temporaryFolder();
  const { state, warnings } = await open(dir);
  const elsewhere = join(temporaryFolder(), 'device');
  writeFileSync(elsewhere, 'not a snapshot');
  symlinkSync(elsewhere, join(dir, 'snapshot.json'));
  state.snapshot.addPart('pool', () => 'members');
  await state.snapshot.save();
  const path = join(dir, 'snapshot.json');
  expect(warnings).toEqual([
    `cannot write the snapshot ${path}: ${path} is a symbolic link, not a regular file; remove it`,
  ]);
  expect(readFileSync(elsewhere, 'utf8')).toBe('not a snapshot');
  expect(lstatSync(path).isSymbolicLink()).toBe(true);
});

test('state folder: a path that is not a directory is a problem, a missing one is not', async () => {
  const file = join(temporaryFolder(), 'file');
  writeFileSync(file, '');
  expect(await inspectFolder(file)).toEqual([`${file} is not a directory`]);
  expect(await inspectFolder(join(file, '..', 'missing'))).toEqual([]);
  const loop = join(file, '..', 'loop');
  symlinkSync(loop, loop);
  const error = { code: 'state-unwritable', message: expect.stringContaining(`state folder ${loop}: ELOOP`) };
  await expect(inspectFolder(loop)).rejects.toMatchObject(error);
});

test('state folder: may itself be behind a link', async () => {
  const dir = join(temporaryFolder(), 'link');
  symlinkSync(temporaryFolder(), dir);
  const { state } = await open(dir);
  state.snapshot.addPart('pool', () => 'members');
  await state.snapshot.save();
  expect(readdirSync(dir)).toContain('snapshot.json');
});

test.each<[who: string, owners: Owners, isAccepted: boolean]>([
  ['the user that runs noria', { file: 7, folder: 0, noria: 7 }, true],
  ['the owner of the folder', { file: 7, folder: 7, noria: 0 }, true],
  ['any user, on a system without user ids', { file: 7, folder: 0, noria: undefined }, true],
  ['another user', { file: 7, folder: 0, noria: 8 }, false],
])('state folder: a file of %s is accepted or refused by its owner: %o', (_who, owners, isAccepted) => {
  expect(findOwnerProblem('/state/snapshot.json', owners)).toBe(
    isAccepted
      ? undefined
      : '/state/snapshot.json belongs to user 7, but noria runs as user 8; change its owner or remove it',
  );
});

test('state folder: a file is accepted from the owner of the folder, and from no other user', async () => {
  const dir = temporaryFolder();
  const path = join(dir, 'snapshot.json');
  writeFileSync(path, '{}');
  const owner = lstatSync(dir).uid;
  vi.spyOn(process, 'geteuid').mockReturnValue(owner + 1);
  onTestFinished(() => void vi.restoreAllMocks());
  expect(await inspectFolder(dir)).toEqual([]);
  if (owner !== 0) return; // only root can give a file to another user
  chownSync(path, 12_345, 0);
  expect(await inspectFolder(dir)).toEqual([
    `${path} belongs to user 12345, but noria runs as user 1; change its owner or remove it`,
  ]);
  await expect(open(dir)).rejects.toThrow(`${path} belongs to user 12345`);
});

test('state file: is replaced completely, and a failed write leaves no draft', async () => {
  const dir = temporaryFolder();
  const path = join(dir, 'snapshot.json');
  const replace = async (path: string, text: string) => {
    const file = await replaceStateFile(path, (file) => file.writeFile(text));
    await file.close();
  };
  await replace(path, 'long content');
  await replace(path, 'short');
  expect(readFileSync(path, 'utf8')).toBe('short');
  mkdirSync(join(dir, 'taken'));
  await expect(replace(join(dir, 'taken'), 'x')).rejects.toThrow('is a directory');
  expect(readdirSync(dir).sort()).toEqual(['snapshot.json', 'taken']);
});

test.each([
  ['a FIFO', makeFifo],
  ['a directory', (path: string) => mkdirSync(path)],
])(
  'state folder: a version that is %s and appears later fails each change with a message',
  async (kind, make) => {
    const dir = temporaryFolder();
    const { state } = await open(dir);
    const path = join(dir, 'pace.77.json');
    make(path);
    await expect(state.pace.change('k', () => ({ result: 1 }))).rejects.toThrow(
      `${path} is ${kind}, not a regular file; remove it`,
    );
  },
);

test('state folder: a draft that cannot be removed is an error', async () => {
  const dir = temporaryFolder();
  mkdirSync(join(dir, 'pace.x.tmp'));
  await expect(sweepDrafts(dir)).rejects.toThrow('pace.x.tmp');
  expect(readdirSync(dir)).toEqual(['pace.x.tmp']);
});

test.skipIf(process.platform === 'win32')('state file: a device is not read', async () => {
  await expect(readStateFile('/dev/null')).rejects.toThrow(
    '/dev/null is a device, not a regular file; remove it',
  );
});

test('state file: a write that fails leaves the old file and no draft', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  writeFileSync(path, 'old');
  const full = () => Promise.reject(new Error('the disk is full'));
  await expect(replaceStateFile(path, full)).rejects.toThrow('the disk is full');
  expect(readdirSync(dirname(path))).toEqual(['snapshot.json']);
  expect(readFileSync(path, 'utf8')).toBe('old');
});
