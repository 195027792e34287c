import { expect, test } from 'vitest';
import { NoriaError } from '../../../src/core/faults.ts';
import {
  endToEndFields,
  endToEndTrailers,
  type HeaderField,
  hasConnectionOption,
  parseAbsoluteTarget,
  requestFraming,
  responseFraming,
  upgradeFields,
  withHost,
} from '../../../src/listener/http/header-fields.ts';

/** The code of an error, else the value itself. */
const outcome = <T>(value: T | NoriaError) => (value instanceof NoriaError ? value.code : value);

const LENGTH_3: HeaderField = ['Content-Length', '3'];
const CHUNKED: HeaderField = ['Transfer-Encoding', 'chunked'];

test.each<[string, HeaderField[], number, unknown]>([
  ['no field: no body', [], 1, { kind: 'none' }],
  ['a length', [LENGTH_3], 1, { kind: 'length', bytes: 3 }],
  ['chunked, in any letter case', [['transfer-encoding', 'Chunked']], 1, { kind: 'chunked' }],
  ['two lengths', [LENGTH_3, ['content-length', '4']], 1, 'bad-request'],
  ['one length twice', [LENGTH_3, LENGTH_3], 1, 'bad-request'],
  ['a list of lengths', [['Content-Length', '3, 3']], 1, 'bad-request'],
  ['an empty length', [['Content-Length', '']], 1, 'bad-request'],
  ['a signed length', [['Content-Length', '+3']], 1, 'bad-request'],
  ['a length beyond counting', [['Content-Length', '99999999999999999']], 1, 'bad-request'],
  ['a length and a coding', [LENGTH_3, CHUNKED], 1, 'bad-request'],
  ['two codings', [CHUNKED, CHUNKED], 1, 'bad-request'],
  ['a list of codings', [['Transfer-Encoding', 'gzip, chunked']], 1, 'not-implemented'],
  ['a coding that only looks like chunked', [['Transfer-Encoding', 'xchunked']], 1, 'not-implemented'],
  ['a coding in HTTP/1.0', [CHUNKED], 0, 'bad-request'],
])('request framing: %s', (_what, fields, minorVersion, expected) => {
  expect(outcome(requestFraming(fields, minorVersion))).toEqual(expected);
});

test.each<[string, string, number, HeaderField[], unknown]>([
  ['neither field: until the connection ends', 'GET', 200, [], { kind: 'until-close' }],
  ['a length', 'GET', 200, [LENGTH_3], { kind: 'length', bytes: 3 }],
  ['HEAD', 'HEAD', 200, [LENGTH_3], { kind: 'none' }],
  ['HEAD, chunked', 'HEAD', 200, [CHUNKED], { kind: 'none' }],
  ['204', 'GET', 204, [], { kind: 'none' }],
  ['304', 'GET', 304, [LENGTH_3], { kind: 'none' }],
  ['101', 'GET', 101, [], { kind: 'none' }],
  ['two lengths, even without a body', 'HEAD', 200, [LENGTH_3, LENGTH_3], 'bad-request'],
])('response framing: %s', (_what, method, status, fields, expected) => {
  expect(outcome(responseFraming(method, status, fields, 1))).toEqual(expected);
});

test.each<[string, string, string, unknown]>([
  [
    'host, port and path',
    'GET',
    'http://a.example:8080/x?y=http://b/',
    ['a.example', 8080, 'a.example:8080', '/x?y=http://b/'],
  ],
  ['no port', 'GET', 'http://a.example/', ['a.example', 80, 'a.example', '/']],
  ['port 80 said', 'GET', 'http://a.example:80/', ['a.example', 80, 'a.example', '/']],
  ['no path', 'GET', 'HTTP://A.example', ['a.example', 80, 'a.example', '/']],
  ['a query and no path', 'GET', 'http://a.example?q', ['a.example', 80, 'a.example', '/?q']],
  [
    'a path left as it was written',
    'GET',
    'http://a.example/%7e/../b//c',
    ['a.example', 80, 'a.example', '/%7e/../b//c'],
  ],
  ['OPTIONS of the whole server', 'OPTIONS', 'http://a.example', ['a.example', 80, 'a.example', '*']],
  ['an IPv6 host', 'GET', 'http://[2001:DB8::0]:81/', ['2001:db8::', 81, '[2001:db8::]:81', '/']],
  ['an IPv6 host without a port', 'GET', 'http://[::1]/', ['::1', 80, '[::1]', '/']],
  ['an IPv4 host in another spelling', 'GET', 'http://0x7f.1/', ['127.0.0.1', 80, '127.0.0.1', '/']],
  [
    'an international name',
    'GET',
    'http://bücher.example/',
    ['xn--bcher-kva.example', 80, 'xn--bcher-kva.example', '/'],
  ],
  ['origin form', 'GET', '/x', 'bad-request'],
  ['asterisk form', 'OPTIONS', '*', 'bad-request'],
  ['https', 'GET', 'https://a.example/', 'not-implemented'],
  ['ftp', 'GET', 'ftp://a.example/', 'bad-request'],
  ['user info', 'GET', 'http://u:p@a.example/', 'bad-request'],
  ['a host after user info', 'GET', 'http://a.example:80@b.example/', 'bad-request'],
  ['a backslash', 'GET', 'http://a.example\\@b.example/', 'bad-request'],
  ['a fragment', 'GET', 'http://a.example/#x', 'bad-request'],
  ['an encoded host', 'GET', 'http://a%2eexample/', 'bad-request'],
  ['no host', 'GET', 'http:///x', 'bad-request'],
  ['port 0', 'GET', 'http://a.example:0/', 'bad-request'],
  ['authority form', 'GET', 'a.example:80', 'bad-request'],
])('absolute target: %s', (_what, method, url, expected) => {
  const read = parseAbsoluteTarget(method, url);
  if (read instanceof NoriaError) expect(read.code).toBe(expected);
  else expect([read.target.host, read.target.port, read.authority, read.path]).toEqual(expected);
});

