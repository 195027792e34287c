/**
 * The settings of the JavaScript engine. Each test runs them in a separate process, because they apply to the whole process.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

/**
 * This program keeps so many objects alive that V8 by itself would use 128 MiB for young objects. At 64 MiB, it waits
 * until the limit is checked.
 */
const FILL_MEMORY = `
import { getHeapSpaceStatistics } from 'node:v8';
import { tuneForShortLives } from './src/core/engine.ts';
const youngMib = () =>
  getHeapSpaceStatistics().find((space) => space.space_name === 'new_space').space_size / 1024 / 1024;
tuneForShortLives();
const alive = new Array(400_000);
let hasWaited = false;
for (let round = 0; round < 10; round += 1) {
  for (let at = 0; at < alive.length; at += 1) alive[at] = { at, text: [at] };
  if (youngMib() < 64 || hasWaited) continue;
  hasWaited = true;
  await new Promise((next) => setTimeout(next, 500));
}
console.log(youngMib());
`;

test('engine: the memory of young objects grows to 64 MiB and not further', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [
    '--input-type=module',
    '--eval',
    FILL_MEMORY,
  ]);
  expect(Number(stdout)).toBe(64);
});

/** This program makes V8 choose the size of the old generation at which the next full collection starts. */
const LIMIT_OLD_MEMORY = `
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { tuneForShortLives } from './src/core/engine.ts';
setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc');
gc();
tuneForShortLives();
gc();
process.exit(0);
`;

test('engine: V8 may allocate 32 MiB between two full collections', async () => {
  const { stdout } = await promisify(execFile)(process.execPath, [
    '--trace-gc-verbose',
    '--input-type=module',
    '--eval',
    LIMIT_OLD_MEMORY,
  ]);
  const limits = [...stdout.matchAll(/\[HeapController\] Limit: old size: (\d+) KB, new limit: (\d+) KB/g)];
  const [, oldKib, limitKib] = limits.at(-1) ?? [];
  expect(limits.length).toBeGreaterThan(1);
  expect(Number(limitKib) - Number(oldKib)).toBeGreaterThan(31 * 1024);
});

/** This program collects all hidden classes that have no object, and creates tick objects before and after that. */
const COLLECT = `
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { tuneForShortLives } from './src/core/engine.ts';
tuneForShortLives();
const tick = () => new Promise((next) => process.nextTick(() => setImmediate(next)));
await tick();
setFlagsFromString('--expose-gc');
const gc = runInNewContext('gc');
for (let round = 0; round < 3; round += 1) gc({ type: 'major', flavor: 'last-resort' });
await tick();
process.exit(0);
`;

test('engine: a full collection keeps the hidden class of tick objects', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'noria-engine-'));
  const logFile = join(folder, 'v8.log');
  const flags = ['--log-maps', `--logfile=${logFile}`, '--no-logfile-per-isolate'];
  await promisify(execFile)(process.execPath, [...flags, '--input-type=module', '--eval', COLLECT]);
  const log = await readFile(logFile, 'utf8');
  await rm(folder, { recursive: true });
  expect(tickClasses(log)).toHaveLength(1);
});

/**
 * The hidden classes of tick objects that V8 made: those to which a property `callback` was added after the symbol
 * kAsyncContextFrame. The fields of a line are: map, its kind, time, from, to, code, line, column, reason, name of the property.
 */
function tickClasses(log: string): string[] {
  const transitions = log
    .split('\n')
    .filter((line) => line.startsWith('map,Transition,'))
    .map((line) => {
      const [, , , from = '', to = '', , , , , name = ''] = line.split(',');
      return { from, to, name };
    });
  const withFrame = new Set(
    transitions.filter(({ name }) => name.startsWith('symbol("kAsyncContextFrame"')).map(({ to }) => to),
  );
  return transitions
    .filter(({ from, name }) => name === 'callback' && withFrame.has(from))
    .map(({ to }) => to);
}
