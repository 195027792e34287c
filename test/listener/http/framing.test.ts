import { expect, test } from 'vitest';
import { NoriaError } from '../../../src/core/faults.ts';
import {
  type HeaderField,
  requestFraming,
  responseFraming,
} from '../../../src/listener/http/header-fields.ts';

/** The code of an error, otherwise the value. */
const outcome = <T>(value: T | NoriaError) => (value instanceof NoriaError ? value.code : value);

const LENGTH_3: HeaderField = ['Content-Length', '3'];
const CHUNKED: HeaderField = ['Transfer-Encoding', 'chunked'];

test.each<[string, HeaderField[], number, unknown]>([
  ['neither field: no body', [], 1, { kind: 'none' }],
  ['a length', [LENGTH_3], 1, { kind: 'length', bytes: 3 }],
  ['chunked, in any letter case', [['transfer-encoding', 'Chunked']], 1, { kind: 'chunked' }],
  ['two lengths', [LENGTH_3, ['content-length', '4']], 1, 'bad-request'],
  ['one length twice', [LENGTH_3, LENGTH_3], 1, 'bad-request'],
  ['a list of lengths', [['Content-Length', '3, 3']], 1, 'bad-request'],
  ['an empty length', [['Content-Length', '']], 1, 'bad-request'],
  ['a signed length', [['Content-Length', '+3']], 1, 'bad-request'],
  ['a length above the safe integers', [['Content-Length', '99999999999999999']], 1, 'bad-request'],
  ['a length and a coding', [LENGTH_3, CHUNKED], 1, 'bad-request'],
  ['two codings', [CHUNKED, CHUNKED], 1, 'bad-request'],
  ['a list of codings', [['Transfer-Encoding', 'gzip, chunked']], 1, 'not-implemented'],
  ['a coding that only looks like chunked', [['Transfer-Encoding', 'xchunked']], 1, 'not-implemented'],
  ['a coding in HTTP/1.0', [CHUNKED], 0, 'bad-request'],
])('request framing: %s', (_what, fields, minorVersion, expected) => {
  expect(outcome(requestFraming(fields, minorVersion))).toEqual(expected);
});

test.each<[string, string, number, HeaderField[], unknown]>([
  ['neither field: until close', 'GET', 200, [], { kind: 'until-close' }],
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
