/** Properties check the same random values in every run. With `NORIA_PROPERTY_SEED=random`, they check new random values. */
import fc from 'fast-check';
import { beforeEach } from 'vitest';
import { startWaits } from './until.ts';

const seed = process.env['NORIA_PROPERTY_SEED'] ?? '1';
if (seed !== 'random') fc.configureGlobal({ seed: Number(seed) });

beforeEach(({ task }) => startWaits(task.timeout));

/** How many of the `full` runs of a long property this run of the tests makes: all in `npm run test:all`, a tenth in `npm test`. */
export function runsOf(full: number): number {
  return process.env['NORIA_TEST_LENGTH'] === 'full' ? full : Math.ceil(full / 10);
}