test('end to end: order, letter case and duplicates stay, what is for one connection goes', () => {
  const fields: HeaderField[] = [
    ['Host', 'a'],
    ['ACCEPT', '*/*'],
    ['Connection', 'X-Mine, keep-alive'],
    ['connection', 'Host, Content-Length, Authorization, Cookie'],
    ['X-Mine', '1'],
    ['Keep-Alive', '5'],
    ['TE', 'trailers'],
    ['Upgrade', 'h2c'],
    ['Proxy-Connection', 'keep-alive'],
    ['Proxy-Authorization', 'Basic x'],
    ['X-Noria-Session', 's'],
    ['Content-Length', '3'],
    ['Authorization', 'Bearer x'],
    ['Cookie', 'a=b'],
    ['cookie', 'c=d'],
    ['Trailer', 'X-T'],
    ['Transfer-Encoding', 'chunked'],
  ];
  expect(endToEndFields(fields, { kind: 'length', bytes: 3 })).toEqual([
    ['Host', 'a'],
    ['ACCEPT', '*/*'],
    ['Content-Length', '3'],
    ['Authorization', 'Bearer x'],
    ['Cookie', 'a=b'],
    ['cookie', 'c=d'],
  ]);
});

test('end to end: a chunked body keeps its coding and the names of its trailers, in their places', () => {
  const fields: HeaderField[] = [
    ['transfer-encoding', 'Chunked'],
    ['Trailer', 'X-T'],
    ['A', 'b'],
  ];
  expect(endToEndFields(fields, { kind: 'chunked' })).toEqual(fields);
});

test('upgrading: Upgrade stays, Connection names it alone', () => {
  const fields: HeaderField[] = [
    ['connection', 'keep-alive, Upgrade, X-Mine'],
    ['X-Mine', '1'],
    ['UPGRADE', 'websocket'],
    ['Connection', 'close'],
    ['Sec-WebSocket-Key', 'k'],
    ['Proxy-Connection', 'x'],
  ];
  expect(upgradeFields(fields)).toEqual([
    ['connection', 'Upgrade'],
    ['UPGRADE', 'websocket'],
    ['Sec-WebSocket-Key', 'k'],
  ]);
});

test('trailers: none that would change the message goes on', () => {
  const fields: HeaderField[] = [
    ['X-T', '1'],
    ['Content-Length', '3'],
    ['Transfer-Encoding', 'chunked'],
    ['Host', 'a'],
    ['Proxy-Authorization', 'x'],
    ['Set-Cookie', 'a=b'],
  ];
  expect(endToEndTrailers(fields)).toEqual([['X-T', '1']]);
});

test("host: the URL's stands where the client's stood, or first", () => {
  expect(
    withHost(
      [
        ['A', 'b'],
        ['hOst', 'other'],
        ['C', 'd'],
      ],
      'a',
    ),
  ).toEqual([
    ['A', 'b'],
    ['hOst', 'a'],
    ['C', 'd'],
  ]);
  expect(withHost([['A', 'b']], 'a')).toEqual([
    ['Host', 'a'],
    ['A', 'b'],
  ]);
});

test('connection: an option is found in any of its fields, in any letter case', () => {
  expect(
    hasConnectionOption(
      [
        ['Connection', 'a'],
        ['connection', 'b , Close'],
      ],
      'close',
    ),
  ).toBe(true);
  expect(hasConnectionOption([['Connection', 'closed']], 'close')).toBe(false);
});
