import { hostname, networkInterfaces } from 'node:os';
import { describe, expect, test } from 'vitest';
import { type HostPort, parseHostPort } from '../../src/core/host-port.ts';
import { isOwnAddress, isOwnMember } from '../../src/core/listen-address.ts';
import { DenyTargets } from '../../src/listener/access.ts';

function target(text: string): HostPort {
  const parsed = parseHostPort(text, 443);
  if (parsed === undefined) throw new Error(`the test names no target: ${text}`);
  return parsed;
}

/** Returns the texts that the rules deny. */
function denied(rules: readonly string[], texts: readonly string[]): string[] {
  const targets = new DenyTargets(rules);
  return texts.filter((text) => targets.reasonToDeny(target(text)) !== undefined);
}

const PUBLIC = [
  'example.com',
  'example.com:80',
  '192.0.2.1',
  '8.8.8.8:8080',
  '[2606:4700::1]',
  'localhost.example',
];

describe('deny-targets: the default rules', () => {
  const inside = [
    '127.0.0.1',
    'localhost',
    'LOCALHOST.',
    'api.localhost',
    'localhost.localdomain',
    'ip6-localhost',
    '[::ffff:127.0.0.1]',
    '[::1]',
    '[::]',
    '2130706433',
    '0x7f.1',
    '0',
    '169.254.169.254',
    '10.1.2.3:8080',
    '192.168.0.1',
    '[fd00:ec2::254]',
    '[64:ff9b::10.0.0.1]',
    '[64:ff9b::a9fe:a9fe]',
    '[2002:a00:1::1]',
    '[2002:7f00:1::]',
    '[::ffff:0:10.0.0.1]',
    '[::10.0.0.1]',
    '[2001:0:808:808::f5ff:fffe]',
    '[2606:4700::5efe:10.0.0.1]',
    'localhost4',
    'localhost6.localdomain6',
    hostname(),
    `${hostname().toUpperCase().split('.')[0]}.`,
    'printer.local',
    'metadata.google.internal',
    'example.com:25',
    'example.com:465',
    '8.8.8.8:587',
  ];

  test.each(inside)('deny-targets: %s is denied', (text) => {
    expect(denied(['private', 'smtp'], [text])).toEqual([text]);
  });

  test('deny-targets: public targets and names that only resemble denied ones are allowed', () => {
    const alike = ['notlocalhost', 'local', 'internal', 'mylocal', 'xlocal.example', 'example.com:26'];
    expect(denied(['private', 'smtp'], [...PUBLIC, ...alike])).toEqual([]);
  });
});

test('deny-targets: an empty list allows everything', () => {
  expect(denied([], ['127.0.0.1', 'localhost', 'example.com:25', ...PUBLIC])).toEqual([]);
});

test('deny-targets: each kind of rule denies only what it names', () => {
  const some = ['127.0.0.1', 'localhost', 'example.com:25', 'example.com', 'a.example.com', '192.0.2.1'];
  expect(denied(['private'], some)).toEqual(['127.0.0.1', 'localhost']);
  expect(denied(['smtp'], some)).toEqual(['example.com:25']);
  expect(denied(['example.com'], some)).toEqual(['example.com:25', 'example.com']);
  expect(denied(['*.example.com'], some)).toEqual(['a.example.com']);
  expect(denied(['192.0.2.0/24'], some)).toEqual(['192.0.2.1']);
  expect(denied([':25'], some)).toEqual(['example.com:25']);
  expect(denied([':400-500'], some)).toEqual(some.filter((text) => text !== 'example.com:25'));
});

test('deny-targets: a rule applies to every notation of its target', () => {
  expect(denied(['bücher.example'], ['xn--bcher-kva.example', 'BÜCHER.example.'])).toHaveLength(2);
  expect(denied(['*.EXAMPLE.com'], ['deep.down.example.com', 'badexample.com'])).toEqual([
    'deep.down.example.com',
  ]);
  expect(denied(['192.0.2.1'], ['[::ffff:192.0.2.1]', '0xc0000201', '192.0.2.2'])).toHaveLength(2);
  expect(denied(['2001:db8::/32'], ['[2001:DB8:0::1]', '[2001:db9::1]'])).toEqual(['[2001:DB8:0::1]']);
  // 8.8.4.4 behind a translator of the member: NAT64, 6to4, IPv4-compatible, Teredo. 8.8.8.8 in the same forms is allowed.
  const forms = ['[64:ff9b::808:404]', '[2002:808:404::1]', '[::808:404]', '[2001:0:808:404::]'];
  const others = ['[64:ff9b::808:808]', '[2002:808:808::1]', '[::808:808]'];
  expect(denied(['8.8.4.4'], [...forms, ...others])).toEqual(forms);
});

