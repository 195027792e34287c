/** The figures of a simulation as text, and the advice that follows from them. */
import { expect, test } from 'vitest';
import { formatAdvice } from '../../../src/refill/simulation/advice.ts';
import {
  formatReport,
  money,
  type SimulationReport,
  summarize,
} from '../../../src/refill/simulation/report.ts';

const REPORT: SimulationReport = {
  ...{ days: 2, seed: 7, calls: { 10001: 30, 12002: 1 }, drawn: 100, used: 80, wasted: 20 },
  clients: { served: 995, noMember: 3, membersFailed: 2 },
  waits: { count: 5, medianMs: 1_234, p95Ms: 20_000, longestMs: 123_456 },
  ...{ delay: { p50Ms: 149, p99Ms: 2_950 }, costPerDay: 12.345, longestEmptyMs: 61_000 },
};

test('simulation report: it has all figures, rounded to what can be read', () => {
  const rows = [
    ['simulated', '2 days, seed 7'],
    ['calls', '31 (16 a day): 10001 30, 12002 1'],
    ['members drawn', '100 (50 a day)'],
    ['  used', '80 (80 %)'],
    ['  wasted', '20 (20 %): never used'],
    ['client requests', '1000, 10 per drawn member'],
    ['  served', '995 (99.5 %)'],
    ['  no member in time', '3'],
    ['  members failed', '2'],
    ['  until a member accepted', 'p50 0.1 s, p99 3 s'],
    ['cost', '12.35 a day'],
    ['requests that waited', '5 (0.5 %); p50 1.2 s, p95 20 s, longest 123 s'],
    ['longest time without a member', '61 s'],
  ];
  expect(formatReport(REPORT).split('\n')).toEqual(rows.map(([name = '', text]) => name.padEnd(31) + text));
});

test('simulation report: nothing drawn, nobody served, nobody waited and no price', () => {
  const none = { served: 0, noMember: 0, membersFailed: 0 };
  const lines = formatReport({
    ...REPORT,
    ...{
      days: 1,
      calls: {},
      drawn: 0,
      used: 0,
      wasted: 0,
      clients: none,
      costPerDay: null,
      longestEmptyMs: 0,
    },
    waits: { count: 0, medianMs: 0, p95Ms: 0, longestMs: 0 },
  }).split('\n');
  expect(lines.map((line) => line.slice(31))).toEqual([
    ...['1 day, seed 7', '0 (0 a day): none', '0 (0 a day)', '0 (0 %)', '0 (0 %): never used'],
    ...['0, no member drawn', '0 (0 %)', '0', '0', 'p50 0.1 s, p99 3 s', 'none', 'none'],
  ]);
});

test('simulation report: an amount of money has cents below 100', () => {
  expect([0, 1.005, 99.99, 100, 1_234.5].map(money)).toEqual(['0.00', '1.00', '99.99', '100', '1235']);
});

/** As far as a summary reads them. */
function clientsWith(
  delays: readonly number[],
  waits: readonly number[],
  longestEmptyMs: number,
  ended: object,
) {
  return { delays, waits, longestEmptyMs, endings: { served: 0, noMember: 0, membersFailed: 0, ...ended } };
}

const summaryOf = (clients: readonly object[], prices?: ReadonlyMap<string, number>) => {
  const facts = {
    ...{ days: 2, seed: 7, prices, clients, drawnBy: new Map(Object.entries({ city: 10, town: 4 })) },
    service: { calls: new Map([['10001', 3]]), drawn: 14, used: 9, wasted: 5 },
  };
  return summarize(facts as unknown as Parameters<typeof summarize>[0]);
};

test('simulation report: the figures of all replicas are put together', () => {
  const upTo = (count: number) => Array.from({ length: count }, (_, at) => count - at);
  const summary = summaryOf([
    clientsWith(upTo(60), [9, 1, 5], 70, { served: 3, noMember: 1 }),
    clientsWith(upTo(100).slice(0, 40), [3], 30, { served: 4, membersFailed: 2 }),
  ]);
  expect(summary).toEqual({
    ...{ days: 2, seed: 7, calls: { 10001: 3 }, drawn: 14, used: 9, wasted: 5 },
    clients: { served: 7, noMember: 1, membersFailed: 2 },
    waits: { count: 4, medianMs: 5, p95Ms: 9, longestMs: 9 },
    delay: { p50Ms: 51, p99Ms: 100 },
    ...{ costPerDay: null, longestEmptyMs: 70 },
  });
  expect(summaryOf([clientsWith([], [], 0, {})])).toMatchObject({
    ...{ delay: { p50Ms: 0, p99Ms: 0 }, waits: { count: 0, medianMs: 0, longestMs: 0 } },
  });
});

test('simulation report: the cost is that of the sources with a price', () => {
  const clients = [clientsWith([], [], 0, {})];
  expect(summaryOf(clients, new Map([['city', 0.5]])).costPerDay).toBe(2.5);
  expect(
    summaryOf(
      clients,
      new Map([
        ['city', 0.5],
        ['town', 1],
      ]),
    ).costPerDay,
  ).toBe(4.5);
  expect(summaryOf(clients, new Map()).costPerDay).toBeNull();
});

type Choice = Parameters<typeof formatAdvice>[0]['now'];

const choice = (changes: Partial<Choice> = {}): Choice => ({
  ...{
    fill: 'demand',
    size: 5,
    count: 5,
    timespan: null,
    drawnPerDay: 100.4,
    costPerDay: null,
    p99Ms: 1_449,
  },
  ...{ failedShare: 0, ...changes },
});

test.each([
  [[], 'no settings of those tried serve this load as well'],
  [[choice({ drawnPerDay: 95 })], 'these settings serve the load at the least cost'],
  [[choice({ drawnPerDay: 95.4 })], 'the configured settings are about as cheap as any'],
])('simulation advice: what it says depends on the cheapest settings (%#)', (best, head) => {
  const [first, ...rows] = formatAdvice({ now: choice(), best }).split('\n');
  expect(first).toBe(`advice: ${head}`);
  expect(rows).toHaveLength(best.length + 1);
  expect(rows.at(-1)).toBe('  now fill: demand, size: 5, count: 5: 100 IPs a day, p99 1.4 s');
});

test('simulation advice: settings have their cost, their timespan and their failures, and a price decides', () => {
  const now = choice({ costPerDay: 10, drawnPerDay: 1 });
  const best = choice({
    ...{ fill: 'size', timespan: 3, costPerDay: 9, drawnPerDay: 1_000, failedShare: 0.0015 },
  });
  expect(formatAdvice({ now, best: [best] }).split('\n')).toEqual([
    'advice: these settings serve the load at the least cost',
    '      fill: size, size: 5, count: 5, timespan: 3: 1000 IPs a day, cost 9.00, p99 1.4 s, 0.1 % failed',
    '  now fill: demand, size: 5, count: 5: 1 IP a day, cost 10.00, p99 1.4 s',
  ]);
});
