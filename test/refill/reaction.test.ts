import { expect, test } from 'vitest';
import { MINUTE_MS } from '../../src/core/duration.ts';
import { FAULTS, type FaultCode, NoriaError } from '../../src/core/faults.ts';
import {
  isLossOfStore,
  outcomeOfAnswer,
  outcomeOfError,
  type Reaction,
  reactTo,
  reportOf,
  type Suspension,
} from '../../src/refill/reaction.ts';
import type { DrawAnswer } from '../../src/service/answer.ts';
import { CODES } from '../../src/service/codes.ts';
import { OPERATIONS, PRODUCTS, type Product } from '../../src/service/operations.ts';

const NOON_AT = Date.UTC(2030, 0, 1, 4); // noon of the service's day, UTC+8
const steady = () => 0.5;

function answer(code: string, changes: Partial<DrawAnswer> = {}): DrawAnswer {
  const entries = code === '10001' ? [{ host: '203.0.113.1', port: 8_000 }] : [];
  return { code, message: '', entries, dropped: {}, quota: {}, sentAt: 0, ...changes };
}

/** The monotonic time is 0, so that a suspension ends at its length. */
const call = (consecutive: number, wallAt = NOON_AT, random = steady) => ({
  ...{ source: 'city', consecutive, random },
  clock: { now: () => wallAt, monotonic: () => 0 },
});
const react = (product: Product, given: DrawAnswer, consecutive = 1, wallAt = NOON_AT): Reaction =>
  reactTo(outcomeOfAnswer(product, given), call(consecutive, wallAt));
const reactToFault = (code: FaultCode, consecutive = 1) =>
  reactTo(outcomeOfError(new NoriaError(code, 'what happened')), call(consecutive));

const EVERY = PRODUCTS.flatMap((product) =>
  Object.keys(CODES[OPERATIONS[product].number]).map((code) => [product, code] as const),
);

test('reaction: every code of every operation has one, and no suspension is shorter than 30 s', () => {
  expect(EVERY.length).toBeGreaterThan(60);
  for (const [product, code] of [...EVERY, ['free', '99999'] as const]) {
    const outcome = outcomeOfAnswer(product, answer(code));
    const { suspension } = react(product, answer(code));
    expect(outcome.summary, `${product} ${code}`).toMatch(/\.$/);
    if (suspension !== undefined)
      expect(suspension.untilAt, `${product} ${code}`).toBeGreaterThanOrEqual(30_000);
    if (outcome.concernsInstance && suspension !== undefined)
      expect(suspension.untilAt, `${product} ${code}, which JSON has to represent`).toBeLessThan(Infinity);
  }
});

test.each<[Product, string, Pick<Reaction, 'settlement'> & { suspension?: Partial<Suspension> }]>([
  ['short-classic', '10001', { settlement: { kind: 'done' } }],
  ['short-classic', '12009', { settlement: { kind: 'done' } }],
  ['short-classic', '12002', { settlement: { kind: 'refused', minMs: undefined } }],
  [
    'short-classic',
    '12001',
    { settlement: { kind: 'done' }, suspension: { name: 'halted', untilAt: Infinity, urgentAt: Infinity } },
  ],
  [
    'short-classic',
    '12003',
    { settlement: { kind: 'done' }, suspension: { name: 'halted', untilAt: Infinity, urgentAt: Infinity } },
  ],
  [
    'short-classic',
    '12004',
    {
      settlement: { kind: 'done' },
      suspension: { name: 'halted', untilAt: 30 * MINUTE_MS, urgentAt: 30 * MINUTE_MS },
    },
  ],
  [
    'short-classic',
    '12007',
    { settlement: { kind: 'done' }, suspension: { name: 'paused', untilAt: MINUTE_MS, urgentAt: MINUTE_MS } },
  ],
  [
    'short-classic',
    '12008',
    {
      settlement: { kind: 'done' },
      suspension: { name: 'paused', untilAt: 5 * MINUTE_MS, urgentAt: 5 * MINUTE_MS },
    },
  ],
  [
    'free',
    '12012',
    {
      settlement: { kind: 'silence', ms: 2 * MINUTE_MS },
      suspension: { name: 'paused', untilAt: 2 * MINUTE_MS, urgentAt: 2 * MINUTE_MS },
    },
  ],
])('reaction: %s %s leads to %j', (product, code, expected) => {
  const { suspension, ...reaction } = react(product, answer(code));
  const { name, untilAt, urgentAt } = suspension ?? {};
  const told = suspension === undefined ? reaction : { ...reaction, suspension: { name, untilAt, urgentAt } };
  expect(told).toEqual(expected);
});

test('reaction: retries of a used-up quota back off, and happen just after midnight', () => {
  const waits = [1, 2, 3, 4, 5].map(
    (consecutive) => react('shared', answer('12008'), consecutive).suspension?.untilAt,
  );
  expect(waits).toEqual([5, 10, 20, 30, 30].map((minutes) => minutes * MINUTE_MS));
  const beforeMidnight = Date.UTC(2030, 0, 1, 15, 50);
  expect(react('long-residential', answer('12010'), 1, beforeMidnight).suspension?.untilAt).toBe(
    10 * MINUTE_MS + 5_000,
  );
  expect(react('long-residential', answer('12010')).suspension?.untilAt).toBe(30 * MINUTE_MS);
  // On the other operations 12010 is not about a quota.
  expect(react('shared', answer('12010')).suspension?.untilAt).toBe(MINUTE_MS);
});

test('reaction: 12002 waits at least for the interval that the service names', () => {
  const named = answer('12002', { message: '请求间隔至少30秒' });
  expect(react('short-classic', named).settlement).toEqual({ kind: 'refused', minMs: 30_000 });
});

