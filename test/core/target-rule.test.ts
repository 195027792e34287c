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

test.each(RULES)('target-rule: %s is read', (text, rule) => {
  expect(parseTargetRule(text)).toEqual(rule);
});

test('target-rule: nothing else is a rule', () => {
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
  [':25-', 'is not a port, or a range of ports, from 1 to 65535'],
  ['10.0.0.0/33', 'is not a network'],
  ['*.127.0.0.1', 'is a pattern of an address; give a network in CIDR form'],
  ['example.com:25', 'has a host and a port; give the one or the other'],
  ['a.*.com', 'is not a rule about targets'],
])('target-rule: what is wrong with %s is said', (text, wrong) => {
  expect(parseTargetRule(text)).toBeUndefined();
  expect(wrongTargetRule(text)).toBe(wrong);
});
