import fc from 'fast-check';
import { expect, test } from 'vitest';
import { formatDuration, parseDuration } from '../../src/core/duration.ts';

test('duration: reads each unit, and zero without one', () => {
  const read = ['500ms', '10s', '5m', '2h', '0s', '0', '0ms', '090s'].map(parseDuration);
  expect(read).toEqual([500, 10_000, 300_000, 7_200_000, 0, 0, 0, 90_000]);
});

test('duration: rejects anything else', () => {
  for (const text of [
    '',
    '10',
    '1.5s',
    '-1s',
    '+1s',
    '10 s',
    '10S',
    '1h30m',
    '1d',
    's',
    '1e3s',
    '９s',
    `${'9'.repeat(16)}h`,
  ]) {
    expect(parseDuration(text), text).toBeUndefined();
  }
});

test('duration: is written in the largest unit that divides it, and reads back as the same', () => {
  fc.assert(
    fc.property(fc.nat({ max: Number.MAX_SAFE_INTEGER }), (ms) => {
      expect(parseDuration(formatDuration(ms))).toBe(ms);
    }),
  );
  expect([0, 1, 1500, 60_000, 90_000, 86_400_000].map(formatDuration)).toEqual([
    '0s',
    '1ms',
    '1500ms',
    '1m',
    '90s',
    '24h',
  ]);
});
