import { expect, test, vi } from 'vitest';
import { escapeFormat } from '../../src/core/printable.ts';
import { MEMBER, SOURCE, STATUS } from './fake-backend.ts';

/** The page is plain JavaScript with its own tsconfig.page.json. Modules that need no document can be tested here. */
const load = (name: string) => import(new URL(`../../src/admin/page/${name}`, import.meta.url).href);
const { ago, counted, duration, milliseconds, printable, rate, sentence, size } = await load('format.js');
const { setAttribute, setText } = await load('dom.js');
const { describe } = await load('headline.js');
const { countMembers, proxyUrl, successText } = await load('connect.js');
const { foldFailures, groupByCause } = await load('failures.js');
const { membersByTrouble, membersInView } = await load('member.js');
const { queryOf, storyOf } = await load('requests.js');
const { sourcesByTrouble, usableText } = await load('sources.js');
const { WheelSlots } = await load('wheel-slots.js');
const { bucketPath, INNER, layOutSectors, OUTER } = await load('wheel-geometry.js');

interface Cause {
  readonly failure: { readonly code: string };
  readonly times: number;
  readonly places: readonly string[];
}

interface Bucket {
  readonly from: number;
  readonly to: number;
  readonly inner: number;
  readonly outer: number;
}

const FORMATTED: readonly (readonly [formatted: string, wanted: string])[] = [
  [duration(0), '0 s'],
  [duration(59.4), '59 s'],
  [duration(59.6), '1 min'],
  [duration(125), '2 min 5 s'],
  [duration(3_600), '1 h'],
  [duration(11_520), '3 h 12 min'],
  [duration(90_000), '1 d 1 h'],
  [duration(-3), '0 s'],
  [size(0), '0 B'],
  [size(999), '999 B'],
  [size(1_024), '1 KiB'],
  [size(1.5 * 1_048_576), '1.5 MiB'],
  [rate(0.2), '0.2'],
  [rate(9.64), '9.6'],
  [rate(12.34), '12.3'],
  [rate(1_234.5), '1,235'],
  [milliseconds(31.4), '31 ms'],
  [milliseconds(1_250), '1.3 s'],
  [counted(1, ['member', 'members']), '1 member'],
  [counted(2_000, ['member', 'members']), '2,000 members'],
  [sentence('稍后重试'), '稍后重试。'],
  [ago('2030-01-01T00:00:00Z', Date.UTC(2030, 0, 1, 0, 0, 1)), 'just now'],
  [ago('2030-01-01T00:00:00Z', Date.UTC(2030, 0, 1, 0, 4, 59)), '4 min ago'],
  [ago('2030-01-01T00:00:00Z', Date.UTC(2030, 0, 3)), '2 d ago'],
  [sentence('no client has come for 5 min'), 'No client has come for 5 min.'],
  [sentence('Check it.'), 'Check it.'],
  [sentence(''), ''],
];

const DECEPTIVE = 'a\u202eb\u2066c\u200bd\u2028e\u{e0041}f\u009b中 é';
const ESCAPED = 'a\\u202eb\\u2066c\\u200bd\\u2028e\\udb40\\udc41f\\u009b中 é';

test('page: escapes the same characters as the log', () => {
  expect(printable(DECEPTIVE)).toBe(ESCAPED);
  for (let code = 0x20; code <= 0x10_ff_ff; code += 1) {
    const character = String.fromCodePoint(code);
    if (printable(character) !== escapeFormat(character)) throw new Error(`U+${code.toString(16)} differs`);
  }
});

test('page: texts and labels contain no character that reorders or hides others', () => {
  const element = { textContent: '', setAttribute: vi.fn(), getAttribute: () => null };
  setText(element, DECEPTIVE);
  setAttribute(element, 'aria-label', DECEPTIVE);
  expect([element.textContent, element.setAttribute.mock.calls]).toEqual([
    ESCAPED,
    [['aria-label', ESCAPED]],
  ]);
});

