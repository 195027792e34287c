import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createTimekeeper } from '../../src/state/moment.ts';
import { openSnapshotFile } from '../../src/state/snapshot-file.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { temporaryFolder } from './temporary-folder.ts';

async function open(path: string, clock = new ManualClock()) {
  const warnings: string[] = [];
  const warn = (message: string) => warnings.push(message);
  const elapsedMs = () => clock.monotonic();
  const timekeeper = createTimekeeper(clock, { id: 'boot 1', elapsedMs, uptimeMs: elapsedMs });
  const snapshot = await openSnapshotFile({ path, clock, timekeeper, warn });
  onTestFinished(() => snapshot.close());
  return { snapshot, clock, warnings };
}

function partsIn(path: string) {
  const { parts } = JSON.parse(readFileSync(path, 'utf8')) as { parts: Record<string, { value: unknown }> };
  return Object.fromEntries(Object.entries(parts).map(([name, { value }]) => [name, value]));
}

test('snapshot: saved parts are found again, and only the owner can read the file', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const { snapshot } = await open(path);
  snapshot.addPart('pool', () => ({ members: [1, 2] }));
  await snapshot.save();
  expect(statSync(path).mode & 0o777).toBe(0o600);
  const { snapshot: next, warnings } = await open(path);
  expect(next.read('pool')).toEqual({ members: [1, 2] });
  expect(next.read('constructor')).toBeUndefined();
  expect(warnings).toEqual([]);
});

test('snapshot: changes within three seconds are one write', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const { snapshot, clock } = await open(path);
  let collected = 0;
  snapshot.addPart('pool', () => ++collected);
  snapshot.saveSoon();
  clock.advance(2_999);
  snapshot.saveSoon();
  expect(collected).toBe(0);
  clock.advance(1);
  await until('the snapshot is written', () => readdirSync(join(path, '..')).includes('snapshot.json'));
  expect(collected).toBe(1);
  expect(clock.armedCount).toBe(0);
});

test('snapshot: a write now does not prevent the write of a later change', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const { snapshot, clock } = await open(path);
  let members = 1;
  snapshot.addPart('pool', () => members);
  snapshot.saveSoon();
  await snapshot.save();
  members = 2;
  snapshot.saveSoon();
  clock.advance(3_000);
  await until('the later change is written', () => partsIn(path)['pool'] === 2);
});

test('snapshot: a change during a write is written after it', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const { snapshot } = await open(path);
  let members = 1;
  snapshot.addPart('pool', () => members);
  const first = snapshot.save();
  members = 2;
  await Promise.all([first, snapshot.save()]);
  expect(partsIn(path)).toEqual({ pool: 2 });
});

test('snapshot: the age of a part does not depend on changes of the wall clock', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const { snapshot, clock } = await open(path);
  snapshot.addPart('pool', () => 'members');
  await snapshot.save();
  clock.advance(5_000);
  clock.stepWall(-3_600_000);
  const { snapshot: next } = await open(path, clock);
  expect(next.ageMs('pool')).toBe(5_000);
  expect(next.ageMs('sessions')).toBe(0);
});

test('snapshot: a part that is not added keeps what was found', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const { snapshot } = await open(path);
  snapshot.addPart('pool', () => 'members');
  snapshot.addPart('refill', () => 'quotas');
  await snapshot.close();
  const { snapshot: next } = await open(path);
  next.addPart('refill', () => 'new quotas');
  await next.save();
  expect(partsIn(path)).toEqual({ pool: 'members', refill: 'new quotas' });
});

test.each([
  ['half a file', '{"format":1,"parts":{"pool"', /JSON/],
  ['another format', '{"format":2,"parts":{}}', /format: expected 1, not 2/],
  ['no object', '7', /expected object/],
  ['no parts', '{"format":1}', /parts: .*expected record/],
  ['a part without a moment', '{"format":1,"parts":{"pool":{"value":1}}}', /parts: pool: at: /],
])('snapshot: %s is renamed with a warning, not overwritten', async (_what, text, reason) => {
  const folder = temporaryFolder();
  const path = join(folder, 'snapshot.json');
  writeFileSync(path, text);
  const { snapshot, warnings } = await open(path);
  expect(snapshot.read('pool')).toBeUndefined();
  const [aside = ''] = readdirSync(folder);
  expect(aside).toMatch(/^snapshot\.json\.broken-\d+$/);
  expect(readFileSync(join(folder, aside), 'utf8')).toBe(text);
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toMatch(reason);
  expect(warnings[0]).toContain(aside);
});

test('snapshot: what is not a file is not read, and not replaced', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  mkdirSync(path);
  const { snapshot, warnings } = await open(path);
  snapshot.addPart('pool', () => 1);
  await snapshot.save();
  const why = `the snapshot ${path}: ${path} is a directory, not a regular file; remove it`;
  expect(warnings).toEqual([`cannot read ${why}`, `cannot write ${why}`]);
});

test('snapshot: an invalid file that cannot be renamed is warned of', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const clock = new ManualClock();
  writeFileSync(path, '{}');
  mkdirSync(`${path}.broken-${clock.now()}`);
  const { snapshot, warnings } = await open(path, clock);
  expect(warnings).toEqual([expect.stringMatching(/ is invalid \(.*\); noria could not rename it: EISDIR/)]);
  expect(snapshot.read('pool')).toBeUndefined();
});

test('snapshot: the newest three invalid files are kept', async () => {
  const folder = temporaryFolder();
  const path = join(folder, 'snapshot.json');
  const older = [9, 10, 200, 3_000].map((at) => `snapshot.json.broken-${at}`);
  for (const name of older) writeFileSync(join(folder, name), name);
  writeFileSync(join(folder, 'snapshot.json.broken-by-me'), 'a name of its own');
  writeFileSync(path, 'newest');
  await open(path);
  const names = readdirSync(folder);
  const newest = names.find((name) => readFileSync(join(folder, name), 'utf8') === 'newest');
  expect(names.sort()).toEqual([...older.slice(-2), String(newest), 'snapshot.json.broken-by-me'].sort());
});

test('snapshot: a failed write is a warning, and the next change tries again', async () => {
  const folder = join(temporaryFolder(), 'state');
  const { snapshot, warnings } = await open(join(folder, 'snapshot.json'));
  snapshot.addPart('pool', () => 'members');
  await snapshot.save();
  expect(warnings[0]).toMatch(/cannot write the snapshot .*: ENOENT/);
  mkdirSync(folder);
  await snapshot.save();
  expect(partsIn(join(folder, 'snapshot.json'))).toEqual({ pool: 'members' });
  rmSync(folder, { recursive: true });
});

test('snapshot: closing writes once and leaves no timer', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const { snapshot, clock } = await open(path);
  let collected = 0;
  snapshot.addPart('pool', () => ++collected);
  snapshot.saveSoon();
  await snapshot.close();
  await snapshot.close();
  snapshot.saveSoon();
  await snapshot.save();
  expect(partsIn(path)).toEqual({ pool: 1 });
  expect(clock.armedCount).toBe(0);
});
