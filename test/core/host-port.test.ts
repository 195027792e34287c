import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  canonicalIp,
  formatHostPort,
  type HostPort,
  hostPort,
  parseHostPort,
  parsePort,
} from '../../src/core/host-port.ts';

/** Spellings that parsers are known to interpret differently. */
const SPELLINGS: readonly [text: string, host: string, kind: HostPort['kind']][] = [
  ['127.0.0.1', '127.0.0.1', 'ipv4'],
  ['127.1', '127.0.0.1', 'ipv4'],
  ['127.0.1', '127.0.0.1', 'ipv4'],
  ['0x7f.0.0.1', '127.0.0.1', 'ipv4'],
  ['0x7f000001', '127.0.0.1', 'ipv4'],
  ['0177.0.0.1', '127.0.0.1', 'ipv4'],
  ['127.0.0.01', '127.0.0.1', 'ipv4'],
  ['2130706433', '127.0.0.1', 'ipv4'],
  ['017700000001', '127.0.0.1', 'ipv4'],
  ['127.0.0.1.', '127.0.0.1', 'ipv4'],
  ['１２７.0.0.1', '127.0.0.1', 'ipv4'],
  ['127。0。0。1', '127.0.0.1', 'ipv4'],
  ['0', '0.0.0.0', 'ipv4'],
  ['0x', '0.0.0.0', 'ipv4'],
  ['1.2.3', '1.2.0.3', 'ipv4'],
  ['[::1]', '::1', 'ipv6'],
  ['[0:0:0:0:0:0:0:1]', '::1', 'ipv6'],
  ['[::0001]', '::1', 'ipv6'],
  ['[::ffff:127.0.0.1]', '::ffff:7f00:1', 'ipv6'],
  ['[::FFFF:7F00:1]', '::ffff:7f00:1', 'ipv6'],
  ['[2001:DB8:0:0:1:0:0:1]', '2001:db8::1:0:0:1', 'ipv6'],
  ['example.com', 'example.com', 'name'],
  ['EXAMPLE.com', 'example.com', 'name'],
  ['example.com.', 'example.com', 'name'],
  ['ｅｘａｍｐｌｅ.com', 'example.com', 'name'],
  ['exam\u00adple.com', 'example.com', 'name'],
  ['bücher.example', 'xn--bcher-kva.example', 'name'],
  ['BÜCHER.example', 'xn--bcher-kva.example', 'name'],
  ['bu\u0308cher.example', 'xn--bcher-kva.example', 'name'],
  ['XN--BCHER-KVA.example', 'xn--bcher-kva.example', 'name'],
  ['例え。テスト', 'xn--r8jz45g.xn--zckzah', 'name'],
  ['_service._tcp.example.com', '_service._tcp.example.com', 'name'],
  ['localhost', 'localhost', 'name'],
  ['1e3', '1e3', 'name'],
  ['a.b-c.d0', 'a.b-c.d0', 'name'],
];

/** Texts that are not a host. */
const INVALID_HOSTS: readonly string[] = [
  '',
  '.',
  '..',
  'a..b',
  'a..',
  '.example.com',
  'example.com..',
  'a b',
  ' a',
  'a ',
  'a\tb',
  'a\nb',
  'a\r\nHost: b',
  'a\0b',
  'a\u00a0b',
  'a%2eb',
  'a%00b',
  '％6c',
  'user@example.com',
  'allowed.example:80@evil.example',
  'http://example.com',
  'example.com/path',
  'example.com?q',
  'example.com#f',
  'example.com\\evil.example',
  'a／b',
  'a＠b',
  'a：80',
  '℀.example',
  '[::1',
  '::1]',
  '[]',
  '[::1]x',
  '[::1%eth0]',
  '[fe80::1%25eth0]',
  '[127.0.0.1]',
  '[example.com]',
  '[::ffff:127.0.0.1.]',
  '[1:2:3:4:5:6:7:8:9]',
  '[::1::]',
  '::1',
  '256.0.0.1',
  '1.2.3.4.5',
  '127.0.0.0x100',
  '4294967296',
  'foo.1',
  'foo.0x1',
  '-a.example',
  'a-.example',
  'xn--.example',
  `${'a'.repeat(64)}.example`,
  `${'a.'.repeat(127)}example`,
  'a'.repeat(600),
  `${'\u00ad'.repeat(600)}a.example`,
  '\ufffd.example',
  '\u00ad',
  '*.example.com',
  'a,b',
  'a;b',
  'a=b',
  "a'b",
  'a(b)',
];

describe('host-port: canonical form', () => {
  test.each(SPELLINGS)('host-port: %s is %s (%s)', (text, host, kind) => {
    expect(parseHostPort(`${text}:80`)).toEqual({ host, port: 80, kind, text: formatHostPort(host, 80) });
    const bare = text.startsWith('[') ? text.slice(1, -1) : text;
    expect(hostPort(bare, 80), 'as a SOCKS frame names it').toEqual({
      host,
      port: 80,
      kind,
      text: formatHostPort(host, 80),
    });
  });
});

