import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createTimekeeper, elapsedBetween, type Moment } from '../../src/state/moment.ts';
import { createPaceFile, type PaceEntry } from '../../src/state/pace-file.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { temporaryFolder } from './temporary-folder.ts';

function open(folder: string, clock = new ManualClock(), boot = 'boot 1') {
  const warnings: string[] = [];
  const timekeeper = createTimekeeper(clock, { id: boot, elapsedMs: () => clock.monotonic() });
  const store = createPaceFile({ folder, timekeeper, warn: (message) => warnings.push(message) });
  const entry = (key: string) => store.change(key, (found) => ({ result: found }));
  const put = (key: string, holdMs: number) =>
    store.change(key, (_found, now) => ({
      next: { startedAt: now, holdMs, refusals: undefined },
      result: now,
    }));
  return { store, entry, put, warnings, clock };
}

test('pace file: an entry is on disk when the change resolves, one for each key', async () => {
  const folder = temporaryFolder();
  const { put, store } = open(folder);
  const now = await put('service 1', 5);
  const refusals = { inARow: 2, widening: 1.21, lastAt: now };
  const entry: PaceEntry = { startedAt: now, holdMs: 9, refusals };
  await store.change('service 2', () => ({ next: entry, result: undefined }));
  const { entry: read } = open(folder);
  expect(await read('service 1')).toEqual({ startedAt: now, holdMs: 5, refusals: undefined });
  expect(await read('service 2')).toEqual(entry);
  expect(await read('service 3')).toBeUndefined();
});

test('pace file: reading writes nothing', async () => {
  const folder = temporaryFolder();
  const { put, entry } = open(folder);
  await put('k', 1);
  const before = readdirSync(folder).sort();
  await entry('k');
  expect(readdirSync(folder).sort()).toEqual(before);
});

test('pace file: an unreadable file counts as a call just now of every instance, and is replaced once', async () => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'pace.3.json'), 'not json');
  const { entry, clock, warnings } = open(folder);
  const found = await entry('k');
  expect(found?.startedAt.wallAt).toBe(clock.now());
  clock.advance(5_000);
  expect((await entry('another'))?.startedAt).toEqual(found?.startedAt);
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toMatch(/is unreadable/);
});

test('pace file: invalid entries count as never written', async () => {
  const folder = temporaryFolder();
  const startedAt: Moment = { wallAt: 1, boot: 'b', elapsedMs: 2 };
  const paces = {
    whole: { startedAt, holdMs: 3 },
    negative: { startedAt, holdMs: -3, refusals: { inARow: 'x', widening: 0, lastAt: startedAt } },
    text: 'soon',
    'no moment': { holdMs: 3, startedAt: { wallAt: 'x' } },
  };
  writeFileSync(join(folder, 'pace.3.json'), JSON.stringify({ id: 'x', value: { paces } }));
  const { entry } = open(folder);
  expect(await entry('whole')).toEqual({ startedAt, holdMs: 3, refusals: undefined });
  expect(await entry('negative')).toEqual({
    startedAt,
    holdMs: 0,
    refusals: { inARow: 0, widening: 1, lastAt: startedAt },
  });
  expect(await entry('text')).toBeUndefined();
  expect(await entry('no moment')).toBeUndefined();
});

test('pace file: an instance without a call for a week is removed at the next call of another', async () => {
  const { put, entry, clock } = open(temporaryFolder());
  await put('old', 1);
  clock.advance(7 * 24 * 3_600_000);
  await put('new', 1);
  expect(await entry('old')).toBeUndefined();
  expect(await entry('new')).toBeDefined();
});

test('moment: uses the boot clock within one boot and the wall clock across boots', () => {
  const then = { wallAt: 1_000, boot: 'a', elapsedMs: 50 };
  expect(elapsedBetween(then, { wallAt: 9_999_999, boot: 'a', elapsedMs: 60 })).toBe(10);
  expect(elapsedBetween(then, { wallAt: 3_000, boot: 'b', elapsedMs: 1 })).toBe(2_000);
  expect(elapsedBetween(then, { wallAt: 400, boot: 'b', elapsedMs: 1 })).toBe(-600);
});