test('page: formats numbers, sizes and times', () => {
  for (const [formatted, wanted] of FORMATTED) expect(formatted).toBe(wanted);
});

const HALTED_CITY = {
  kind: 'halted',
  source: 'city',
  reason: '12001: The key is wrong',
  advice: 'Check the password.',
  nextAttemptSeconds: null,
} as const;

const SHUTTING_DOWN = {
  kind: 'shutting-down',
  source: null,
  reason: 'noria is shutting down',
  advice: null,
  nextAttemptSeconds: null,
} as const;

test.each([
  [{}, 'noria works: 20 members are usable.', '', 'noria: 20 usable'],
  [
    { state: 'degraded', problems: [HALTED_CITY] },
    'noria works, but has problems: 20 members are usable.',
    '',
    '! noria: 20 usable',
  ],
  [
    { state: 'starting', reason: 'the first draw is under way' },
    'noria is starting: the first draw is under way.',
    '',
    '… noria: 20 usable',
  ],
  [{ state: 'idle', reason: 'no clients' }, 'noria is ready and idle: no clients.', '', 'noria: 20 usable'],
  [
    { state: 'not-serving', ready: false, sinceSeconds: 75, nextAttemptSeconds: 4 },
    'noria cannot serve clients.',
    'noria has been in this state for 1 min 15 s. noria tries again in 4 s.',
    '✕ noria: not serving',
  ],
  [
    { state: 'not-serving', ready: false, sinceSeconds: 75, problems: [SHUTTING_DOWN] },
    'noria cannot serve clients.',
    'noria has been in this state for 1 min 15 s.',
    '✕ noria: not serving',
  ],
] as const)('page: the headline of %j', (more, headline, detail, title) => {
  expect(describe({ ...STATUS, ...more })).toMatchObject({ headline, detail, title });
});

test('page: the same problem of several sources is shown once', () => {
  const problems = [
    HALTED_CITY,
    { ...HALTED_CITY, source: 'town' },
    { ...HALTED_CITY, source: null, reason: 'x' },
  ];
  const { problems: shown } = describe({ ...STATUS, problems });
  expect(shown).toEqual([
    { sources: ['city', 'town'], reason: HALTED_CITY.reason, advice: null },
    { sources: [], reason: 'x', advice: 'Check the password.' },
  ]);
});

test('page: counts usable, wanted and extra members by source', () => {
  const sources = [
    { ready: 23, size: 20 },
    { ready: 5, size: 10 },
  ];
  expect(countMembers(sources)).toEqual({ ready: 28, wanted: 30, extra: 3 });
  expect(usableText({ ...SOURCE, ready: 23, size: 20 })).toBe('23, 20 wanted, 3 extra');
  expect(usableText({ ...SOURCE, ready: 5, size: 10 })).toBe('5 of 10 wanted');
});

test('page: the proxy URL is one that the browser can use', () => {
  const listener = (address: string, protocols = ['http']) => ({
    name: '',
    address,
    protocols,
    connections: 0,
  });
  expect(proxyUrl([listener('127.0.0.1:1080', ['socks5']), listener('127.0.0.1:8888')], 'h')).toBe(
    'http://127.0.0.1:8888',
  );
  expect(proxyUrl([listener('0.0.0.0:8888, [::]:8888')], 'box.example')).toBe('http://box.example:8888');
  expect(proxyUrl([listener('[::]:8888')], 'box.example')).toBe('http://box.example:8888');
  expect(proxyUrl([listener('')], 'h')).toBeUndefined();
});

test('page: one failure is never shown as 100 %', () => {
  expect(successText(99_999, 1)).toBe('99.9 %');
  expect(successText(5, 0)).toBe('100 %');
  expect(successText(0, 0)).toBe('–');
});