test('deny-targets: the reason names the kind of rule without quoting the rule', () => {
  const targets = new DenyTargets(['private', 'smtp', 'a.example', '*.b.example', '192.0.2.0/24']);
  const reasons = ['a.example', 'x.b.example', '192.0.2.1', '10.0.0.1', 'localhost', 'c.example:25'].map(
    (text) => targets.reasonToDeny(target(text)),
  );
  expect(reasons).toEqual([
    'the host of the target is in denyTargets',
    'the domain of the target is in denyTargets',
    'the network of the target is in denyTargets',
    'the target is a private address, which denyTargets excludes',
    'the target is a name of this machine or its network, which denyTargets excludes',
    'the port of the target is in denyTargets',
  ]);
});

test('deny-targets: an invalid rule throws', () => {
  expect(() => new DenyTargets(['10.0.0.0/99'])).toThrow(/not a rule of denyTargets: 10\.0\.0\.0\/99/);
});

describe("deny-targets: noria's own addresses", () => {
  const own = (text: string, address: string) => isOwnAddress(target(text), [{ host: address, port: 8888 }]);

  test('deny-targets: if noria is bound to loopback, all loopback targets on that port are its own', () => {
    const targets = [
      '127.0.0.1',
      '127.1.2.3',
      '[::1]',
      '[::ffff:127.0.0.1]',
      '0.0.0.0',
      '[::]',
      'localhost',
      'a.localhost',
      'localhost4',
      'localhost6',
      'localhost4.localdomain4',
      'ip6-loopback',
      hostname(),
      hostname().toUpperCase(),
      `${hostname().split('.')[0]}.`,
      '[2001:0:808:808::80ff:fffe]',
      '[2606:4700::5efe:127.0.0.1]',
    ];
    for (const text of targets) expect(own(`${text}:8888`, '127.0.0.1'), text).toBe(true);
    for (const text of targets)
      expect(own(`${text}:8887`, '127.0.0.1'), `${text} on another port`).toBe(false);
    for (const text of ['192.0.2.1', 'example.com'])
      expect(own(`${text}:8888`, '127.0.0.1'), text).toBe(false);
  });

  test('deny-targets: a member at another loopback address is not noria itself', () => {
    const own = [{ host: '127.0.0.1', port: 8888 }];
    expect(isOwnMember(target('127.0.0.1:8888'), own)).toBe(true);
    expect(isOwnMember(target('localhost:8888'), own)).toBe(true);
    expect(isOwnMember(target('127.0.0.2:8888'), own)).toBe(false);
    expect(isOwnMember(target('127.0.0.2:8888'), [{ host: '0.0.0.0', port: 8888 }])).toBe(true);
  });

  test('deny-targets: if noria is bound to one address, only that address is its own', () => {
    expect(own('192.0.2.1:8888', '192.0.2.1')).toBe(true);
    for (const form of ['[::ffff:192.0.2.1]', '[64:ff9b::192.0.2.1]', '[2002:c000:201::1]'])
      expect(own(`${form}:8888`, '192.0.2.1'), form).toBe(true);
    expect(own('[2001:DB8::1]:8888', '2001:db8::1')).toBe(true);
    expect(own('192.0.2.2:8888', '192.0.2.1')).toBe(false);
    expect(own('127.0.0.1:8888', '192.0.2.1')).toBe(false);
  });

  test('deny-targets: if noria is bound to all addresses, only those of this machine are its own', () => {
    const interfaces = Object.values(networkInterfaces()).flatMap((list) => list ?? []);
    const here = interfaces.filter((each) => each.scopeid === undefined || each.scopeid === 0);
    expect(here.length).toBeGreaterThan(0);
    for (const each of here) {
      const text = each.family === 'IPv6' ? `[${each.address}]:8888` : `${each.address}:8888`;
      for (const wildcard of ['0.0.0.0', '::']) expect(own(text, wildcard), text).toBe(true);
    }
    expect(own('192.0.2.1:8888', '0.0.0.0')).toBe(false);
  });
});
