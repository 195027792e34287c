import { expect, test } from 'vitest';
import { compileLayout } from '../../src/service/decode-text.ts';
import type { Product } from '../../src/service/operations.ts';
import { runOrTerminate } from '../support/terminate.ts';
import { decoded } from './reading.ts';

const TWO = [
  { host: '192.0.2.1', port: 8000, location: '上海市 电信', lifetimeMs: 213_000 },
  { host: '192.0.2.2', port: 8001, location: '北京市 联通', lifetimeMs: 60_000 },
];

test.each([
  ['{ip}:{port},{adr},{timeout}', '192.0.2.1:8000,上海市 电信,213\r\n192.0.2.2:8001,北京市 联通,60'],
  ['{ip}:{port} {adr} {timeout}', '192.0.2.1:8000 上海市 电信 213\n192.0.2.2:8001 北京市 联通 60\n'],
  ['{adr}\t{ip}\t{port}\t{timeout}', '上海市 电信\t192.0.2.1\t8000\t213\n北京市 联通\t192.0.2.2\t8001\t60'],
  ['<{timeout}>{adr}|{ip}:{port}', '<213>上海市 电信|192.0.2.1:8000\n<60>北京市 联通|192.0.2.2:8001'],
  ['{ip}:{port},{adr},{timeout};', '192.0.2.1:8000,上海市 电信,213;192.0.2.2:8001,北京市 联通,60'],
  ['{ip}:{port},{adr},{timeout};', '192.0.2.1:8000,上海市 电信,213;\r\n192.0.2.2:8001,北京市 联通,60;\r\n'],
  ['{ip}:{port},{timeout},{adr}||', '192.0.2.1:8000,213,上海市 电信||192.0.2.2:8001,60,北京市 联通||'],
  [
    '{ip}:{port}\n{adr}\n{timeout}\n--',
    '192.0.2.1:8000\n上海市 电信\n213\n--\n192.0.2.2:8001\n北京市 联通\n60\n--',
  ],
  [
    '{ip}.*+?^$()[]\\{port}/{adr}-{timeout}',
    '192.0.2.1.*+?^$()[]\\8000/上海市 电信-213\n192.0.2.2.*+?^$()[]\\8001/北京市 联通-60',
  ],
])('text layout: %j reads %j', (textLayout, body) => {
  expect(decoded(body, { format: 'text', textLayout })).toEqual(
    expect.objectContaining({ entries: TWO, dropped: {} }),
  );
});

test('text layout: an empty field is missing', () => {
  const textLayout = '{ip}:{port},{out_ip},{expired_seconds},{is_new_dedup},{adr}';
  const { entries } = decoded('192.0.2.1:8000,,,,', { format: 'text', product: 'short-pure', textLayout });
  expect(entries).toEqual([{ host: '192.0.2.1', port: 8000 }]);
});

test('text layout: it reads -1, and IPv6 addresses with or without brackets', () => {
  const textLayout = '{ip} {port} {timeout}';
  const { entries } = decoded('2001:db8::1 8000 -1\n[2001:db8::2] 8000 5', { format: 'text', textLayout });
  expect(entries).toEqual([
    { host: '2001:db8::1', port: 8000, lifetimeMs: 'unknown' },
    { host: '2001:db8::2', port: 8000, lifetimeMs: 5_000 },
  ]);
});

test('text layout: a minority of mismatching lines is dropped, a majority rejects the answer', () => {
  const textLayout = '{ip}:{port},{timeout};';
  const some = decoded('192.0.2.1:8000,213;192.0.2.2:8001,60;broken', { format: 'text', textLayout });
  expect(some.entries).toHaveLength(2);
  expect(some.dropped).toEqual({ address: 1 });
  expect(() => decoded('broken;broken\n192.0.2.1:8000', { format: 'text', textLayout })).toThrow(
    /not in the requested format text/,
  );
});

test.each([
  [
    'short-classic',
    '{ip}:{port},{outip}',
    '{outip} is not a field of short-classic; its fields are {ip} {port} {adr} {timeout} {cometime}',
  ],
  [
    'short-classic',
    '{ip}:{prot}',
    '{prot} is not a field of short-classic; its fields are {ip} {port} {adr} {timeout} {cometime}',
  ],
  ['short-classic', '{ip}', 'the layout must contain {ip} and {port}; {port} is missing'],
  ['short-classic', 'ip:port', 'the layout must contain {ip} and {port}; {ip} is missing'],
  ['short-classic', '', 'the layout must contain {ip} and {port}; {ip} is missing'],
  ['short-classic', '{ip}:{port}:{ip}', '{ip} occurs twice'],
  ['short-classic', '{ip}:{port}{adr}', 'two fields must have text between them'],
  [
    'short-classic',
    '{ip}:{port}x_1{adr}',
    '"x_1" cannot separate two fields: use a character such as , or ;',
  ],
  ['free', '{ip}:{port}{}', '{} is not a field of free; its fields are {ip} {port} {adr} {protocol} {level}'],
] as [Product, string, string][])('text layout: for %s, %j is rejected: %s', (product, layout, problem) => {
  expect(compileLayout(product, layout)).toEqual({ problem });
});

test('text layout: an unchecked invalid layout throws a TypeError', () => {
  expect(() => decoded('192.0.2.1:80', { format: 'text', textLayout: '{ip}' })).toThrow(TypeError);
});

test('text layout: a line made for slow matching is read in linear time', () => {
  const product = 'exclusive';
  const textLayout = '{ip}:{port},{adr},{timeout},{cometime},{area},{id},{lastscore},{yestodayscore}';
  const line = `192.0.2.1:80,${','.repeat(100)}1,`.repeat(40);
  const body = `${line}\n`.repeat(200);
  const decode = () => decoded(body, { format: 'text', product, textLayout });
  expect(() => runOrTerminate(decode)).toThrow(/not in the requested format text/);
});
