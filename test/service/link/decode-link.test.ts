import { expect, test } from 'vitest';
import { Secret } from '../../../src/core/secret.ts';
import type { LinkRules } from '../../../src/service/link/rules.ts';
import { decode, lines } from './decode.ts';

test.each<[name: string, text: string, entries: string[]]>([
  ['one address per line', '192.0.2.1:80\r\n192.0.2.2:81\r\n', ['192.0.2.1:80', '192.0.2.2:81']],
  ['lines that end with <br/>', '192.0.2.1:80<br/>192.0.2.2:81', ['192.0.2.1:80', '192.0.2.2:81']],
  ['addresses separated by commas', '192.0.2.1:80,192.0.2.2:81', ['192.0.2.1:80', '192.0.2.2:81']],
  ['addresses separated by bars', '192.0.2.1:80|192.0.2.2:81', ['192.0.2.1:80', '192.0.2.2:81']],
  ['addresses separated by spaces', '192.0.2.1:80 192.0.2.2:81', ['192.0.2.1:80', '192.0.2.2:81']],
  ['a tab between IP and port', '192.0.2.1\t80\n192.0.2.2\t81', ['192.0.2.1:80', '192.0.2.2:81']],
  ['a comma between IP and port', '192.0.2.1,80', ['192.0.2.1:80']],
  ['a life in seconds', '192.0.2.1:80,180\n192.0.2.2:81,60', ['192.0.2.1:80 180000', '192.0.2.2:81 60000']],
  [
    'several entries with a life in one line',
    '192.0.2.1:80,180,192.0.2.2:81,60',
    ['192.0.2.1:80 180000', '192.0.2.2:81 60000'],
  ],
  ['a moment', '192.0.2.1:80,2026-11-22 10:03:00', ['192.0.2.1:80 180000']],
  ['Unix time', '192.0.2.1:80;1795312980', ['192.0.2.1:80 180000']],
  [
    'location, exit IP and life in any order',
    '192.0.2.1:80,江苏省苏州市,电信,198.51.100.7,120',
    ['192.0.2.1:80 120000 198.51.100.7 江苏省苏州市 电信'],
  ],
  ['a zero is no life', '192.0.2.1:80,0', ['192.0.2.1:80 0']],
  ['credentials at the end', '192.0.2.1:80:bob:pa:ss', ['192.0.2.1:80 bob/pa:ss']],
  ['credentials before an @', 'bob:p@ss:@192.0.2.1:80', ['192.0.2.1:80 bob/p@ss:']],
  ['credentials before the IP', 'bob:pass:192.0.2.1:80', ['192.0.2.1:80 bob/pass']],
  ['a scheme', 'socks5://bob:pass@192.0.2.1:80', ['192.0.2.1:80 socks5 bob/pass']],
  ['a protocol after the port', '192.0.2.1:80@socks5#高匿', ['192.0.2.1:80 socks5 高匿']],
  ['IPv6', '[2001:db8::1]:80,30', ['2001:db8::1:80 30000']],
])('link: reads text with %s', (_name, text, entries) => {
  expect(lines(decode(text))).toEqual(entries);
});

