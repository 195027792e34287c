import { expect, test } from 'vitest';
import { NoriaError } from '../../../src/core/faults.ts';
import { formatRequestHead, parseAbsoluteUrl } from '../../../src/listener/http/forward-request.ts';
import type { HeaderField } from '../../../src/listener/http/header-fields.ts';

/** Returns a UTF-8 text as the parser of request heads passes it on. */
const latin1 = (text: string): string => Buffer.from(text, 'utf8').toString('latin1');

test.each<[string, string, string, unknown]>([
  [
    'host, port and path',
    'GET',
    'http://a.example:8080/x?y=http://b/',
    ['a.example', 8080, 'a.example:8080', '/x?y=http://b/'],
  ],
  ['no port', 'GET', 'http://a.example/', ['a.example', 80, 'a.example', '/']],
  ['explicit port 80', 'GET', 'http://a.example:80/', ['a.example', 80, 'a.example', '/']],
  ['no path', 'GET', 'HTTP://A.example', ['a.example', 80, 'a.example', '/']],
  ['a query and no path', 'GET', 'http://a.example?q', ['a.example', 80, 'a.example', '/?q']],
  [
    'a path that is not normalised',
    'GET',
    'http://a.example/%7e/../b//c',
    ['a.example', 80, 'a.example', '/%7e/../b//c'],
  ],
  ['OPTIONS for the whole server', 'OPTIONS', 'http://a.example', ['a.example', 80, 'a.example', '*']],
  ['an IPv6 host', 'GET', 'http://[2001:DB8::0]:81/', ['2001:db8::', 81, '[2001:db8::]:81', '/']],
  ['an IPv6 host without a port', 'GET', 'http://[::1]/', ['::1', 80, '[::1]', '/']],
  ['an IPv4 host in another spelling', 'GET', 'http://0x7f.1/', ['127.0.0.1', 80, '127.0.0.1', '/']],
  [
    'an international name',
    'GET',
    latin1('http://bücher.example/'),
    ['xn--bcher-kva.example', 80, 'xn--bcher-kva.example', '/'],
  ],
  [
    'UTF-8 in path and query, which is percent-encoded',
    'GET',
    latin1('http://a.example/ü/%C3?q=日'),
    ['a.example', 80, 'a.example', '/%C3%BC/%C3?q=%E6%97%A5'],
  ],
  ['other bytes in the path', 'GET', 'http://a.example/\xfc', ['a.example', 80, 'a.example', '/%FC']],
  ['a host that is not UTF-8', 'GET', 'http://b\xfccher.example/', 'bad-request'],
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
])('absolute URL: %s', (_what, method, url, expected) => {
  const read = parseAbsoluteUrl(method, url);
  if (read instanceof NoriaError) expect(read.code).toBe(expected);
  else expect([read.target.host, read.target.port, read.authority, read.path]).toEqual(expected);
});

const DIRECT = { forwardMode: 'direct' } as const;
const ABSOLUTE = { forwardMode: 'absolute' } as const;

function request(method: string, text: string, fields: readonly HeaderField[] = [], upgrade = false) {
  const url = parseAbsoluteUrl(method, text);
  if (url instanceof NoriaError) throw url;
  return { method, url, fields, framing: { kind: 'none' }, routing: {}, owner: '', upgrade } as const;
}

test('request head: origin form for a target, absolute form for a member', () => {
  const get = request('GET', 'http://a.example:81/x?y', [['Host', 'other']]);
  expect(formatRequestHead(get, DIRECT)).toBe('GET /x?y HTTP/1.1\r\nHost: a.example:81\r\n\r\n');
  expect(formatRequestHead(get, ABSOLUTE)).toBe(
    'GET http://a.example:81/x?y HTTP/1.1\r\nHost: a.example:81\r\n\r\n',
  );
});

test('request head: only a member that forwards the request gets its credentials', () => {
  const get = request('GET', 'http://a.example/');
  const login = { proxyAuthorization: 'Basic bTpw' };
  expect(formatRequestHead(get, { ...ABSOLUTE, ...login })).toBe(
    'GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nProxy-Authorization: Basic bTpw\r\n\r\n',
  );
  expect(formatRequestHead(get, { ...DIRECT, ...login })).not.toContain('Basic');
});

test('request head: OPTIONS for a whole server is `*` for the target and a URL without a path for a member', () => {
  const options = request('OPTIONS', 'http://a.example');
  expect(formatRequestHead(options, DIRECT)).toBe('OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n');
  expect(formatRequestHead(options, ABSOLUTE)).toBe(
    'OPTIONS http://a.example HTTP/1.1\r\nHost: a.example\r\n\r\n',
  );
});

test('request head: Upgrade is forwarded only if the request asks to switch protocols', () => {
  const fields: HeaderField[] = [
    ['Connection', 'Upgrade'],
    ['Upgrade', 'websocket'],
  ];
  const switching = request('GET', 'http://a.example/', fields, true);
  expect(formatRequestHead(switching, DIRECT)).toBe(
    'GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
  );
  expect(formatRequestHead({ ...switching, upgrade: false }, DIRECT)).toBe(
    'GET / HTTP/1.1\r\nHost: a.example\r\n\r\n',
  );
});

test("request head: Host is the URL's authority, in the place of the client's Host or first", () => {
  const fields: HeaderField[] = [
    ['A', 'b'],
    ['hOst', 'other'],
    ['C', 'd'],
  ];
  expect(formatRequestHead(request('GET', 'http://a.example/', fields), DIRECT)).toBe(
    'GET / HTTP/1.1\r\nA: b\r\nhOst: a.example\r\nC: d\r\n\r\n',
  );
  expect(formatRequestHead(request('GET', 'http://a.example/', [['A', 'b']]), DIRECT)).toBe(
    'GET / HTTP/1.1\r\nHost: a.example\r\nA: b\r\n\r\n',
  );
});
