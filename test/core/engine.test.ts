/**
 * The memory of V8's young objects. The test runs in a separate process, because the settings apply to the whole
 * process.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

/**
 * This program keeps so many objects alive that V8 by itself would use 128 MiB for young objects. At 64 MiB, it waits
 * until the limit is checked.
 */
const PROGRAM = `
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
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', PROGRAM]);
  expect(Number(stdout)).toBe(64);
});
