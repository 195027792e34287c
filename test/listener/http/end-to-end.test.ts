import { expect, test } from 'vitest';
import {
  endToEndFields,
  endToEndTrailers,
  type HeaderField,
  upgradeFields,
} from '../../../src/listener/http/header-fields.ts';

test('end to end: keeps order, letter case and duplicates, and removes hop-by-hop fields', () => {
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

test('end to end: keeps Transfer-Encoding and Trailer of a chunked body in place', () => {
  const fields: HeaderField[] = [
    ['transfer-encoding', 'Chunked'],
    ['Trailer', 'X-T'],
    ['A', 'b'],
  ];
  expect(endToEndFields(fields, { kind: 'chunked' })).toEqual([
    ['transfer-encoding', 'chunked'],
    ['Trailer', 'X-T'],
    ['A', 'b'],
  ]);
});

test('end to end: writes a length in canonical form', () => {
  const lengths = ['010', '00005', '0', '000', '9007199254740991'];
  const fields = lengths.map((length): HeaderField => ['Content-length', length]);
  expect(endToEndFields(fields, { kind: 'none' }).map(([, value]) => value)).toEqual([
    '10',
    '5',
    '0',
    '0',
    '9007199254740991',
  ]);
});

test('upgrade: keeps Upgrade, and Connection with that option only', () => {
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

test('trailers: removes fields that would change the message', () => {
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
