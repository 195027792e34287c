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
  const timekeeper = createTimekeeper(clock, { id: 'boot 1', elapsedMs: () => clock.monotonic() });
  const snapshot = await openSnapshotFile({ path, clock, timekeeper, warn });
  onTestFinished(() => snapshot.close());
  return { snapshot, clock, warnings };
}

function partsIn(path: string) {
  const { parts } = JSON.parse(readFileSync(path, 'utf8')) as { parts: Record<string, { value: unknown }> };
  return Object.fromEntries(Object.entries(parts).map(([name, { value }]) => [name, value]));
}

test('snapshot: what is saved is found again by part, and readable by its owner alone', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const { snapshot } = await open(path);
  snapshot.keep('pool', () => ({ members: [1, 2] }));
  await snapshot.save();
  expect(statSync(path).mode & 0o777).toBe(0o600);
  const { snapshot: next, warnings } = await open(path);
  expect(next.read('pool')).toEqual({ members: [1, 2] });
  expect(next.read('constructor')).toBeUndefined();
  expect(warnings).toEqual([]);
});

test('snapshot: changes gather for three seconds in one write', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const { snapshot, clock } = await open(path);
  let collected = 0;
  snapshot.keep('pool', () => ++collected);
  snapshot.changed();
  clock.advance(2_999);
  snapshot.changed();
  expect(collected).toBe(0);
  clock.advance(1);
  await until('it is written', () => readdirSync(join(path, '..')).includes('snapshot.json'));
  expect(collected).toBe(1);
  expect(clock.armedCount).toBe(0);
});

test('snapshot: what changes while it is being written is written after it', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const { snapshot } = await open(path);
  let members = 1;
  snapshot.keep('pool', () => members);
  const first = snapshot.save();
  members = 2;
  await Promise.all([first, snapshot.save()]);
  expect(partsIn(path)).toEqual({ pool: 2 });
});

test('snapshot: the age of a part is what has really passed, however the wall clock was set meanwhile', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const { snapshot, clock } = await open(path);
  snapshot.keep('pool', () => 'members');
  await snapshot.save();
  clock.advance(5_000);
  clock.stepWall(-3_600_000);
  const { snapshot: next } = await open(path, clock);
  expect(next.ageMs('pool')).toBe(5_000);
  expect(next.ageMs('sessions')).toBe(0);
});

test('snapshot: a part that has not come up keeps what was found of it', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const { snapshot } = await open(path);
  snapshot.keep('pool', () => 'members');
  snapshot.keep('refill', () => 'quotas');
  await snapshot.close();
  const { snapshot: next } = await open(path);
  next.keep('refill', () => 'new quotas');
  await next.save();
  expect(partsIn(path)).toEqual({ pool: 'members', refill: 'new quotas' });
});

test.each([
  ['half a file', '{"format":1,"parts":{"pool"', /JSON/],
  ['another format', '{"format":2,"parts":{}}', /its format is 2, not 1/],
  ['no object', '7', /it is not an object/],
  ['no parts', '{"format":1}', /it has no parts/],
  [
    'a part without its moment',
    '{"format":1,"parts":{"pool":{"value":1}}}',
    /its part pool does not say when/,
  ],
])('snapshot: %s is set aside with a warning, never overwritten', async (_what, text, reason) => {
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

test('snapshot: of those set aside the newest three stay', async () => {
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

test('snapshot: one that cannot be written is warned of, and tried again with the next change', async () => {
  const folder = join(temporaryFolder(), 'state');
  const { snapshot, warnings } = await open(join(folder, 'snapshot.json'));
  snapshot.keep('pool', () => 'members');
  await snapshot.save();
  expect(warnings[0]).toMatch(/was not written: ENOENT/);
  mkdirSync(folder);
  await snapshot.save();
  expect(partsIn(join(folder, 'snapshot.json'))).toEqual({ pool: 'members' });
  rmSync(folder, { recursive: true });
});

test('snapshot: closing writes what has changed, once, and leaves no timer', async () => {
  const path = join(temporaryFolder(), 'snapshot.json');
  const { snapshot, clock } = await open(path);
  let collected = 0;
  snapshot.keep('pool', () => ++collected);
  snapshot.changed();
  await snapshot.close();
  await snapshot.close();
  snapshot.changed();
  await snapshot.save();
  expect(partsIn(path)).toEqual({ pool: 1 });
  expect(clock.armedCount).toBe(0);
});
