import { expect, test } from 'vitest';
import { Health, type HealthVerdict } from '../../src/pool/health.ts';

const HALF_LIFE_MS = 100_000;

type Step =
  | 'fault'
  | 'half'
  | 'accepted'
  | 'completed'
  /** So many half-lives pass. */
  | number;

/** What a member's faults lead to, with three allowed in a row: `-` where nothing was to be decided. */
const REPLAYS: readonly {
  says: string;
  steps: readonly Step[];
  verdicts: readonly (HealthVerdict | '-')[];
}[] = [
  {
    says: 'the third in a row evicts',
    steps: ['fault', 'fault', 'fault'],
    verdicts: ['quarantine', 'quarantine', 'evict'],
  },
  {
    says: 'a success clears the row',
    steps: ['fault', 'fault', 'accepted', 'fault', 'fault', 'fault'],
    verdicts: ['quarantine', 'quarantine', '-', 'quarantine', 'quarantine', 'evict'],
  },
  {
    says: 'two halves are one, and six evict',
    steps: ['half', 'half', 'half', 'half', 'half', 'half'],
    verdicts: ['none', 'quarantine', 'none', 'quarantine', 'none', 'evict'],
  },
  {
    says: 'being accepted does not clear halves: a member that accepts and cuts is found out',
    steps: ['accepted', 'half', 'accepted', 'half', 'accepted', 'half', 'accepted', 'half', 'half', 'half'],
    verdicts: ['-', 'none', '-', 'quarantine', '-', 'none', '-', 'quarantine', 'none', 'evict'],
  },
  {
    says: 'a tunnel that ran well clears halves',
    steps: ['half', 'completed', 'half', 'completed', 'half'],
    verdicts: ['none', '-', 'none', '-', 'none'],
  },
  {
    says: 'halves and wholes add up',
    steps: ['fault', 'half', 'fault', 'half'],
    verdicts: ['quarantine', 'none', 'quarantine', 'evict'],
  },
  {
    says: 'old faults fade: after two half-lives three are less than one',
    steps: ['fault', 'fault', 2, 'fault', 'fault', 'fault'],
    verdicts: ['quarantine', 'quarantine', '-', 'quarantine', 'quarantine', 'evict'],
  },
  {
    says: 'within a half-life they do not',
    steps: ['fault', 'fault', 0.99, 'fault'],
    verdicts: ['quarantine', 'quarantine', '-', 'evict'],
  },
];

test.each(REPLAYS)('health: $says', ({ steps, verdicts }) => {
  const health = new Health();
  let now = 0;
  const found = steps.map((step): HealthVerdict | '-' => {
    if (typeof step === 'number') now += step * HALF_LIFE_MS;
    else if (step === 'accepted') health.accepted();
    else if (step === 'completed') health.completed();
    else return health.fault(step === 'half', now, HALF_LIFE_MS, { maxFailures: 3, quarantineMs: 10 });
    return '-';
  });
  expect(found).toEqual(verdicts);
});

test('health: each rest in a row is twice as long, and a success starts again', () => {
  const health = new Health();
  const options = { maxFailures: 10, quarantineMs: 10_000 };
  const rests = () => {
    health.fault(false, 0, HALF_LIFE_MS, options);
    return health.nextQuarantineMs(options);
  };
  expect([rests(), rests(), rests()]).toEqual([10_000, 20_000, 40_000]);
  health.accepted();
  expect(rests()).toBe(10_000);
});

test('health: a history goes over whole', () => {
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
