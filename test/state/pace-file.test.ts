import { spawnSync } from 'node:child_process';
import { readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { systemBoot, systemClock } from '../../src/core/clock.ts';
import { createTimekeeper, type Moment, type ProcessIdentity, thisProcess } from '../../src/state/moment.ts';
import { createPaceFile, type LastCall, type PaceEntry } from '../../src/state/pace-file.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { temporaryFolder } from './temporary-folder.ts';

function open(folder: string, clock = new ManualClock(), boot = 'boot 1') {
  const warnings: string[] = [];
  const elapsedMs = () => clock.monotonic();
  const timekeeper = createTimekeeper(clock, { id: boot, elapsedMs, uptimeMs: elapsedMs });
  const store = createPaceFile({
    ...{ folder, timekeeper },
    process: thisProcess({ id: boot, elapsedMs, uptimeMs: elapsedMs }),
    warn: (message) => warnings.push(message),
  });
  const entry = (key: string) => store.change(key, (found) => ({ result: found }));
  const put = (key: string, holdMs: number) =>
    store.change(key, (_found, now) => ({ newEntry: { call: callAt(now, holdMs), queue: [] }, result: now }));
  return { store, entry, put, warnings, clock };
}

const callAt = (claimedAt: Moment, holdMs: number): LastCall => ({
  id: 'turn 1',
  claimedAt,
  arrivedWithinMs: 4,
  holdMs,
  fate: 'answered',
});

test('pace file: an entry is on disk when the change resolves, one for each key', async () => {
  const folder = temporaryFolder();
  const { put, store } = open(folder);
  const now = await put('service 1', 5);
  const refusals = { inARow: 2, widening: 1.21, lastAt: now };
  const queue = [{ id: 'turn 2', intervalMs: 1_000, renewedAt: now, validMs: 3 }];
  const entry: PaceEntry = { call: callAt(now, 9), queue, refusals };
  await store.change('service 2', () => ({ newEntry: entry, result: undefined }));
  const { entry: read } = open(folder);
  expect(await read('service 1')).toEqual({ call: callAt(now, 5), queue: [] });
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
  expect(found?.call).toMatchObject({ claimedAt: { wallAt: clock.now() }, fate: 'unanswered' });
  clock.advance(5_000);
  expect((await entry('another'))?.call).toEqual(found?.call);
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toMatch(/is unreadable/);
});

test('pace file: invalid entries count as never written', async () => {
  const folder = temporaryFolder();
  const claimedAt: Moment = { wallAt: 1, boot: 'b', elapsedMs: 2 };
  const paces = {
    negative: {
      call: { ...callAt(claimedAt, -3), arrivedWithinMs: -1 },
      queue: 'nobody',
      refusals: { inARow: 'x', widening: 0, lastAt: claimedAt },
    },
    text: 'soon',
    'no moment': { call: callAt({ ...claimedAt, boot: 7 as never }, 1), queue: [] },
  };
  writeFileSync(join(folder, 'pace.3.json'), JSON.stringify({ id: 'x', value: { paces } }));
  const { entry, put } = open(folder);
  expect(await entry('negative')).toEqual({
    call: { ...callAt(claimedAt, 0), arrivedWithinMs: 0 },
    queue: [],
    refusals: { inARow: 0, widening: 1, lastAt: claimedAt },
  });
  expect(await entry('text')).toBeUndefined();
  expect(await entry('no moment')).toBeUndefined();
  await put('valid', 1);
  expect(await entry('valid')).toBeDefined();
});

test('pace file: an instance without a call for a week is removed at the next call of another', async () => {
  const { put, entry, store, clock } = open(temporaryFolder());
  for (const key of ['old', 'queued']) await put(key, 1);
  clock.advance(7 * 24 * 3_600_000 - 1);
  const renewedAt = store.now();
  await store.change('queued', (found) => ({
    newEntry: { ...found, queue: [{ id: 'turn', intervalMs: 1_000, renewedAt, validMs: 3 }] },
    result: undefined,
  }));
  expect(await entry('old')).toBeDefined();
  clock.advance(1);
  await put('new', 1);
  expect(await entry('old')).toBeUndefined();
  expect(await entry('queued'), 'somebody waits to call it').toBeDefined();
  expect(await entry('new')).toBeDefined();
});

test('pace file: a turn of a process that has ended is void, one of another container is not', async () => {
  const folder = temporaryFolder();
  const boot = systemBoot();
  const own = thisProcess(boot);
  const timekeeper = createTimekeeper(systemClock, boot);
  const { pid } = spawnSync(process.execPath, ['--version']);
  const turn = (id: string, process?: ProcessIdentity) => ({
    ...{ id, intervalMs: 1_000, validMs: 3_600_000 },
    renewedAt: timekeeper.now(),
    ...(process && { process }),
  });
  const queue = [
    turn('own', own),
    turn('ended', { ...own, pid }),
    turn('pid used again', { ...own, startTicks: (own.startTicks ?? 0) + 1 }),
    turn('elsewhere', { ...own, pid, namespace: 'pid:[1]' }),
    turn('unknown'),
  ];
  const store = createPaceFile({ folder, timekeeper, process: own, warn: () => {} });
  await store.change('service 1', () => ({ newEntry: { queue }, result: undefined }));
  const found = await store.change('service 1', (entry) => ({ result: entry?.queue.map(({ id }) => id) }));
  expect(found).toEqual(['own', 'elsewhere', 'unknown']);
});