test('reaction: only a halt tells how to resume, and only what concerns the instance ends with any draw', () => {
  const suspended = (code: string) => react('short-classic', answer(code)).suspension;
  expect(suspended('12001')?.advice).toContain('noria resume city');
  expect(suspended('12007')?.advice).not.toContain('noria resume');
  expect(['12001', '12005', '12006'].map((code) => suspended(code)?.endsWithAnyDraw)).toEqual([
    false,
    true,
    true,
  ]);
});

test('reaction: an empty text of the service is none, and two faults are a loss of the store', () => {
  expect(outcomeOfAnswer('short-classic', answer('12001')).message).toBeUndefined();
  const codes = ['fleet-store-lost', 'fleet-store-unusable', 'state-unwritable', undefined];
  expect(codes.map(isLossOfStore)).toEqual([true, true, false, false]);
});

test('reaction: the draw that empties the quota suspends the source', () => {
  const last = answer('10001', { quota: { remaining: 0 } });
  expect(react('short-pure', last).suspension).toMatchObject({ name: 'paused', untilAt: 30 * MINUTE_MS });
  expect(outcomeOfAnswer('short-pure', last).code).toBe('10001');
});

test('reaction: without an answer the backoff doubles up to ten minutes, one minute while clients wait', () => {
  const suspensions = Array.from(
    { length: 12 },
    (_, index) => reactToFault('service-transport', index + 1).suspension,
  );
  expect(suspensions.slice(0, 4).map((suspension) => suspension?.untilAt)).toEqual([
    5_000, 10_000, 20_000, 40_000,
  ]);
  expect(suspensions.at(-1)).toMatchObject({ name: 'backoff', untilAt: 10 * MINUTE_MS, urgentAt: MINUTE_MS });
});

test('reaction: a block causes silence from two minutes up to half an hour, also while clients wait', () => {
  const reactions = [1, 2, 5, 20].map((consecutive) => reactToFault('service-blocked', consecutive));
  expect(reactions.map(({ suspension }) => suspension?.untilAt)).toEqual(
    [2, 4, 30, 30].map((minutes) => minutes * MINUTE_MS),
  );
  for (const { suspension, settlement } of reactions) {
    expect(suspension?.urgentAt).toBe(suspension?.untilAt);
    expect(settlement).toEqual({ kind: 'silence', ms: suspension?.untilAt });
  }
});

test('reaction: an answer that noria cannot read is retried after half a minute', () => {
  for (const code of ['service-protocol', 'link-unreadable', 'service-not-found'] as const)
    expect(reactToFault(code).suspension, code).toMatchObject({ name: 'backoff', untilAt: 30_000 });
});

test('reaction: the failure of a front proxy is told in its own words', () => {
  const outcome = outcomeOfError(new NoriaError('front-proxy-failed', 'front.test refused the login'));
  expect(outcome).toMatchObject({ summary: 'Front.test refused the login.', message: undefined });
});

test('reaction: a report tells what concerns the instance, and a success; not a failure of one noria', () => {
  const report = (product: Product, given: DrawAnswer, quota = {}) => {
    const outcome = outcomeOfAnswer(product, given);
    return reportOf(outcome, reactTo(outcome, call(1)).suspension, quota);
  };
  for (const code of ['10001', '12009', '12002'])
    expect(report('short-classic', answer(code), { remaining: 9 }), code).toEqual({
      quota: { remaining: 9 },
    });
  for (const code of ['12001', '12007', '12003'])
    expect(report('short-classic', answer(code)), code).toBeUndefined();
  const down = outcomeOfError(new NoriaError('service-transport', 'no answer'));
  expect(reportOf(down, reactTo(down, call(1)).suspension, {})).toBeUndefined();
  expect(report('short-classic', answer('12006'))?.suspension).toMatchObject({
    ...{ phase: 'halted', code: '12006', limitsConnections: false },
  });
  expect(report('long-residential', answer('12008'))?.suspension).toMatchObject({
    ...{ phase: 'paused', untilAt: 5 * MINUTE_MS, limitsConnections: true },
  });
});

test('reaction: an unusable address halts, and a defect of the program is rethrown', () => {
  expect(reactToFault('bad-config').suspension).toMatchObject({ name: 'halted', untilAt: Infinity });
  expect(() => outcomeOfError(new RangeError('a mistake'))).toThrow('a mistake');
});

test('reaction: the backoff has a jitter of a tenth within its bounds', () => {
  const outcome = outcomeOfError(new NoriaError('service-transport', ''));
  const ms = (random: number) =>
    reactTo(
      outcome,
      call(3, NOON_AT, () => random),
    ).suspension?.untilAt ?? 0;
  expect([ms(0), ms(0.5), ms(0.999)].map(Math.round)).toEqual([18_000, 20_000, 21_996]);
  expect(
    reactTo(
      outcome,
      call(1, NOON_AT, () => 0),
    ).suspension?.untilAt,
  ).toBe(5_000);
});

test('reaction: the summary and advice contain no text of the service', () => {
  const outcome = outcomeOfAnswer('short-classic', answer('12001', { message: 'akey错误' }));
  expect(outcome.message).toBe('akey错误');
  expect(outcome.summary + outcome.advice).not.toContain('akey错误');
  const transport = outcomeOfError(new NoriaError('service-protocol', 'cannot read "<html>…"'));
  expect(transport).toMatchObject({ code: 'transport', summary: FAULTS['service-protocol'].summary });
  expect(transport.message).toContain('<html>');
});
