/** Properties check the same random values in every run. With `NORIA_PROPERTY_SEED=random`, they check new random values. */
import fc from 'fast-check';
import { beforeEach } from 'vitest';
import { startWaits } from './until.ts';

const seed = process.env['NORIA_PROPERTY_SEED'] ?? '1';
fc.configureGlobal({
  ...(seed !== 'random' && { seed: Number(seed) }),
  // Only whether a test notices a mutant counts: the smallest counterexample would take seconds.
  endOnFailure: process.env['NORIA_MUTATED'] !== undefined,
});

beforeEach(({ task }) => startWaits(task.timeout));

/** Any text with any character. fast-check's unit `binary` does the same, and takes 1.7 s of each process at its first use. */
export const ANY_TEXT = fc.string({
  unit: fc
    .oneof(fc.nat(0xd7_ff), fc.integer({ min: 0xe0_00, max: 0x10_ff_ff }))
    .map((code) => String.fromCodePoint(code)),
});

/** How much of a `full` length this run of the tests has: all in `npm run test:all`, a tenth in `npm test`. */
export function runsOf(full: number): number {
  return process.env['NORIA_TEST_LENGTH'] === 'full' ? full : Math.ceil(full / 10);
}
