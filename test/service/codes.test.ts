import { expect, test } from 'vitest';
import { CODES, intervalNamedMs, judgeDraw, meaningOf, SUCCESS } from '../../src/service/codes.ts';
import type { DrawnEntry } from '../../src/service/fields.ts';
import type { OperationNumber } from '../../src/service/operations.ts';

/** The specification's tables of errors, row by row, with the expected verdict. */
const SPECIFIED: [code: string, operations: OperationNumber[], kind: string][] = [
  ['10001', [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 'ok'],
  ['12001', [1, 2, 3, 4, 5, 6, 7, 8], 'halt'],
  ['12002', [1, 2, 3, 4, 5, 6, 7, 8], 'slow-down'],
  ['12003', [1, 2, 3, 4, 5, 6, 7, 8], 'halt'],
  ['12004', [1, 2, 3, 4, 5, 6, 7, 8], 'halt again 1800000'],
  ['12005', [1, 2, 3, 4, 5, 6, 8], 'halt again 1800000'],
  ['12006', [1, 2, 3, 4, 5, 6, 7, 8], 'halt again 1800000'],
  ['12007', [1, 2, 3, 4, 5, 6, 8], 'pause 60000'],
  ['12008', [1, 2, 4, 5, 6, 8], 'quota 300000 to 1800000'],
  ['12009', [1, 2, 3, 4, 5, 6, 7, 8], 'empty'],
  ['12010', [1, 5], 'quota 1800000 to 1800000, midnight'],
  ['12010', [2, 3, 4], 'pause 60000'],
  ['12012', [7], 'silence 120000'],
  ['12019', [6], 'pause 60000'],
  ['17008', [8], 'pause 60000'],
  ['14001', [9], 'halt'],
  ['14002', [9], 'halt'],
  ['14003', [9], 'halt again 1800000'],
  ['14004', [9], 'halt again 1800000'],
  ['14005', [9], 'halt again 1800000'],
  ['14006', [9], 'empty'],
  ['18001', [10], 'halt'],
  ['18002', [10], 'halt'],
  ['18003', [10], 'empty'],
];

const PAIRS = SPECIFIED.flatMap(([code, operations, kind]) =>
  operations.map((operation) => ({ code, operation, kind })),
);

function shown(operation: OperationNumber, code: string): string {
  const { verdict } = meaningOf(operation, code);
  switch (verdict.kind) {
    case 'ok':
    case 'empty':
    case 'slow-down':
      return verdict.kind;
    case 'silence':
      return `silence ${verdict.ms}`;
    case 'pause':
      return `pause ${verdict.retryEveryMs}`;
    case 'halt':
      return verdict.retryEveryMs === undefined ? 'halt' : `halt again ${verdict.retryEveryMs}`;
    case 'quota':
      return `quota ${verdict.retryFromMs} to ${verdict.retryToMs}${verdict.atMidnight ? ', midnight' : ''}`;
    case 'back-off':
      return `back-off ${verdict.retryFromMs} to ${verdict.retryToMs}`;
  }
}

test.each(PAIRS)('codes: $code of operation $operation leads to $kind', ({ code, operation, kind }) => {
  expect(shown(operation, code)).toBe(kind);
});

test('codes: the table contains exactly the codes of the specification', () => {
  const { link: _link, ...operations } = CODES;
  const coded = Object.entries(operations).flatMap(([operation, entries]) =>
    Object.keys(entries).map((code) => `${operation} ${code}`),
  );
  const specified = PAIRS.map(({ code, operation }) => `${operation} ${code}`);
  expect(coded.toSorted()).toEqual(specified.toSorted());
});

test('codes: every code has a sentence, and every failure has advice', () => {
  for (const { code, operation } of PAIRS) {
    const { summary, advice } = meaningOf(operation, code);
    expect(summary).toMatch(/^[A-Z].*\.$/);
    if (code !== SUCCESS) expect(advice).toMatch(/^[A-Z].*\.$/);
  }
});

test.each(['12013', '0', '', '10002', 'toString', '__proto__', '12010'])(
  'codes: %j, unlisted for operation 8, is retried after 30 s, doubling to 10 minutes',
  (code) => {
    expect(shown(8, code)).toBe('back-off 30000 to 600000');
    expect(meaningOf(8, code).summary).toContain(`code ${code}`);
  },
);

test('codes: only 12008 of operation 1 limits the connections', () => {
  const limiting = PAIRS.filter(({ code, operation }) => meaningOf(operation, code).limitsConnections);
  expect(limiting.map(({ code, operation }) => `${operation} ${code}`)).toEqual(['1 12008']);
});

test('codes: one number has different meanings in different operations', () => {
  expect(meaningOf(1, '12010').summary).toMatch(/distinct IPs/);
  expect(meaningOf(2, '12010').summary).toMatch(/not authorised/);
  expect(meaningOf(6, '12007').summary).toMatch(/whitelist/);
  expect(meaningOf(4, '12007').summary).toMatch(/terminal IP/);
  expect(meaningOf(6, '12008').summary).toMatch(/restricted/);
  expect(meaningOf(5, '12008').summary).toMatch(/traffic/);
});

const ENTRY: DrawnEntry = { host: '192.0.2.1', port: 80 };
type Judged = Parameters<typeof judgeDraw>[1];
const answer = (changes: Partial<Judged>): Judged => ({
  ...{ code: SUCCESS, entries: [], dropped: {}, quota: {} },
  ...changes,
});

test('codes: a success with a usable entry is one, even when others were dropped', () => {
  const meaning = judgeDraw('short-classic', answer({ entries: [ENTRY], dropped: { port: 1 } }));
  expect(meaning.verdict).toEqual({ kind: 'ok' });
});

test('codes: a success with an empty list counts as 12009', () => {
  const meaning = judgeDraw('short-classic', answer({}));
  expect(meaning.verdict).toEqual({ kind: 'empty' });
  expect(meaning.summary).toBe(meaningOf(4, '12009').summary);
});

test('codes: a success whose entries were all dropped names the reasons', () => {
  const meaning = judgeDraw('free', answer({ dropped: { private: 3, port: 1 } }));
  expect(meaning.verdict).toEqual({ kind: 'empty' });
  expect(meaning.summary).toBe('noria dropped all proxies of the answer, by reason: private 3, port 1.');
  expect(meaning.advice).toContain('allowPrivateAddresses');
});

test('codes: the entries of an error do not matter', () => {
  const meaning = judgeDraw('free', answer({ code: '12012', entries: [ENTRY] }));
  expect(meaning).toEqual(meaningOf(7, '12012'));
});

test.each([
  ['调用频率过快，请至少10秒调用一次', 10_000],
  ['调用频率过快，请至少 1 秒调用一次', 1_000],
  ['too fast', undefined],
  ['', undefined],
])('codes: the text %j names the interval %s', (message, ms) => {
  expect(intervalNamedMs(message)).toBe(ms);
});
