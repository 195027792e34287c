import { expect, test } from 'vitest';
import { parseTargetRule, type TargetRule, wrongTargetRule } from '../../src/core/target-rule.ts';

const RULES: readonly [text: string, rule: TargetRule][] = [
  ['private', { kind: 'private' }],
  ['smtp', { kind: 'smtp' }],
  ['example.com', { kind: 'host', text: 'example.com' }],
  ['EXAMPLE.com.', { kind: 'host', text: 'example.com' }],
  ['*.example.com', { kind: 'below', text: 'example.com' }],
  ['*.Bücher.example', { kind: 'below', text: 'xn--bcher-kva.example' }],
  ['*.com', { kind: 'below', text: 'com' }],
  ['192.0.2.0/24', { kind: 'network', text: '192.0.2.0/24' }],
  ['2001:db8::/32', { kind: 'network', text: '2001:db8::/32' }],
  ['192.0.2.1', { kind: 'network', text: '192.0.2.1' }],
  ['::1', { kind: 'network', text: '::1' }],
  ['127.1', { kind: 'network', text: '127.0.0.1' }],
  [':25', { kind: 'ports', from: 25, to: 25 }],
  [':6000-6010', { kind: 'ports', from: 6000, to: 6010 }],
];

test.each(RULES)('target rule: reads %s', (text, rule) => {
  expect(parseTargetRule(text)).toEqual(rule);
});

test('target rule: rejects anything else', () => {
  const bad = [
    '',
    '*',
    '*.',
    '**.example.com',
    'a.*.com',
    '*example.com',
    '*.127.0.0.1',
    '*.::1',
    '10.0.0.0/33',
  ];
  const badPorts = [
    ':',
    ':0',
    ':65536',
    ':25-',
    ':-25',
    ':30-20',
    ':25,26',
    '25:',
    'example.com:25',
    ':smtp',
  ];
  for (const text of [...bad, ...badPorts]) expect(parseTargetRule(text), text).toBeUndefined();
});

test.each([
  [':25-', 'is not a port or a port range from 1 to 65535'],
  ['10.0.0.0/33', 'is not a network'],
  ['*.127.0.0.1', 'is a pattern for an IP address, but only host names can have patterns'],
  ['example.com:25', 'has both a host and a port'],
  ['a.*.com', 'is not a valid target'],
])('target rule: says what is wrong with %s', (text, wrong) => {
  expect(parseTargetRule(text)).toBeUndefined();
  expect(wrongTargetRule(text)).toBe(wrong);
});
