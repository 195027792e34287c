import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { BROKEN, sweepDrafts, VersionedFile } from '../../src/state/state-files.ts';
import { until } from '../support/until.ts';
import { temporaryFolder } from './temporary-folder.ts';

const COUNTER = join(import.meta.dirname, 'counting-process.ts');
const plusOne = (value: unknown) => {
  const next = (typeof value === 'number' ? value : 0) + 1;
  return { newValue: next, result: next };
};
const read = (value: unknown) => ({ result: value });

test('versioned file: concurrent changes are applied one after the other', async () => {
  const file = new VersionedFile(temporaryFolder(), 'count');
  const results = await Promise.all(Array.from({ length: 40 }, () => file.change(plusOne)));
  expect([...results].sort((a, b) => a - b)).toEqual(Array.from({ length: 40 }, (_, index) => index + 1));
  expect(await file.change(read)).toBe(40);
});

test('versioned file: killed processes do not block or undo the changes of others', async () => {
  const folder = temporaryFolder();
  const file = new VersionedFile(folder, 'count');
  const victims = [1, 2].map(() => spawn(process.execPath, [COUNTER, folder, '1000000']));
  const counters = [1, 2, 3].map(() => spawn(process.execPath, [COUNTER, folder, '60']));
  await until('the victims have counted, too', async () => Number((await file.change(read)) ?? 0) > 20);
  for (const victim of victims) victim.kill('SIGKILL');
  const codes = await Promise.all(counters.map(async (counter) => (await once(counter, 'exit'))[0]));
  expect(codes).toEqual([0, 0, 0]);
  expect(Number(await file.change(read))).toBeGreaterThanOrEqual(180);
});

test('versioned file: a process whose base version was swept decides again on the newest', async () => {
  const folder = temporaryFolder();
  const file = new VersionedFile(folder, 'count');
  await file.change(plusOne);
  const seen: unknown[] = [];
  await file.change((value) => {
    seen.push(value);
    // Another process now creates twenty versions and removes old versions. The name of the version that this change creates is
    // then free again.
    if (seen.length === 1) execFileSync(process.execPath, [COUNTER, folder, '20']);
    return { newValue: 'mine', result: undefined };
  });
  expect(seen).toEqual([1, 21]);
  expect(await file.change(read)).toBe('mine');
  expect(readdirSync(folder).length).toBeLessThanOrEqual(9);
});

test('versioned file: a newest version that is not JSON is BROKEN and can be replaced', async () => {
  const folder = temporaryFolder();
  const file = new VersionedFile(folder, 'count');
  await file.change(plusOne);
  writeFileSync(join(folder, 'count.7.json'), '{"value":');
  expect(await file.change(read)).toBe(BROKEN);
  await file.change(() => ({ newValue: 'whole', result: undefined }));
  expect(await file.change(read)).toBe('whole');
  expect(readFileSync(join(folder, 'count.8.json'), 'utf8')).toContain('"whole"');
});

test.each(['7', 'null', '{}', '[]'])('versioned file: a newest version with %s is BROKEN', async (text) => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'count.7.json'), text);
  expect(await new VersionedFile(folder, 'count').change(read)).toBe(BROKEN);
});

test.skipIf(process.platform !== 'linux')('versioned file: a change leaves no descriptor open', async () => {
  const folder = temporaryFolder();
  const file = new VersionedFile(folder, 'count');
  for (let time = 0; time < 3; time += 1) await file.change(plusOne);
  const open = readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      return [readlinkSync(join('/proc/self/fd', fd))];
    } catch {
      return []; // ignored: the descriptor of this listing, which is closed now
    }
  });
  expect(open.length).toBeGreaterThan(0);
  expect(open.filter((path) => path.startsWith(folder))).toEqual([]);
});

