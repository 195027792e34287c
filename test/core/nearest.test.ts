import { expect, test } from 'vitest';
import { nearest } from '../../src/core/words.ts';

const KNOWN = ['timespan', 'fitter', 'tunnel', 'adr', 'count'];

test.each([
  ['timespam', 'timespan'],
  ['TimeSpan', 'timespan'],
  ['timesapn', 'timespan'],
  ['filter', 'fitter'],
  ['cuont', 'count'],
  ['tunnels', 'tunnel'],
  ['ard', 'adr'],
  ['password', undefined],
  ['x', undefined],
  ['', undefined],
])('nearest: %j was probably meant to be %j', (text, meant) => {
  expect(nearest(text, KNOWN)).toBe(meant);
});

test('nearest: the first of equally near names wins', () => {
  expect(nearest('bet', ['beta', 'bets'])).toBe('beta');
});