test.each<[name: string, answer: unknown, entries: string[]]>([
  ['a list of texts', { code: 0, data: { proxy_list: ['192.0.2.1:80,180'] } }, ['192.0.2.1:80 180000']],
  ['a list at the root', [{ IP: '192.0.2.1', PORT: '80' }], ['192.0.2.1:80']],
  [
    'a moment and a location',
    { data: [{ ip: '192.0.2.1', port: 80, expire_time: '2026-11-22 10:01:00', city: '苏州', isp: '电信' }] },
    ['192.0.2.1:80 60000 苏州 电信'],
  ],
  [
    'an address in one field, and the exit in another',
    {
      code: 'SUCCESS',
      data: [{ proxy_ip: '198.51.100.7', server: '192.0.2.1:80', deadline: '2026-11-22T10:01:00+08:00' }],
    },
    ['192.0.2.1:80 60000 198.51.100.7'],
  ],
  [
    'a moment in UTC',
    { data: [{ ip: '192.0.2.1', port: 80, ExpireTime: '2026-11-22T02:02:00.000Z' }] },
    ['192.0.2.1:80 120000'],
  ],
  [
    'Unix time in s and ms',
    [
      { host: '192.0.2.1', port: 80, expire_at: 1795312860 },
      { host: '192.0.2.2', port: 80, expire_at: 1795312860000 },
    ],
    ['192.0.2.1:80 60000', '192.0.2.2:80 60000'],
  ],
  ['seconds', { list: [{ ip: '192.0.2.1', port: 80, expired_seconds: '95' }] }, ['192.0.2.1:80 95000']],
  ['minutes', { data: [{ ip: '192.0.2.1', port: 80, minutes: 3 }] }, ['192.0.2.1:80 180000']],
  [
    'a whole life from its start',
    {
      data: [
        { ip: '192.0.2.1', port: 80, startTime: '2026-11-22 09:59:00', during: 3 },
        { ip: '192.0.2.2', port: 80, startTime: '2026-11-22 10:09:00', during: 3 },
        { ip: '192.0.2.3', port: 80, during: 3 },
      ],
    },
    ['192.0.2.1:80 120000', '192.0.2.2:80 180000', '192.0.2.3:80 180000'],
  ],
  [
    'credentials and a protocol',
    { data: [{ proxy_address: '192.0.2.1', port: 80, username: 'bob', password: 'pass', type: 'SOCKS5' }] },
    ['192.0.2.1:80 socks5 bob/pass'],
  ],
  [
    'objects inside the entries',
    { data: [{ proxy: { ip: '192.0.2.1', port: 80 }, ttl: 9 }] },
    ['192.0.2.1:80 9000'],
  ],
  [
    'one entry without a list',
    { code: 0, data: { ip: '192.0.2.1', port: 80, ttl: 9 } },
    ['192.0.2.1:80 9000'],
  ],
  ['lines in a text', { code: 0, data: '192.0.2.1:80\r\n192.0.2.2:80' }, ['192.0.2.1:80', '192.0.2.2:80']],
  ['lists as entries', { data: [['192.0.2.1', 80]] }, ['192.0.2.1:80']],
])('link: reads JSON with %s', (_name, answer, entries) => {
  expect(lines(decode(answer))).toEqual(entries);
});

test('link: configured fields win over recognised ones', () => {
  const answer = {
    result: {
      ip: '192.0.2.9:1',
      nodes: [{ a: '192.0.2.1', b: '80', ip: '203.0.113.1', life: 2, at: '2026/11/22 03:00', where: 'x' }],
    },
  };
  const rules: Partial<LinkRules> = {
    list: 'result.nodes',
    address: '{a}:{b}',
    expiry: { field: 'life', as: 'minutes', zone: 'Z' },
    exitIp: 'ip',
    location: ['where', 'b'],
  };
  expect(lines(decode(answer, rules))).toEqual(['192.0.2.1:80 120000 203.0.113.1 x 80']);
  const inUtc: Partial<LinkRules> = { ...rules, expiry: { field: 'at', as: 'datetime', zone: 'Z' } };
  expect(lines(decode(answer, inUtc))).toEqual(['192.0.2.1:80 3600000 203.0.113.1 x 80']);
});

test('link: a layout reads entries that are text', () => {
  const rules: Partial<LinkRules> = { address: '{level} {ip}|{port}|{where}|{minutes}' };
  expect(lines(decode('A1 192.0.2.1|80|a b|3\nA1 [2001:db8::1]|81|c|4', rules))).toEqual([
    '192.0.2.1:80 180000',
    '2001:db8::1:81 240000',
  ]);
  const named: Partial<LinkRules> = { ...rules, location: ['where'] };
  expect(lines(decode('A1 192.0.2.1|80|a b|3', named))).toEqual(['192.0.2.1:80 180000 a b']);
});

test('link: rules apply to the recognised fields of a text, too', () => {
  const text = '192.0.2.1:80,3,江苏,电信';
  const minutes: Partial<LinkRules> = { expiry: { field: 'seconds', as: 'minutes', zone: 'Z' } };
  expect(lines(decode(text, minutes))).toEqual(['192.0.2.1:80 180000 江苏 电信']);
  expect(lines(decode(text, { ...minutes, location: ['location2'] }))).toEqual(['192.0.2.1:80 180000 电信']);
});