test('versioned file: an error of decide is rethrown and nothing is written', async () => {
  const file = new VersionedFile(temporaryFolder(), 'count');
  await file.change(plusOne);
  const refuse = () => {
    throw new RangeError('not this time');
  };
  await expect(file.change(refuse)).rejects.toThrow('not this time');
  expect(await file.change(read)).toBe(1);
});

test('versioned file: a missing folder is state-unwritable', async () => {
  const file = new VersionedFile(join(temporaryFolder(), 'missing'), 'count');
  await expect(file.change(plusOne)).rejects.toMatchObject({ code: 'state-unwritable' });
});

test('versioned file: a folder that is removed during a change is state-unwritable', async () => {
  const folder = join(temporaryFolder(), 'gone');
  mkdirSync(folder);
  const file = new VersionedFile(folder, 'count');
  const change = file.change((value) => {
    rmSync(folder, { recursive: true });
    return plusOne(value);
  });
  await expect(change).rejects.toMatchObject({ code: 'state-unwritable' });
});

test('versioned file: sweeping removes drafts and no version', async () => {
  const folder = temporaryFolder();
  const file = new VersionedFile(folder, 'count');
  await file.change(plusOne);
  writeFileSync(join(folder, 'pace.0f0f.tmp'), 'half a vers');
  await sweepDrafts(folder);
  expect(readdirSync(folder).sort()).toEqual(['count.0.json', 'count.1.json']);
});

test('versioned file: a daemon that starts and removes drafts does not fail the changes of others', async () => {
  const folder = temporaryFolder();
  const file = new VersionedFile(folder, 'pace');
  let [starts, changes] = [0, 0];
  const change = async () => {
    for (; starts < 20; changes += 1) await file.change(plusOne);
  };
  const start = async () => {
    while (starts < 20) {
      if (readdirSync(folder).some((name) => name.endsWith('.tmp'))) starts += 1;
      await sweepDrafts(folder);
    }
  };
  await Promise.all([start(), change(), change(), change()]);
  expect(await file.change(read)).toBe(changes);
});

test('versioned file: what a killed process left over delays no change, and a change leaves nothing over', async () => {
  const folder = temporaryFolder();
  const file = new VersionedFile(folder, 'count');
  await file.change(plusOne);
  const leftOver = ['count.0b1e.tmp', 'count.7.json.tmp', 'count.7.jsonx', 'xcount.9.json', 'counts.9.json'];
  for (const name of leftOver) writeFileSync(join(folder, name), '');
  let result: number | undefined;
  const change = file.change(plusOne).then((next) => (result = next));
  await until('the change has ended, although files are left over', () => result !== undefined);
  expect(await change).toBe(2);
  const own = /^count\.\d+\.json$/;
  expect(
    readdirSync(folder)
      .filter((name) => !own.test(name))
      .sort(),
  ).toEqual([...leftOver].sort());
});

test('versioned file: the eight newest versions stay', async () => {
  const folder = temporaryFolder();
  const file = new VersionedFile(folder, 'count');
  for (let time = 0; time < 12; time += 1) await file.change(plusOne);
  const numbers = readdirSync(folder).map((name) => Number(name.split('.')[1]));
  expect(numbers.sort((a, b) => a - b)).toEqual([5, 6, 7, 8, 9, 10, 11, 12]);
});

// Else a process that was suspended finds its base version, although the version that it creates existed before.
test('versioned file: no version is removed before an older one', async () => {
  const folder = temporaryFolder();
  const write = (number: number) => writeFileSync(join(folder, `count.${number}.json`), '{"value":1}');
  for (const number of [2, 10, 3, 1, 11, 5, 6, 20]) write(number);
  mkdirSync(join(folder, 'count.4.json')); // cannot be removed as a file is
  await expect(new VersionedFile(folder, 'count').change(plusOne)).rejects.toMatchObject({
    code: 'state-unwritable',
  });
  const left = readdirSync(folder).map((name) => Number(name.split('.')[1]));
  expect(left.sort((a, b) => a - b)).toEqual([4, 5, 6, 10, 11, 20, 21]);
});