test('page: failures of one cause are one entry with their sum', () => {
  const failure = {
    kind: 'request',
    code: 'target-unreachable',
    side: 'target',
    says: '',
    advice: '',
    firstAt: '',
    lastAt: '',
  } as const;
  const grouped = groupByCause([
    { ...failure, times: 2, target: 'a:443' },
    { ...failure, times: 5, target: 'b:443' },
    { ...failure, code: 'deadline', times: 1, target: 'c:443' },
  ]);
  expect(grouped.map(({ failure: { code }, times, places }: Cause) => [code, times, places])).toEqual([
    ['target-unreachable', 7, ['b:443 (5)', 'a:443 (2)']],
    ['deadline', 1, []],
  ]);
});

test('page: failures that repeat the state of a source are folded into its card', () => {
  const source = { ...SOURCE, state: 'halted', code: '12001', advice: 'Check the password.' } as const;
  const failure = {
    side: 'source',
    says: '',
    advice: '',
    firstAt: '',
    lastAt: '2030-01-01T00:00:00Z',
  } as const;
  const own = { ...failure, kind: 'source', source: 'city', code: '12001', times: 3 } as const;
  const earlier = { ...own, code: '12009', times: 2 };
  const empty = { ...failure, kind: 'request', code: 'pool-empty', times: 7 } as const;
  const folded = foldFailures([own, earlier, empty], [source]);
  expect(folded.others).toEqual([earlier]);
  expect(Object.fromEntries(folded.repeated)).toEqual({
    city: { draws: 3, requests: 7, lastAt: failure.lastAt },
  });
  const working = { ...SOURCE, name: 'town' };
  expect(foldFailures([own, empty], [source, working]).others).toEqual([empty]);
  expect(foldFailures([own], [{ ...source, advice: null }]).others).toEqual([own]);
});

test('page: the table of members has a filter and an order', () => {
  const members = [
    { ...MEMBER, id: 'a', uses: 9, location: 'Shanghai' },
    { ...MEMBER, id: 'b', uses: 30, location: 'Beijing' },
    { ...MEMBER, id: 'c', uses: 4, location: 'Shanghai', state: 'draining' as const },
  ];
  const ids = (view: object) => membersInView(members, view).map(({ id }: typeof MEMBER) => id);
  expect(ids({ filter: ' shanghai' })).toEqual(['a', 'c']);
  expect(ids({ filter: 'shanghai drain' })).toEqual(['c']);
  expect(ids({ filter: '', column: 'uses' })).toEqual(['c', 'a', 'b']);
  expect(ids({ filter: '', column: 'uses', descending: true })).toEqual(['b', 'a', 'c']);
  expect(ids({ filter: '203.0.113.7:8000' })).toHaveLength(3);
});

test('page: the filter of requests becomes a query, and a request tells its story', () => {
  const query = new URLSearchParams(queryOf('shop.example user:ann since:10m', true));
  expect(Object.fromEntries(query)).toEqual({
    limit: '100',
    target: 'shop.example',
    user: 'ann',
    since: '10m',
    failed: '1',
  });
  const request = {
    ...{ id: 'a-1', protocol: 'connect', client: '203.0.113.9', code: null, firstByteMs: 400, ms: 2_500 },
    attempts: [
      { member: 'm12', source: 'city', exit: '203.0.113.7', ms: 212, code: 'member-refused' },
      { member: 'm7', source: 'city', exit: null, ms: 80, code: null },
    ],
  };
  expect(storyOf(request)).toEqual([
    'member m12 203.0.113.7 of city: member-refused after 212 ms',
    'member m7 of city: accepted after 80 ms',
    'ended after 2.5 s, first byte after 400 ms',
    'a-1 · connect · 203.0.113.9',
  ]);
});

