import fc from 'fast-check';
import { expect, test } from 'vitest';
import { connectionOptions, parseFieldLines } from '../../../src/listener/http/header-fields.ts';
import { parseRequestHead } from '../../../src/listener/http/request-head.ts';
import { ResponseReader } from '../../../src/listener/http/response-reader.ts';
import { runOrTerminate } from '../../support/terminate.ts';

test('field lines: names keep their letter case, values lose surrounding white space', () => {
  const text = 'GET\r\nA: b\r\nC-d:e\tf  \r\nX:\t \r\nY:\r\nA:  \xe4 b \r\n';
  expect(parseFieldLines(text, 5, 'request')).toEqual([
    ['A', 'b'],
    ['C-d', 'e\tf'],
    ['X', ''],
    ['Y', ''],
    ['A', '\xe4 b'],
  ]);
  expect(parseFieldLines('', 0, 'request')).toEqual([]);
});

test.each([
  ['no colon', 'A\r\n'],
  ['no name', ': b\r\n'],
  ['white space before the colon', 'A : b\r\n'],
  ['a folded line', 'A: b\r\n c\r\n'],
  ['a bare CR', 'A: b\rc\r\n'],
  ['a bare LF', 'A: b\nC: d\r\n'],
  ['a control character', 'A: \x01\r\n'],
  ['no end', 'A: b'],
])('field lines: %s is invalid', (_, text) => {
  expect(parseFieldLines(text, 0, 'request')).toBeUndefined();
});

test('field lines: parsing returns what was formatted', () => {
  const name = fc.stringMatching(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,20}$/);
  const value = fc.stringMatching(/^(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]{0,20}[\x21-\x7e])?)?$/);
  const space = fc.stringMatching(/^[ \t]{0,5}$/);
  fc.assert(
    fc.property(fc.array(fc.tuple(name, space, value, space)), (lines) => {
      const text = lines.map(([field, before, held, after]) => `${field}:${before}${held}${after}\r\n`);
      expect(parseFieldLines(text.join(''), 0, 'request')).toEqual(
        lines.map(([field, , held]) => [field, held]),
      );
    }),
  );
});

const spaces = (length: number) => ' '.repeat(length);
/** So much white space would take an hour with a pattern that backtracks over it. */
const LONG = 2_000_000;

test.each([
  ['white space inside a value', `x${spaces(LONG)}x`, 1],
  ['nothing but white space', spaces(LONG), 1],
  ['white space and then an invalid character', `${spaces(LONG)}\x01`, undefined],
])('field lines: %s is parsed in linear time', (_, value, count) => {
  const fields = runOrTerminate(() => parseFieldLines(`A:${value}\r\n`, 0, 'request'));
  expect(fields?.length).toBe(count);
});

/** The length of a head is limited. With a careless pattern, this number of heads would take minutes. */
const HEADS = 2_000;

test('field lines: a CONNECT head of white space is parsed in linear time', () => {
  const head = Buffer.from(`CONNECT a.example:443 HTTP/1.1\r\nA:${spaces(16_000)}\x01\r\n\r\n`, 'latin1');
  runOrTerminate(() => {
    for (let n = 0; n < HEADS; n += 1) parseRequestHead(head);
  });
});

test('field lines: a response head with white space is parsed in linear time', () => {
  const head = Buffer.from(
    `HTTP/1.1 200 OK\r\nA: x${spaces(60_000)}x\r\nContent-Length: 0\r\n\r\n`,
    'latin1',
  );
  runOrTerminate(() => {
    for (let n = 0; n < HEADS / 10; n += 1) {
      const reader = new ResponseReader('GET');
      reader.push(head);
      expect(reader.next()).toMatchObject({ kind: 'head', head: { status: 200 } });
    }
  });
});

test('connection options: all options of all Connection fields, in lower case', () => {
  const fields: (readonly [string, string])[] = [
    ['Connection', 'a'],
    ['Host', 'x'],
    ['connection', 'b , Close'],
  ];
  expect(connectionOptions(fields)).toEqual(['a', 'b', 'close']);
});
