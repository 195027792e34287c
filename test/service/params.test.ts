import { expect, test } from 'vitest';
import { OPERATIONS, PRODUCTS, type Product } from '../../src/service/operations.ts';
import { checkParams } from '../../src/service/params.ts';

const ADR = '广东,江苏';

/** Each parameter of the specification, with its first and last valid values and the invalid ones next to them. */
const EDGES: { product: Product; key: string; good: number[]; bad: number[] }[] = [
  { product: 'long-residential', key: 'fitter', good: [1, 2], bad: [0, 3] },
  { product: 'long-residential', key: 'timespan', good: [6, 29], bad: [5, 30] },
  { product: 'long-residential', key: 'tunnel', good: [1, 2, 3], bad: [0, 4] },
  { product: 'residential-socks5', key: 'fitter', good: [1, 2], bad: [0, 3] },
  { product: 'residential-socks5', key: 'timespan', good: [6, 29], bad: [5, 30] },
  { product: 'residential-socks5', key: 'tunnel', good: [1, 2, 3], bad: [0, 4] },
  { product: 'shared', key: 'pro', good: [1, 2], bad: [0, 3] },
  { product: 'shared', key: 'timespan', good: [0, 3, 10], bad: [-1, 11] },
  { product: 'shared', key: 'order', good: [1, 2], bad: [0, 3] },
  { product: 'short-socks5', key: 'timespan', good: [0, 5], bad: [-1, 6] },
  { product: 'short-classic', key: 'timespan', good: [0, 5], bad: [-1, 6] },
  { product: 'short-pure', key: 'dedup', good: [0, 1], bad: [-1, 2] },
  { product: 'short-pure', key: 'timespan', good: [1, 5], bad: [0, 6] },
  { product: 'free', key: 'dalu', good: [0, 1], bad: [2] },
  { product: 'free', key: 'protocol_type', good: [1, 4], bad: [0, 5] },
  { product: 'free', key: 'level_type', good: [1, 5], bad: [0, 6] },
  { product: 'free', key: 'lastcheck_type', good: [1, 5], bad: [0, 6] },
  { product: 'free', key: 'sleep_type', good: [1, 5], bad: [0, 6] },
  { product: 'free', key: 'alive_type', good: [1, 7], bad: [0, 8] },
  { product: 'free', key: 'count', good: [1, 100], bad: [0, 101] },
  { product: 'exclusive', key: 'pro', good: [1, 2], bad: [0, 3] },
  { product: 'exclusive', key: 'order', good: [1, 2], bad: [0, 3] },
];

test.each(EDGES)('params: $product accepts $good and rejects $bad as $key', ({ product, key, good, bad }) => {
  for (const value of good) {
    const { params, problems } = checkParams(product, { [key]: value });
    expect(problems).toEqual([]);
    expect(params[key]).toBe(value);
  }
  for (const value of [...bad, 1.5, 'much', true, [1]]) {
    const { params, problems } = checkParams(product, { [key]: value });
    expect(problems.map((problem) => problem.key)).toEqual([key]);
    expect(params[key]).toBeUndefined();
  }
});

test('params: every numeric parameter of every operation is in the table above', () => {
  const numbers = PRODUCTS.flatMap((product) =>
    Object.entries(OPERATIONS[product].params)
      .filter(([, { kind }]) => kind === 'whole' || kind === 'choice')
      .map(([key]) => `${product} ${key}`),
  );
  const tested = EDGES.map(({ product, key }) => `${product} ${key}`);
  expect(numbers.length).toBeGreaterThan(15);
  expect(numbers.filter((name) => !tested.includes(name))).toEqual([]);
});

test.each([
  ['long-residential', { fitter: 2, timespan: 6, tunnel: 1 }],
  ['shared', { pro: 1, order: 2 }],
  ['short-socks5', { timespan: 0 }],
  ['short-classic', { timespan: 0 }],
  ['residential-socks5', { fitter: 2, timespan: 6, tunnel: 1 }],
  ['short-pure', { dedup: 0, timespan: 1 }],
  ['free', { dalu: 1 }],
  ['exclusive', { pro: 1, order: 2 }],
] as const)('params: %s without parameters gets %o', (product, defaults) => {
  expect(checkParams(product, {})).toEqual({ params: defaults, problems: [] });
});

test('params: a list of keywords is joined with commas, a text is kept', () => {
  expect(checkParams('shared', { adr: ['广东', ' 江苏 '], nadr: '上海' }).params).toMatchObject({
    adr: ADR,
    nadr: '上海',
  });
  expect(checkParams('short-classic', { adr: ADR }).params['adr']).toBe(ADR);
});

test('params: numbers may be text, as from an environment variable', () => {
  expect(checkParams('short-classic', { timespan: '3', count: '5' })).toEqual({
    params: { timespan: 3, count: 5 },
    problems: [],
  });
});

test.each([
  ['adr', '广东，江苏', /ASCII commas/],
  ['adr', [], /neither a list of keywords/],
  ['adr', ['广东', ''], /neither a list of keywords/],
  ['adr', ['广东', 7], /neither a list of keywords/],
  ['adr', 7, /neither a list of keywords/],
  ['adr', 'a\u0000b', /printable/],
  ['adr', '\ud800', /printable/],
  ['adr', 'x'.repeat(501), /longer than 500/],
  ['isp', '', /is empty or not text/],
  ['isp', 4, /is empty or not text/],
])('params: %s is rejected with the value %o', (key, value, message) => {
  const { problems } = checkParams('free', { [key]: value });
  expect(problems).toEqual([{ key, message: expect.stringMatching(message) }]);
});

test('params: the problem of an unknown name suggests the nearest known one', () => {
  const { problems } = checkParams('long-residential', { filter: 1, timespam: 6, xyz: 1 });
  expect(problems.map(({ key, suggestion }) => [key, suggestion])).toEqual([
    ['filter', 'fitter'],
    ['timespam', 'timespan'],
    ['xyz', undefined],
  ]);
});

test.each(['api', 'inst_id', 'app_id', 'akey', 'type', 'return_type'])(
  'params: %s is rejected with the setting to use instead, without its value',
  (key) => {
    const { params, problems } = checkParams('short-classic', { [key]: 'hunter2hunter2' });
    expect(problems).toEqual([
      { key, message: expect.stringMatching(/^cannot be set here: it comes from /) },
    ]);
    expect(JSON.stringify([params, problems])).not.toContain('hunter2');
  },
);

test('params: a keyword in both adr and nadr is a problem', () => {
  const { problems } = checkParams('shared', { adr: '广东,江苏', nadr: ['江苏'] });
  expect(problems).toEqual([{ key: 'nadr', message: 'excludes what adr requests: 江苏' }]);
});

test('params: all problems are reported at once', () => {
  const { problems } = checkParams('short-pure', { dedup: 5, timespan: 9, count: 0, fitter: 1 });
  expect(problems.map(({ key }) => key).toSorted()).toEqual(['count', 'dedup', 'fitter', 'timespan']);
});

test('params: inherited properties are not parameters', () => {
  const { problems } = checkParams('short-classic', JSON.parse('{"__proto__": 1, "constructor": 2}'));
  expect(problems.map(({ key }) => key).toSorted()).toEqual(['__proto__', 'constructor']);
});
