import { expect, test } from 'vitest';
import { Health, type HealthVerdict, SourceEvidence } from '../../src/pool/member.ts';

type Step =
  | 'fault'
  | 'accepted'
  | 'answered'
  /**
   * A failure that may be the target's fault: the target's name; `+` if another member reached the target; `/` if the failure is
   * a closed tunnel; `!` if the client had sent no request before.
   */
  | `${'a' | 'b' | 'c' | 'd' | 'e' | 'f' | 'g' | 'h'}${'' | '+'}${'' | '/'}${'' | '!'}`;

interface Replay {
  readonly title: string;
  readonly steps: readonly Step[];
  readonly verdicts: readonly (HealthVerdict | '-')[];
  readonly source?: 'works' | 'fails' | 'is down';
  readonly othersServed?: boolean;
}

/** Steps and their verdicts, with `maxFailures` 3; `-` for a step without a verdict. */
const REPLAYS: readonly Replay[] = [
  {
    title: 'the third fault in a row evicts',
    steps: ['fault', 'fault', 'fault'],
    verdicts: ['quarantine', 'quarantine', 'evict'],
  },
  {
    title: 'a success clears faults',
    steps: ['fault', 'fault', 'accepted', 'fault', 'fault', 'fault'],
    verdicts: ['quarantine', 'quarantine', '-', 'quarantine', 'quarantine', 'evict'],
  },
  {
    title: 'one target never evicts, however often other members reach it',
    steps: ['a+', 'a+!', 'a+', 'a+!', 'a+', 'a+!'],
    verdicts: ['exclude', ...new Array<'quarantine'>(5).fill('quarantine')],
  },
  {
    title: 'three targets that other members reach evict, if two clients fail',
    steps: ['a+', 'b+!', 'c+'],
    verdicts: ['exclude', 'quarantine', 'evict'],
  },
  {
    title: 'one client alone never evicts, and has the member probed',
    steps: ['a+', 'b+', 'c+', 'd+'],
    verdicts: ['exclude', 'exclude', 'exclude-and-probe', 'exclude-and-probe'],
  },
  {
    title: 'a fault that no target can cause evicts after targets of one client',
    steps: ['a+', 'b+', 'fault'],
    verdicts: ['exclude', 'exclude', 'evict'],
  },
  {
    title: 'one target that no other member reached says nothing, two quarantine',
    steps: ['a', 'a', 'a', 'b', 'b'],
    verdicts: ['none', 'none', 'none', 'exclude', 'none'],
  },
  {
    title: 'targets that no other member reached never evict while the source works',
    steps: ['a', 'b', 'c', 'd', 'a', 'b', 'c', 'd'],
    verdicts: ['none', 'exclude', 'exclude', 'exclude', 'none', 'none', 'none', 'none'],
  },
  {
    title: 'nothing that fails through most members counts',
    steps: ['a', 'b', 'c', 'd'],
    source: 'fails',
    verdicts: ['none', 'none', 'none', 'none'],
  },
  {
    title: 'while no member works, eight targets cause a probe',
    steps: ['a', 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'],
    source: 'is down',
    verdicts: [...new Array<'none'>(8).fill('none'), 'probe'],
  },
  {
    title: 'one client proves nothing while others are served, two do',
    steps: ['a+', 'b+', 'c+', 'd+', 'd+!'],
    othersServed: true,
    verdicts: ['none', 'none', 'none', 'none', 'evict'],
  },
  {
    title: 'after a recent success, a target that no other member reached does not count',
    steps: ['accepted', 'a', 'b', 'c', 'd'],
    verdicts: ['-', 'none', 'none', 'none', 'none'],
  },
  {
    title: 'after a recent success, the first target that others reach does not count',
    steps: ['accepted', 'a+', 'a+', 'b+', 'c+', 'd+'],
    verdicts: ['-', 'none', 'none', 'exclude', 'exclude', 'exclude-and-probe'],
  },
  {
    title: 'an accepted attempt clears refusals, but not cuts',
    steps: ['a+', 'a+/', 'accepted', 'b+/!', 'accepted', 'c+/'],
    verdicts: ['exclude', 'exclude', '-', 'quarantine', '-', 'evict'],
  },
  {
    title: 'an answer clears cuts',
    steps: ['a+/', 'b+/', 'answered', 'a+/', 'b+/'],
    verdicts: ['exclude', 'exclude', '-', 'none', 'exclude'],
  },
  {
    title: 'after a success, the clients of before do not count',
    steps: ['a+', 'b+!', 'accepted', 'a+', 'b+'],
    verdicts: ['exclude', 'quarantine', '-', 'none', 'exclude'],
  },
  {
    title: 'a target that others have reached stays one',
    steps: ['a+', 'a!', 'b!'],
    verdicts: ['exclude', 'none', 'quarantine'],
  },
  {
    title: 'eight targets of one client cause no probe while the source works',
    steps: ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'],
    verdicts: ['none', 'exclude', 'exclude', 'exclude', 'exclude', 'exclude', 'exclude', 'exclude'],
  },
  {
    title: 'nor of one client while others are served and no member accepts',
    steps: ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'],
    source: 'is down',
    othersServed: true,
    verdicts: ['none', 'none', 'none', 'none', 'none', 'none', 'none', 'none'],
  },
  {
    title: 'faults and targets add up',
    steps: ['fault', 'a+', 'b+!'],
    verdicts: ['quarantine', 'exclude', 'evict'],
  },
];

const OPTIONS = { maxFailures: 3, quarantineMs: 10 };

test.each(REPLAYS)('health: $title', ({ steps, verdicts, source = 'works', othersServed = false }) => {
  const health = new Health();
  const evidence = new SourceEvidence();
  const totals = [evidence.accepts, evidence.answers];
  for (const each of totals) each.succeededAt = source === 'is down' ? -60_001 : 0;
  const now = 0;
  const results = steps.map((step): HealthVerdict | '-' => {
    if (step === 'accepted') health.accepted(now);
    else if (step === 'answered') health.answered(now);
    else if (step === 'fault') return health.fault(OPTIONS);
    else {
      const client = step.endsWith('!') ? 'another' : 'first';
      const failure = { host: step.charAt(0), client, compared: step.includes('+'), cut: step.includes('/') };
      if (othersServed) evidence.recordAnswer('a third', now);
      const verdict = health.suspect(failure, evidence, OPTIONS.maxFailures, now);
      for (const each of totals) {
        each.failures += 1;
        if (source === 'works') each.successes += 2;
      }
      return verdict;
    }
    return '-';
  });
  expect(results).toEqual(verdicts);
});

test('health: each quarantine in a row is twice as long, until a success', () => {
  const health = new Health();
  const options = { maxFailures: 10, quarantineMs: 10_000 };
  const next = () => {
    health.fault(options);
    return health.nextQuarantineMs(options);
  };
  expect([next(), next(), next()]).toEqual([10_000, 20_000, 40_000]);
  health.accepted(0);
  expect(next()).toBe(10_000);
});

test('health: a record keeps the whole history', () => {
  const before = new Health();
  const options = { maxFailures: 3, quarantineMs: 10_000 };
  before.fault(options);
  before.nextQuarantineMs(options);
  const after = new Health();
  after.inherit(before.snapshot());
  expect(after.score).toBe(1);
  expect(after.nextQuarantineMs(options)).toBe(20_000);
  expect(after.fault(options)).toBe('quarantine');
  expect(after.fault(options)).toBe('evict');
});

test('evidence: whether another client than this one was served within ten minutes', () => {
  const evidence = new SourceEvidence();
  const served = (client: string, now: number) => evidence.servedOther(client, now);
  expect(served('a', 0)).toBe(false);
  evidence.recordAnswer('a', 1_000);
  expect([served('a', 1_000), served('b', 1_000)]).toEqual([false, true]);
  evidence.recordAnswer('b', 2_000);
  evidence.recordAnswer('b', 3_000);
  expect([served('a', 603_000), served('a', 603_001)]).toEqual([true, false]);
  expect([served('b', 601_000), served('b', 601_001)]).toEqual([true, false]);
});

test('evidence: trials are a tenth of the members that join, at most a tenth of the size, at least one', () => {
  const evidence = new SourceEvidence();
  const spend = (size: number) => {
    let count = 0;
    while (count < 99 && evidence.spendTrial(size)) count += 1;
    return count;
  };
  expect([spend(30), spend(30)], 'of a new source').toEqual([3, 0]);
  for (let member = 0; member < 9; member += 1) evidence.memberJoined();
  expect(spend(30)).toBe(0);
  for (let member = 0; member < 12; member += 1) evidence.memberJoined();
  expect(spend(30)).toBe(2);
  for (let member = 0; member < 100; member += 1) evidence.memberJoined();
  expect(spend(30)).toBe(3);
  for (let member = 0; member < 100; member += 1) evidence.memberJoined();
  expect(spend(5)).toBe(1);
});

const QUARANTINE = { maxFailures: 99, quarantineMs: 10 };
const failure = (host: string, client: string, cut = false, compared = true) => ({
  host,
  client,
  compared,
  cut,
});

test('health: quarantines stay long while a suspicion of the other kind remains', () => {
  for (const cut of [false, true]) {
    const health = new Health();
    const evidence = new SourceEvidence();
    health.nextQuarantineMs(QUARANTINE);
    const suspect = () => health.suspect(failure('a', 'a', cut), evidence, 99, 100_000);
    const succeed = (answer: boolean) => (answer ? health.answered(0) : health.accepted(0));
    suspect();
    succeed(!cut);
    expect([health.score, health.nextQuarantineMs(QUARANTINE)]).toEqual([1, 20]);
    succeed(cut);
    expect([health.score, health.nextQuarantineMs(QUARANTINE)]).toEqual([0, 10]);
  }
});

test('health: what worked a minute ago still works, for the member and for its source', () => {
  const verdict = (accepted: number | undefined, source: number, hosts: number) => {
    const health = new Health();
    const evidence = new SourceEvidence();
    if (accepted !== undefined) health.accepted(accepted);
    evidence.recordAccept(source);
    evidence.accepts.failures = 9;
    const suspect = (_: unknown, index: number) =>
      health.suspect(failure(`host${index}`, 'a', false, false), evidence, 99, 60_000);
    return Array.from({ length: hosts }, suspect).at(-1);
  };
  expect([verdict(0, 0, 8), verdict(undefined, 0, 8), verdict(undefined, -1, 8)]).toEqual([
    'none',
    'none',
    'probe',
  ]);
  expect(verdict(-1, -1, 8)).toBe('probe');
  const worked = (at: number) => {
    const health = new Health();
    health.accepted(at);
    return health.suspect(failure('a', 'a'), new SourceEvidence(), 99, 60_000);
  };
  expect([worked(0), worked(-1)]).toEqual(['none', 'exclude']);
});

test('health: only what the source does since the first failure counts, more successes than failures', () => {
  const verdict = (successes: number, failures: number) => {
    const health = new Health();
    const evidence = new SourceEvidence();
    Object.assign(evidence.accepts, { successes: 50, failures: 70 });
    health.suspect(failure('a', 'a', false, false), evidence, 99, 100_000);
    evidence.accepts.successes += successes;
    evidence.accepts.failures += failures;
    return health.suspect(failure('b', 'a', false, false), evidence, 99, 100_000);
  };
  expect([verdict(5, 4), verdict(5, 5), verdict(30, 2), verdict(2, 30)]).toEqual([
    'exclude',
    'none',
    'exclude',
    'none',
  ]);
});

test('health: sixteen targets of a suspicion count', () => {
  const health = new Health();
  const evidence = new SourceEvidence();
  const scores = Array.from({ length: 20 }, (_, index) => {
    health.suspect(failure(`host${index}`, `client${index % 2}`), evidence, 99, 100_000);
    return health.score;
  });
  expect(scores.slice(13)).toEqual([14, 15, 16, 16, 16, 16, 16]);
});

test('evidence: counts what members accept and targets answer', () => {
  const evidence = new SourceEvidence();
  evidence.recordAccept(5);
  evidence.recordAnswer('a', 7);
  expect(evidence.accepts).toEqual({ successes: 1, failures: 0, succeededAt: 5 });
  expect(evidence.answers).toEqual({ successes: 1, failures: 0, succeededAt: 7 });
});
