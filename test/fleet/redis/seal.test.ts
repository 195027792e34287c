import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Seal } from '../../../src/fleet/redis/seal.ts';

const instance = (key: string, secret = 'secret') => ({
  key,
  secret,
  settings: { intervalMs: 1, size: 1, params: '' },
});

test('seal: a signature is valid for the same parts in the same order, and for no others', () => {
  const seal = new Seal('crawl', [instance('city')]);
  const parts = fc.array(fc.string({ maxLength: 4, unit: fc.constantFrom('a', ' ', '1', '\n') }), {
    maxLength: 3,
  });
  fc.assert(
    fc.property(parts, parts, (signed, given) => {
      const isSame = JSON.stringify(signed) === JSON.stringify(given);
      expect(seal.isValid(seal.sign(...signed), ...given)).toBe(isSame);
    }),
    {
      examples: [
        [
          ['ab', 'c'],
          ['a', 'bc'],
        ],
        [['a', 'b'], ['a\n1 b']],
        [['a'], ['a', '']],
      ],
    },
  );
});

test('seal: another fleet, instance, order of instances or secret makes another signature', () => {
  const seals = [
    new Seal('crawl', [instance('a'), instance('b')]),
    new Seal('crawl', [instance('b'), instance('a')]),
    new Seal('crawl', [instance('a')]),
    new Seal('crawl', [instance('a'), instance('b', 'other')]),
    new Seal('crawl', [instance('a","b')]),
    new Seal('crawl2', [instance('a'), instance('b')]),
  ];
  expect(new Set(seals.map((seal) => seal.sign('log', 'text'))).size).toBe(seals.length);
});

test('seal: a signature that is empty, cut or longer is not valid', () => {
  const seal = new Seal('crawl', [instance('city')]);
  const mac = seal.sign('log');
  expect(mac).toHaveLength(24);
  expect([mac, '', mac.slice(0, 12), `${mac}AAAA`].map((each) => seal.isValid(each, 'log'))).toEqual([
    true,
    false,
    false,
    false,
  ]);
});