test('link: the credentials of an entry are ignored, used or required', () => {
  const text = '192.0.2.1:80:bob:pass\n192.0.2.2:80';
  expect(lines(decode(text, {}, { login: 'ignore' }))).toEqual(['192.0.2.1:80', '192.0.2.2:80']);
  expect(lines(decode(text, {}, { login: 'use' }))).toEqual(['192.0.2.1:80 bob/pass', '192.0.2.2:80']);
  expect(lines(decode(text, {}, { login: 'require' }))).toEqual(['192.0.2.1:80 bob/pass']);
});

test('link: the answer keeps what was recognised, in the terms of the configuration', () => {
  const json = {
    code: 0,
    data: {
      list: [{ Server: '192.0.2.1:80', deadline: '2026-11-22 10:01:00', area: 'x', real_ip: '198.51.100.1' }],
    },
  };
  expect(decode(json).recognised).toEqual({
    format: 'json',
    list: 'data.list',
    ok: { field: 'code', value: '0' },
    parts: {
      address: '{Server}',
      expiry: { field: 'deadline', as: 'datetime' },
      exitIp: 'real_ip',
      location: ['area'],
    },
  });
  expect(decode('bob:pass@192.0.2.1:80,江苏,60').recognised).toEqual({
    format: 'text',
    parts: {
      address: '{username}:{password}@{ip}:{port},{location},{seconds}',
      expiry: { field: 'seconds', as: 'seconds' },
      exitIp: undefined,
      location: ['location'],
    },
  });
});

test('link: what was recognised reads the same answer again', () => {
  const answers = [
    'bob:pass@192.0.2.1:80,江苏,60\neve:word@192.0.2.2:80,广东,70',
    '192.0.2.1:80:bob:pass',
    '192.0.2.1\t80\t198.51.100.1\t2026-11-22 10:01:00',
    { data: [{ server: '192.0.2.1:80', expire_time: 1795312860, city: 'x' }] },
  ];
  for (const answer of answers) {
    const { parts, list } = decode(answer).recognised ?? {};
    const rules: Partial<LinkRules> = {
      list,
      address: parts?.address,
      expiry: parts?.expiry && { ...parts.expiry, zone: '+08:00' },
      exitIp: parts?.exitIp,
      location: parts?.location,
    };
    expect(lines(decode(answer, rules))).toEqual(lines(decode(answer)));
  }
});

test('link: an entry is dropped with its reason', () => {
  const { entries, dropped } = decode(
    [
      '192.0.2.1:80,2026-11-22 09:59:59',
      '192.0.2.2:0',
      '999.0.2.2:80',
      '10.0.0.1:80',
      '192.0.2.3:80:bob:pass',
      '192.0.2.4:80',
      'x',
    ],
    {},
    { login: 'require', refuses: (host) => (host === '10.0.0.1' ? 'private' : undefined) },
  );
  expect(entries.map(({ host }) => host)).toEqual(['192.0.2.3']);
  expect(dropped).toEqual({ expired: 1, port: 1, address: 2, private: 1, credentials: 1 });
});

test('link: a life of -1 is unknown, and an impossible one counts as missing', () => {
  const lives = [-1, -5, 99_999_999_999, 'x', null, '2026-13-40 10:00:00', true];
  const answer = { data: lives.map((timeout, index) => ({ ip: `192.0.2.${index}`, port: 80, timeout })) };
  const rules: Partial<LinkRules> = { expiry: { field: 'timeout', as: 'seconds', zone: 'Z' } };
  expect(lines(decode(answer, rules))).toEqual([
    '192.0.2.0:80 unknown',
    ...[1, 2, 3, 4, 5, 6].map((index) => `192.0.2.${index}:80`),
  ]);
});

const CODES: Partial<LinkRules> = {
  ok: { field: 'code', is: ['0', 'SUCCESS'] },
  tooFast: { field: 'code', is: ['113'] },
  denied: { field: 'status.code', is: ['401'] },
  empty: { field: 'code', is: ['-3'] },
};