test('page: members and sources with trouble come first', () => {
  const members = [
    { ...MEMBER, id: 'late', remainingSeconds: 90 },
    { ...MEMBER, id: 'soon', remainingSeconds: 5 },
    { ...MEMBER, id: 'faulty', faults: 1 },
    { ...MEMBER, id: 'quarantined', state: 'quarantined' as const },
  ];
  expect(membersByTrouble(members).map(({ id }: typeof MEMBER) => id)).toEqual([
    'quarantined',
    'faulty',
    'soon',
    'late',
  ]);
  const sources = (['ready', 'paused', 'halted', 'idle'] as const).map((state) => ({ ...SOURCE, state }));
  expect(sourcesByTrouble(sources).map(({ state }: typeof SOURCE) => state)).toEqual([
    'halted',
    'paused',
    'ready',
    'idle',
  ]);
});

test('page: buckets are inside the rims of the wheel and do not overlap', () => {
  for (const counts of [[1], [20], [10, 10, 12], [97], [400, 200], [1_200], [5, 1_000, 0, 3]]) {
    const sectors = layOutSectors(counts.map((count, at) => ({ source: `s${at}`, count })));
    const buckets: Bucket[] = sectors.flatMap((sector: { buckets: Bucket[] }) => sector.buckets);
    expect(buckets).toHaveLength(counts.reduce((sum, count) => sum + count, 0));
    for (const { inner, outer } of buckets) {
      expect(inner).toBeGreaterThanOrEqual(INNER);
      expect(outer).toBeLessThanOrEqual(OUTER + 1e-9);
      expect(outer).toBeGreaterThan(inner);
    }
    const rows = Map.groupBy(buckets, ({ inner }) => inner);
    for (const row of rows.values()) {
      const inOrder = row.toSorted((one, other) => one.from - other.from);
      for (const [at, bucket] of inOrder.entries()) {
        expect(bucket.to).toBeGreaterThan(bucket.from);
        expect(bucket.to).toBeLessThanOrEqual(inOrder[at + 1]?.from ?? 2 * Math.PI);
      }
    }
  }
});

test('page: a bucket is filled in proportion to its level', () => {
  const [{ buckets }] = layOutSectors([{ source: 'city', count: 4 }]);
  const radii = (level: number) =>
    [...bucketPath(buckets[0], level).matchAll(/A(\S+)/g)].map(([, radius]) => Number(radius));
  expect(radii(1)).toEqual([OUTER, INNER]);
  expect(radii(0.5)).toEqual([(OUTER + INNER) / 2, INNER]);
  expect(radii(0)).toEqual([INNER, INNER]);
});

test('page: without sources the wheel has no sectors', () => {
  expect(layOutSectors([])).toEqual([]);
  expect(layOutSectors([{ source: 'city', count: 0 }])).toEqual([]);
});

test('page: members keep their slots, new ones take empty slots, and extra empty slots are removed', () => {
  const slots = new WheelSlots();
  const members = (...ids: string[]) => ids.map((id) => ({ id, remainingSeconds: 60 }));
  expect(slots.assign('city', 3, members('a', 'b'))).toEqual(['a', 'b', '']);
  expect(slots.assign('city', 3, members('b', 'c'))).toEqual(['c', 'b', '']);
  expect(slots.assign('city', 3, members('b', 'c', 'd', 'e'))).toEqual(['c', 'b', 'd', 'e']);
  expect(slots.assign('city', 3, members('b', 'e'))).toEqual(['', 'b', '', 'e']);
  expect(slots.assign('city', 3, members('b'))).toEqual(['', 'b', '']);
  expect(slots.assign('city', 0, members())).toEqual([]);
});

test('page: the level is relative to the longest lifetime of the source, and never below the minimum', () => {
  const slots = new WheelSlots();
  slots.assign('city', 2, [
    { id: 'a', remainingSeconds: 180 },
    { id: 'b', remainingSeconds: null },
  ]);
  slots.assign('town', 1, [{ id: 'c', remainingSeconds: 3 }]);
  expect(slots.levelOf('city', 180)).toBe(1);
  expect(slots.levelOf('city', 90)).toBe(0.5);
  expect(slots.levelOf('town', 3)).toBe(0.1);
  expect(slots.levelOf('city', 0)).toBeGreaterThan(0);
});
