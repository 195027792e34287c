import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ownText } from '../../src/core/words.ts';
import { ANY_TEXT } from '../support/properties.ts';

test('own text: is equal to the text', () => {
  fc.assert(fc.property(ANY_TEXT, (text) => void expect(ownText(text)).toBe(text)));
});

test('own text: does not keep the longer text in memory', () => {
  setFlagsFromString('--expose-gc');
  const collect: () => void = runInNewContext('gc');
  const pieces: string[] = [];
  const keep = (own: (piece: string) => string) => {
    collect();
    const before = process.memoryUsage().heapUsed;
    for (let n = 0; n < 200; n += 1) {
      const long = Buffer.alloc(50_000, `a name that is long enough ${n} `).toString('latin1');
      pieces.push(own(long.slice(0, 40)));
    }
    collect();
    return process.memoryUsage().heapUsed - before;
  };
  expect(keep(ownText)).toBeLessThan(1_000_000);
  expect(
    keep((piece) => piece),
    'what it is there for',
  ).toBeGreaterThan(5_000_000);
  expect(pieces).toHaveLength(400);
});
