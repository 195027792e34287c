import { expect, test } from 'vitest';
import { Health, type HealthVerdict } from '../../src/pool/health.ts';

const HALF_LIFE_MS = 100_000;

type Step =
  | 'fault'
  | 'half'
  | 'accepted'
  | 'completed'
  /** Half-lives that pass. */
  | number;

/** Steps and their verdicts, with `maxFailures` 3; `-` for a step without a verdict. */
const REPLAYS: readonly {
  title: string;
  steps: readonly Step[];
  verdicts: readonly (HealthVerdict | '-')[];
}[] = [
  {
    title: 'the third fault in a row evicts',
    steps: ['fault', 'fault', 'fault'],
    verdicts: ['quarantine', 'quarantine', 'evict'],
  },
  {
    title: 'a success clears whole faults',
    steps: ['fault', 'fault', 'accepted', 'fault', 'fault', 'fault'],
    verdicts: ['quarantine', 'quarantine', '-', 'quarantine', 'quarantine', 'evict'],
  },
  {
    title: 'two half faults count as one, and six evict',
    steps: ['half', 'half', 'half', 'half', 'half', 'half'],
    verdicts: ['none', 'quarantine', 'none', 'quarantine', 'none', 'evict'],
  },
  {
    title: 'an accepted attempt does not clear half faults',
    steps: ['accepted', 'half', 'accepted', 'half', 'accepted', 'half', 'accepted', 'half', 'half', 'half'],
    verdicts: ['-', 'none', '-', 'quarantine', '-', 'none', '-', 'quarantine', 'none', 'evict'],
  },
  {
    title: 'a tunnel that ended well clears half faults',
    steps: ['half', 'completed', 'half', 'completed', 'half'],
    verdicts: ['none', '-', 'none', '-', 'none'],
  },
  {
    title: 'half and whole faults add up',
    steps: ['fault', 'half', 'fault', 'half'],
    verdicts: ['quarantine', 'none', 'quarantine', 'evict'],
  },
  {
    title: 'after two half-lives, three faults count less than one',
    steps: ['fault', 'fault', 2, 'fault', 'fault', 'fault'],
    verdicts: ['quarantine', 'quarantine', '-', 'quarantine', 'quarantine', 'evict'],
  },
  {
    title: 'within a half-life faults do not fade',
    steps: ['fault', 'fault', 0.99, 'fault'],
    verdicts: ['quarantine', 'quarantine', '-', 'evict'],
  },
];

test.each(REPLAYS)('health: $title', ({ steps, verdicts }) => {
  const health = new Health();
  let now = 0;
  const results = steps.map((step): HealthVerdict | '-' => {
    if (typeof step === 'number') now += step * HALF_LIFE_MS;
    else if (step === 'accepted') health.accepted();
    else if (step === 'completed') health.completed();
    else return health.fault(step === 'half', now, HALF_LIFE_MS, { maxFailures: 3, quarantineMs: 10 });
    return '-';
  });
  expect(results).toEqual(verdicts);
});

test('health: each quarantine in a row is twice as long, until a success', () => {
  const health = new Health();
  const options = { maxFailures: 10, quarantineMs: 10_000 };
  const next = () => {
    health.fault(false, 0, HALF_LIFE_MS, options);
    return health.nextQuarantineMs(options);
  };
  expect([next(), next(), next()]).toEqual([10_000, 20_000, 40_000]);
  health.accepted();
  expect(next()).toBe(10_000);
});

test('health: a record keeps the whole history', () => {
  const before = new Health();
  const options = { maxFailures: 3, quarantineMs: 10_000 };
  before.fault(false, 5, HALF_LIFE_MS, options);
  before.nextQuarantineMs(options);
  const after = new Health();
  after.inherit(before.record(), 1_000);
  expect(after.score).toBe(1);
  expect(after.nextQuarantineMs(options)).toBe(20_000);
  expect(after.fault(false, 2_000, HALF_LIFE_MS, options)).toBe('quarantine');
  expect(after.fault(false, 3_000, HALF_LIFE_MS, options)).toBe('evict');
});
