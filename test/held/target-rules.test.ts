import fc from 'fast-check';
import { expect, test } from 'vitest';
import { denyTarget } from '../../src/config/scalars.ts';
import { parseTargetRule } from '../../src/core/target-rule.ts';

const pieces = [
  'private',
  'smtp',
  '*.',
  '*',
  ':',
  '-',
  '/',
  '.',
  '25',
  '0',
  '70000',
  '10.0.0.0',
  '::1',
  '/8',
  'a.example',
];
const ruleLike = fc
  .array(fc.oneof(fc.constantFrom(...pieces), fc.string({ maxLength: 3 })), { maxLength: 4 })
  .map((parts) => parts.join(''));

test('denyTargets: the listener can parse every rule that the configuration accepts', () => {
  let accepted = 0;
  fc.assert(
    fc.property(fc.oneof(ruleLike, fc.domain(), fc.ipV4(), fc.ipV6()), (text) => {
      if (!('value' in denyTarget().scalarType.read(text))) return;
      accepted += 1;
      expect(parseTargetRule(text), text).toBeDefined();
    }),
    { numRuns: 2_000, examples: [...pieces, ':25-30', '10.0.0.0/8', '*.a.example'].map((text) => [text]) },
  );
  expect(accepted, 'no rule was accepted').toBeGreaterThan(100);
});

test('denyTargets: the configuration accepts every rule of the listener, except likely typos', () => {
  for (const text of [
    'private',
    'smtp',
    'a.example',
    '*.a.example',
    '10.0.0.0/8',
    '::1',
    ':25',
    ':25-30',
    'BÜCHER.example',
  ]) {
    expect(parseTargetRule(text), text).toBeDefined();
    expect(denyTarget().scalarType.read(text), text).toHaveProperty('value');
  }
  expect(denyTarget().scalarType.read('privat')).toHaveProperty('wrong');
});
