import { expect, test } from 'vitest';
import { readTextLines } from '../../src/service/decode-text.ts';
import { PRODUCTS } from '../../src/service/operations.ts';
import { decoded, reading } from './reading.ts';

const TWO = [
  { host: '192.0.2.1', port: 8000 },
  { host: '192.0.2.2', port: 8001 },
];

test.each([
  ['CRLF', '192.0.2.1:8000\r\n192.0.2.2:8001\r\n'],
  ['LF', '192.0.2.1:8000\n192.0.2.2:8001'],
  ['CR', '192.0.2.1:8000\r192.0.2.2:8001\r'],
  ['empty lines and spaces', '\r\n  192.0.2.1:8000 \r\n\r\n\t192.0.2.2:8001\t\n\n'],
  ['a byte order mark', '\ufeff192.0.2.1:8000\n192.0.2.2:8001'],
])('text: it reads lines of address and port, with %s', (_, body) => {
  for (const product of PRODUCTS.filter((name) => name !== 'free')) {
    expect(decoded(body, { format: 'text', product })).toEqual(
      expect.objectContaining({
        code: '10001',
        entries: TWO,
        dropped: {},
        quota: {},
      }),
    );
  }
});

test('text: IPv6 addresses are in brackets', () => {
  const { entries } = decoded('[2001:DB8::1]:8000', { format: 'text' });
  expect(entries).toEqual([{ host: '2001:db8::1', port: 8000 }]);
});

test('text: a minority of bad lines is dropped and counted', () => {
  const body = '192.0.2.1:8000\n192.0.2.999:1\n192.0.2.2:8001\n192.0.2.3:99999\nnonsense\n';
  expect(decoded(body, { format: 'text' })).toMatchObject({
    entries: TWO,
    dropped: { address: 2, port: 1 },
  });
});

test('text: a text with mostly other lines is not an answer', () => {
  expect(
    readTextLines('Access denied for\n192.0.2.1:8000\nAsk the operator', reading({ product: 'shared' })),
  ).toBeUndefined();
});

test.each([
  ['192.0.2.1', 'short-classic'],
  ['192.0.2.1:', 'short-classic'],
  ['192.0.2.1:80:x', 'short-classic'],
  ['192.0.2.1:80,上海', 'short-classic'],
  ['http://192.0.2.1:80', 'short-classic'],
  ['[高匿]192.0.2.1:80@http#上海', 'short-classic'],
  ['192.0.2.1:80', 'free'],
  ['[高匿]192.0.2.1:80@http', 'free'],
] as const)('text: %j is no line of %s', (line, product) => {
  expect(readTextLines(line, reading({ product }))).toBeUndefined();
});

test('text: label and location of a free line may be empty or contain punctuation', () => {
  const body = '[]192.0.2.1:8000@http#\n[a:b@c#d]192.0.2.2:8001@SOCKS5#x#y [z] @ w\n';
  expect(decoded(body, { format: 'text', product: 'free' }).entries).toEqual([
    { host: '192.0.2.1', port: 8000, protocol: 'http' },
    { host: '192.0.2.2', port: 8001, protocol: 'socks5', level: 'a:b@c#d', location: 'x#y [z] @ w' },
  ]);
});

test.each([
  ['{"code":"12009","msg":"none"}', '12009'],
  ['<root><code>12009</code><msg>none</msg></root>', '12009'],
  ['code:12009,msg:none', '12009'],
  ['code = "12009"', '12009'],
  ['12009', '12009'],
  ['ERROR(12009) none', '12009'],
  ['<bad>12009</bad>', '12009'],
  ['12012 198.51.100.1 is still extracting', '12012'],
  ['previous client 198.51.100.1, 12012', undefined],
  ['code:31337', '31337'],
  ['10001', undefined],
  ['code:10001', undefined],
  ['192.0.2.1 12009', undefined],
  ['192.0.2.1;12009', undefined],
  ['{"code":"10001","data":[{"ip":"192.0.2.1","port":12009}]}', undefined],
  ['{"code":"10001","data":[{"ip":"192.0.2.1","port":12009}', undefined],
  ['17008', undefined],
  ['112009', undefined],
  [`12009 ${'x'.repeat(2_000)}`, undefined],
])('text: the error %j of the free product has the code %s', (body, code) => {
  if (code === undefined) {
    expect(() => decoded(body, { format: 'text', product: 'free' })).toThrow(
      /is not in the requested format text/,
    );
  } else {
    const answer = decoded(body, { format: 'text', product: 'free' });
    expect(answer).toMatchObject({ code, entries: [] });
    expect(answer.message).not.toBe('');
  }
});