test.each<[answer: object, code: string, message: string]>([
  [{ code: 0, data: [{ ip: '192.0.2.1', port: 80 }] }, '10001', ''],
  [{ code: 'SUCCESS', data: [] }, '10001', ''],
  [{ code: 113, msg: '请10秒后再试' }, 'too-fast', 'code 113: 请10秒后再试'],
  [
    { status: { code: '401' }, message: 'not on the whitelist' },
    'denied',
    'code is missing: not on the whitelist',
  ],
  [{ code: -3 }, 'empty', 'code -3'],
  [{ code: 500, msg: 'down', data: [{ ip: '192.0.2.1', port: 80 }] }, 'refused', 'code 500: down'],
  [{ data: [{ ip: '192.0.2.1', port: 80 }] }, 'refused', 'code is missing'],
])('link: %j is %s by the rules', (answer, code, message) => {
  expect(decode(answer, CODES)).toMatchObject({ code, message });
});

test.each<[answer: unknown, message: string]>([
  ['INVALID_KEY', 'INVALID_KEY'],
  ['Error: 1.2.3.4 is not on the whitelist', 'Error: 1.2.3.4 is not on the whitelist'],
  ['ERR|key expired', 'ERR|key expired'],
  ['order not found', 'order not found'],
  [{ code: 401, msg: 'Unauthorized' }, 'Unauthorized'],
  [{ code: -1, msg: '请先添加白名单' }, '请先添加白名单'],
  [{ ret: 5, error: 'Invalid API key [abcdef/123456]' }, 'Invalid API key [[secret]]'],
  [{ success: false, data: '订单已过期' }, '订单已过期'],
])('link: %j is denied without a rule, in the words of the answer', (answer, message) => {
  const denied = { code: 'denied', message, entries: [] };
  expect(decode(answer, {}, { secrets: [new Secret('abcdef/123456')] })).toMatchObject(denied);
});

test.each<[answer: unknown]>([
  ['NO_IP_LEFT'],
  ['keyboard'],
  ['no users online'],
  [`${'x'.repeat(300)} INVALID_KEY`],
  [{ code: 0, data: [] }],
])('link: %j is not denied, because no clear word says so', (answer) => {
  expect(() => decode(answer)).toThrow(/no list of proxies|no proxy address/);
});

test('link: a list of proxies is read although one of its words could be a denial', () => {
  expect(lines(decode('192.0.2.1:80,order expired soon'))).toEqual(['192.0.2.1:80 order expired soon']);
});

const KEY = new Secret('abcdef/123456');

test.each<[name: string, answer: unknown, rules: Partial<LinkRules>, message: RegExp]>([
  [
    'an unexplained error',
    { code: 113, msg: 'x', key: 'abcdef/123456' },
    {},
    /is no list of proxies; it says: .*"key":"\[secret\]"/,
  ],
  ['an empty list', { code: 0, data: [] }, {}, /is no list of proxies; it says: \{"code":0,"data":\[\]\}$/],
  ['nothing', '', {}, /is empty$/],
  ['some text', 'Error: 1.2.3.4 is unknown', {}, /no proxy address that noria recognises; .*unknown$/],
  ['an error in words', 'NO_IP_LEFT', {}, /the answer of .* is no list of proxies; it says: NO_IP_LEFT$/],
  ['a text with one address', 'see\nthis\n192.0.2.1:80', {}, /no proxy address/],
  [
    'another list',
    { data: { list: 1 } },
    { list: 'data.items' },
    /has no list at data\.items \(answer\.list\)/,
  ],
  [
    'no list with these fields',
    { data: [{ server: '192.0.2.1:80' }] },
    { address: '{ip}:{port}' },
    /no entry that matches/,
  ],
  ['other fields', [{ a: '192.0.2.1' }], { address: '{b}' }, /no entry that matches answer\.address \{b\}/],
  ['a new layout', { code: 0, data: [{ node: '1.2.3.4/80' }] }, CODES, /no proxy address/],
  ['text instead of JSON', '192.0.2.1:80', { format: 'json' }, /is not JSON, as answer\.format requires/],
  ['a web page', '<!DOCTYPE html><p>no', {}, /sent a web page/],
])('link: %s is an error that quotes the answer', (_name, answer, rules, message) => {
  const secrets = [KEY, new Secret('abcdef\\/123456')];
  expect(() => decode(answer, rules, { secrets })).toThrow(message);
});

test('link: a quote has at most 200 characters', () => {
  const error = (() => {
    try {
      decode('x'.repeat(5_000));
    } catch (caught) {
      return String(caught);
    }
    return '';
  })();
  expect(/x{201}/.test(error)).toBe(false);
  expect(/x{200}…/.test(error)).toBe(true);
});
