import { expect, test } from 'vitest';
import { NoriaError } from '../../../src/core/faults.ts';
import { type HeaderField, parseAbsoluteTarget } from '../../../src/listener/http/header-fields.ts';
import { formatRequestHead } from '../../../src/listener/http/request-head.ts';

const DIRECT = { forwardMode: 'direct' } as const;
const ABSOLUTE = { forwardMode: 'absolute' } as const;

function order(method: string, url: string, fields: readonly HeaderField[] = [], upgrade = false) {
  const target = parseAbsoluteTarget(method, url);
  if (target instanceof NoriaError) throw target;
  return { method, fields, framing: { kind: 'none' }, route: { target, routing: {} }, upgrade } as const;
}

test('request head: origin form to a target, absolute form to a member', () => {
  const get = order('GET', 'http://a.example:81/x?y', [['Host', 'other']]);
  expect(formatRequestHead(get, DIRECT)).toBe('GET /x?y HTTP/1.1\r\nHost: a.example:81\r\n\r\n');
  expect(formatRequestHead(get, ABSOLUTE)).toBe(
    'GET http://a.example:81/x?y HTTP/1.1\r\nHost: a.example:81\r\n\r\n',
  );
});

test('request head: a member that forwards itself gets its credentials, a target never', () => {
  const get = order('GET', 'http://a.example/');
  const login = { proxyAuthorization: 'Basic bTpw' };
  expect(formatRequestHead(get, { ...ABSOLUTE, ...login })).toBe(
    'GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nProxy-Authorization: Basic bTpw\r\n\r\n',
  );
  expect(formatRequestHead(get, { ...DIRECT, ...login })).not.toContain('Basic');
});

test('request head: OPTIONS of a whole server is an asterisk to it, and a URL without a path to a member', () => {
  const options = order('OPTIONS', 'http://a.example');
  expect(formatRequestHead(options, DIRECT)).toBe('OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n');
  expect(formatRequestHead(options, ABSOLUTE)).toBe(
    'OPTIONS http://a.example HTTP/1.1\r\nHost: a.example\r\n\r\n',
  );
});

test('request head: Upgrade goes on where another protocol is asked for, and only there', () => {
  const fields: HeaderField[] = [
    ['Connection', 'Upgrade'],
    ['Upgrade', 'websocket'],
  ];
  const asked = order('GET', 'http://a.example/', fields, true);
  expect(formatRequestHead(asked, DIRECT)).toBe(
    'GET / HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
  );
  expect(formatRequestHead({ ...asked, upgrade: false }, DIRECT)).toBe(
    'GET / HTTP/1.1\r\nHost: a.example\r\n\r\n',
  );
});