describe('host-port: invalid hosts', () => {
  test.each(INVALID_HOSTS.map((text) => [JSON.stringify(text.slice(0, 70)), text]))(
    'host-port: rejects %s',
    (_, text) => {
      expect(parseHostPort(`${text}:80`)).toBeUndefined();
    },
  );

  test('host-port: hostPort rejects the same hosts', () => {
    const tried = INVALID_HOSTS.filter((text) => text !== '::1'); // hostPort accepts this one: IPv6 without brackets
    expect(tried.length).toBeGreaterThan(50);
    for (const text of tried) expect(hostPort(text, 80), JSON.stringify(text)).toBeUndefined();
  });
});

test('host-port: ports are 1 to 65535 in decimal', () => {
  const good = { '1': 1, '80': 80, '65535': 65_535, '00080': 80 };
  for (const [text, port] of Object.entries(good)) expect(parsePort(text), text).toBe(port);
  const bad = [
    '',
    '0',
    '65536',
    '99999',
    '100000',
    '-1',
    '+80',
    '8o',
    '80 ',
    ' 80',
    '0x50',
    '8e1',
    '80.0',
    '８０',
  ];
  for (const text of bad) {
    expect(parsePort(text), JSON.stringify(text)).toBeUndefined();
    expect(parseHostPort(`example.com:${text}`), JSON.stringify(text)).toBeUndefined();
  }
  for (const port of [0, -1, 65_536, 1.5, Number.NaN, Number.POSITIVE_INFINITY]) {
    expect(hostPort('example.com', port), String(port)).toBeUndefined();
  }
});

test('host-port: a missing port is replaced by the default, if there is one', () => {
  expect(parseHostPort('example.com')).toBeUndefined();
  expect(parseHostPort('example.com', 80)).toEqual({
    host: 'example.com',
    port: 80,
    kind: 'name',
    text: 'example.com:80',
  });
  expect(parseHostPort('[::1]', 80)).toEqual({ host: '::1', port: 80, kind: 'ipv6', text: '[::1]:80' });
  expect(parseHostPort('example.com:81', 80)?.port).toBe(81);
  expect(parseHostPort('example.com:', 80)).toBeUndefined();
  expect(parseHostPort('example.com:80:80', 80)).toBeUndefined();
});

test('host-port: only IPv6 hosts have brackets', () => {
  expect(formatHostPort('example.com', 80)).toBe('example.com:80');
  expect(formatHostPort('192.0.2.1', 80)).toBe('192.0.2.1:80');
  expect(formatHostPort('2001:db8::1', 80)).toBe('[2001:db8::1]:80');
});

test('host-port: canonicalIp accepts IP literals, but no other spelling of IPv4', () => {
  expect(canonicalIp('192.0.2.1')).toBe('192.0.2.1');
  expect(canonicalIp('2001:DB8::0:1')).toBe('2001:db8::1');
  for (const text of ['127.1', '2130706433', '[::1]', 'fe80::1%eth0', 'localhost', '']) {
    expect(canonicalIp(text), text).toBeUndefined();
  }
});

/** Texts at the edges of the grammar: parts of hosts, separators, and characters that normalisation changes. */
const nearlyHost = fc
  .array(
    fc.oneof(
      fc.constantFrom(
        ...['.', '-', '_', ':', '[', ']', '%', '0x', '127', '1', '::', 'xn--', '。', '％', 'ß', 'İ', '１'],
        ...['\u00ad', '\u200d', 'example', 'com', 'A', '@', '/', ' '],
      ),
      fc.string({ unit: 'grapheme', maxLength: 4 }),
    ),
    { maxLength: 10 },
  )
  .map((pieces) => pieces.join(''));

test('host-port: any text is rejected or canonical, and the canonical form parses to itself', () => {
  let accepted = 0;
  fc.assert(
    fc.property(fc.oneof(nearlyHost, fc.domain(), fc.ipV4(), fc.ipV6()), fc.integer(), (text, port) => {
      const once = hostPort(text, port);
      if (once === undefined) return;
      accepted += 1;
      expect(hostPort(once.host, once.port)).toEqual(once);
      expect(parseHostPort(formatHostPort(once.host, once.port))).toEqual(once);
      expect(once.host).toMatch(once.kind === 'ipv6' ? /^[0-9a-f:]+$/ : /^[a-z0-9._-]+$/);
    }),
    {
      numRuns: 2_000,
      examples: [
        ['example.com', 80],
        ['::ffff:1.2.3.4', 1],
      ],
    },
  );
  expect(accepted, 'nothing was accepted: the property said nothing').toBeGreaterThan(0);
});

test('host-port: parses a host like the URL standard, or rejects it', () => {
  fc.assert(
    fc.property(fc.oneof(nearlyHost, fc.domain(), fc.ipV4Extended()), (text) => {
      const ours = parseHostPort(`${text}:81`);
      if (ours === undefined) return;
      const url = new URL(`http://${text}:81`);
      const bare = url.hostname.replace(/^\[(.*)\]$/, '$1').replace(/\.$/, '');
      expect([ours.host, url.port, url.pathname, url.username]).toEqual([bare, '81', '/', '']);
    }),
    { numRuns: 2_000 },
  );
});
