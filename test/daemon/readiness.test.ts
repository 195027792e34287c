import { expect, test } from 'vitest';
import { translate } from '../../src/core/chinese.ts';
import { decideReadiness, isSameReadiness, type ReadinessFacts } from '../../src/daemon/readiness.ts';
import { SOURCE_STATES, type SourceState, type SourceStatus } from '../../src/refill/status.ts';

const DRAIN_ENDS_AT = Date.UTC(2026, 10, 21, 12);

const DRAWS = {
  none: undefined,
  succeeded: { result: 'succeeded', reason: '10001: Success.', advice: '' },
  empty: { result: 'empty', reason: '12009: The service has no proxy.', advice: 'Relax the filters.' },
  useless: { result: 'useless', reason: '10 members in a row failed.', advice: 'Check upstream.auth.' },
  failed: {
    result: 'failed',
    reason: 'No answer from the service.',
    advice: 'Check service.baseUrl and the network of this machine.',
  },
} as const;
type Draw = keyof typeof DRAWS;

function source({ draw = 'succeeded', ...more }: Partial<SourceStatus> & { draw?: Draw } = {}): SourceStatus {
  const { result, reason = null, advice = '' } = DRAWS[draw] ?? {};
  return {
    ...{ name: 'city', product: 'short-classic', state: 'ready', suspended: false, blocked: false },
    ...{ reason: 'the reason of its state.', advice: null, code: null, message: null, meaning: reason },
    lastDraw: result === undefined ? null : { result, advice },
    ...{ stateSeconds: 0, nextCallSeconds: 4.2, nextCallAt: null, quota: {}, budget: null },
    ...{ size: 5, ready: 0, joining: 0, drawn: 0, used: 0, unused: 0 },
    ...more,
  };
}

function facts(more: Partial<ReadinessFacts> = {}): ReadinessFacts {
  return {
    now: 100_000,
    drainEndsAt: undefined,
    listenerCount: 1,
    workers: { wanted: 2, running: 2 },
    failedRequests: 0,
    clientWaitMs: 15_000,
    drawTimeoutMs: 10_000,
    sources: [source({ ready: 3 })],
    bannedSites: [],
    ...more,
  };
}

const decide = (more: Partial<ReadinessFacts>) => decideReadiness(facts(more));
const stateOf = (...sources: SourceStatus[]) => decide({ sources }).state;

/**
 * The state of a noria that has only this source and no usable member, by the state of the source and its last draw.
 */
const EMPTY_POOL: Readonly<Record<SourceState, Readonly<Record<Draw, string>>>> = {
  idle: { none: 'idle', succeeded: 'idle', empty: 'not-serving', useless: 'degraded', failed: 'not-serving' },
  ready: {
    none: 'degraded',
    succeeded: 'degraded',
    empty: 'not-serving',
    useless: 'not-serving',
    failed: 'not-serving',
  },
  waiting: {
    none: 'starting',
    succeeded: 'degraded',
    empty: 'not-serving',
    useless: 'not-serving',
    failed: 'not-serving',
  },
  drawing: {
    none: 'starting',
    succeeded: 'degraded',
    empty: 'not-serving',
    useless: 'not-serving',
    failed: 'not-serving',
  },
  backoff: {
    none: 'not-serving',
    succeeded: 'not-serving',
    empty: 'not-serving',
    useless: 'not-serving',
    failed: 'not-serving',
  },
  paused: {
    none: 'not-serving',
    succeeded: 'not-serving',
    empty: 'not-serving',
    useless: 'not-serving',
    failed: 'not-serving',
  },
  halted: {
    none: 'not-serving',
    succeeded: 'not-serving',
    empty: 'not-serving',
    useless: 'not-serving',
    failed: 'not-serving',
  },
};
/** The states of a source that are a problem, whatever the result of its last draw. */
const STOPPED = new Set<SourceState>(['backoff', 'paused', 'halted']);

const STATES = SOURCE_STATES;
const ALL_DRAWS = Object.keys(DRAWS) as Draw[];
const COMBINATIONS = STATES.flatMap((state) => ALL_DRAWS.map((draw) => [state, draw] as const));

test('readiness: the table has every state of a source', () => {
  expect(Object.keys(EMPTY_POOL).sort()).toEqual([...STATES].sort());
  expect(COMBINATIONS).toHaveLength(7 * 5);
});

test.each(COMBINATIONS)(
  'readiness: no member is usable, the source is %s, its last draw: %s',
  (state, draw) => {
    expect(stateOf(source({ state, draw }))).toBe(EMPTY_POOL[state][draw]);
  },
);

test.each(COMBINATIONS)(
  'readiness: members are usable, the source is %s, its last draw: %s',
  (state, draw) => {
    const hasProblem = STOPPED.has(state) || draw === 'failed' || draw === 'useless';
    const { state: found, ready } = decide({ sources: [source({ state, draw, ready: 3 })] });
    expect([found, ready]).toEqual([hasProblem ? 'degraded' : 'serving', true]);
  },
);

test.each(COMBINATIONS)(
  'readiness: the members refuse the credentials, the source is %s, its last draw: %s',
  (state, draw) => {
    const blocked = { blocked: true, reason: 'its members refuse the credentials', advice: 'Set password.' };
    const { state: found, advice } = decide({ sources: [source({ state, draw, ...blocked })] });
    expect([found, advice]).toEqual(['not-serving', 'Set password.']);
  },
);

test.each(COMBINATIONS)(
  'readiness: a second source that works keeps noria ready, the first is %s, its last draw: %s',
  (state, draw) => {
    const first = source({ state, draw });
    const serving = source({ name: 'town', ready: 1 });
    const idle = source({ name: 'town', state: 'idle' });
    expect(decide({ sources: [first, serving] }).ready).toBe(true);
    expect(decide({ sources: [first, idle] }).ready).toBe(true);
    const hasProblem = decide({ sources: [first, serving] }).problems.length > 0;
    expect(stateOf(first, serving)).toBe(hasProblem ? 'degraded' : 'serving');
    const stopped = source({ name: 'town', state: 'halted' });
    const alone = decide({ sources: [first] });
    const both = decide({ sources: [first, stopped] });
    expect(both.ready).toBe(alone.ready);
  },
);

test.each([
  [
    'is shutting down',
    { drainEndsAt: DRAIN_ENDS_AT },
    /^noria is shutting down: .* until 2026-11-21T12:00:00/,
  ],
  ['has no listener', { listenerCount: 0 }, /^no listener is open/],
  ['has no worker', { workers: { wanted: 2, running: 0 } }, /^all workers are down; restarting/],
] as const)('readiness: noria %s: not serving, whatever the source does', (_what, fatal, reason) => {
  for (const [state, draw] of COMBINATIONS) {
    const found = decide({ ...fatal, sources: [source({ state, draw, ready: 3 })] });
    expect(found).toMatchObject({
      state: 'not-serving',
      ready: false,
      reason: expect.stringMatching(reason),
    });
  }
});

test('readiness: a missing worker and failing requests are problems, and clients are still served', () => {
  const missing = decide({ workers: { wanted: 2, running: 1 } });
  expect(missing).toMatchObject({ state: 'degraded', ready: true, problems: [{ kind: 'workers-down' }] });
  expect(decide({ failedRequests: 1 }).state).toBe('serving');
  const failing = decide({ failedRequests: 2 });
  expect(failing).toMatchObject({ state: 'degraded', ready: true, problems: [{ kind: 'requests-failing' }] });
});

test('readiness: a site that has banned every exit is named, and clients of other sites are served', () => {
  const one = decide({ bannedSites: ['shop.example'] });
  expect(one).toMatchObject({
    state: 'degraded',
    ready: true,
    reason: '3 members are usable, but not for shop.example',
    problems: [{ kind: 'site-banned', reason: 'every exit is banned for shop.example' }],
  });
  expect(decide({ bannedSites: ['a', 'b', 'c', 'd'] }).reason).toBe(
    '3 members are usable, but not for a, b, c, …',
  );
  const inChinese = [one.reason, one.problems[0]?.reason, one.problems[0]?.advice].map((text) =>
    translate(text ?? '', 'zh-CN'),
  );
  expect(inChinese).toEqual([
    '3 个成员可用，但不能用于 shop.example',
    '所有出口都被 shop.example 封禁',
    expect.stringMatching(/^放慢客户端/),
  ]);
});

test('readiness: a count or a time that grows is not a change', () => {
  const failing = (failedRequests: number) => decideReadiness(facts({ failedRequests }));
  expect(failing(3).problems[0]?.reason).not.toBe(failing(2).problems[0]?.reason);
  expect(isSameReadiness(failing(2), failing(3))).toBe(true);
  const drawing = (stateSeconds: number) =>
    decideReadiness(facts({ sources: [source({ state: 'drawing', draw: 'none', stateSeconds })] }));
  expect(drawing(12).problems[0]?.reason).not.toBe(drawing(15).problems[0]?.reason);
  expect(isSameReadiness(drawing(12), drawing(15))).toBe(true);
  const workers = (running: number) => decideReadiness(facts({ workers: { wanted: 3, running } }));
  expect(isSameReadiness(workers(1), workers(2))).toBe(false);
});

test('readiness: a draw that cannot come within the wait of a client does not count', () => {
  const waiting = (nextCallSeconds: number) => source({ state: 'waiting', draw: 'none', nextCallSeconds });
  expect(stateOf(waiting(15))).toBe('starting');
  expect(decide({ sources: [waiting(15.001)] })).toMatchObject({
    state: 'not-serving',
    reason: 'source city: the reason of its state',
    nextAttemptSeconds: 16,
  });
});

test('readiness: the first draw counts until its deadline', () => {
  const drawing = (stateSeconds: number) => source({ state: 'drawing', draw: 'none', stateSeconds });
  expect(stateOf(drawing(10))).toBe('starting');
  expect(decide({ sources: [drawing(10.001)] })).toMatchObject({
    state: 'not-serving',
    reason: 'source city: the service has not answered for 10 s',
    problems: [{ kind: 'draw-late' }],
  });
});

test('readiness: before the sources are open, noria is starting', () => {
  expect(decide({ sources: [] })).toMatchObject({ state: 'starting', ready: true, problems: [] });
});

test('readiness: not serving says why, since when, when it tries again, and what to do', () => {
  const sources = [
    source({
      state: 'backoff',
      draw: 'failed',
      reason: 'No answer from the service.',
      advice: 'Check service.baseUrl and the network of this machine.',
    }),
  ];
  const first = decideReadiness(facts({ sources }));
  const later = decideReadiness(facts({ sources, now: 112_900 }), first);
  expect(later).toEqual({
    state: 'not-serving',
    ready: false,
    reason: 'source city: No answer from the service',
    advice: 'Check service.baseUrl and the network of this machine.',
    sinceSeconds: 12,
    nextAttemptSeconds: 5,
    since: 100_000,
    problems: [
      {
        kind: 'draw-failed',
        source: 'city',
        reason: 'No answer from the service',
        advice: 'Check service.baseUrl and the network of this machine.',
        nextAttemptSeconds: 5,
      },
    ],
  });
  expect(isSameReadiness(first, later)).toBe(true);
  expect(decideReadiness(facts({ now: 120_000 }), later)).toMatchObject({
    state: 'serving',
    sinceSeconds: 0,
  });
});

test('readiness: a retry under way does not make noria ready, and the time goes on', () => {
  const backoff = decideReadiness(
    facts({
      sources: [
        source({
          state: 'backoff',
          draw: 'failed',
          reason: DRAWS.failed.reason,
          advice: DRAWS.failed.advice,
        }),
      ],
    }),
  );
  const retry = source({ state: 'drawing', draw: 'failed', nextCallSeconds: 0 });
  const retrying = decideReadiness(facts({ now: 105_000, sources: [retry] }), backoff);
  expect(retrying).toMatchObject({ state: 'not-serving', sinceSeconds: 5, nextAttemptSeconds: 0 });
  expect(isSameReadiness(backoff, retrying)).toBe(true);
});

test('readiness: an unproven member counts when its check has succeeded', () => {
  const found = decide({ sources: [source({ joining: 2 })] });
  expect(found).toMatchObject({
    state: 'degraded',
    reason: 'no member is usable yet; noria checks 2 drawn members',
  });
});

test("readiness: a fleet's store that stays lost is a problem, and members serve on", () => {
  const storeLost = { reason: 'no answer to EVALSHA within 1000 ms', ms: 2_900 };
  expect(decide({ storeLost })).toMatchObject({ state: 'serving', problems: [] });
  expect(decide({ storeLost: { ...storeLost, ms: 3_000 } })).toMatchObject({
    state: 'degraded',
    ready: true,
    problems: [{ kind: 'store-lost', source: null, reason: expect.stringContaining('no answer to EVALSHA') }],
  });
});

test("readiness: the loss of the fleet's store is one problem, also if the draws of all sources failed by it", () => {
  const storeLost = { reason: 'no answer to EVALSHA within 1000 ms', ms: 4_000 };
  const failed = { draw: 'failed', state: 'backoff', code: 'fleet-store-lost' } as const;
  const sources = [source({ ...failed, ready: 2 }), source({ ...failed, name: 'harbor' })];
  expect(decide({ storeLost, sources })).toMatchObject({
    state: 'degraded',
    ready: true,
    problems: [{ kind: 'store-lost', source: null }],
  });
  expect(decide({ storeLost, sources }).problems).toHaveLength(1);
  const empty = decide({ storeLost, sources: sources.map((each) => ({ ...each, ready: 0 })) });
  expect(empty).toMatchObject({
    state: 'not-serving',
    reason: "noria draws nothing while the fleet's store is lost: no answer to EVALSHA within 1000 ms",
    advice: expect.stringContaining('noria check'),
  });
  expect(empty.problems).toHaveLength(1);
  expect(
    decide({ sources: sources.map((each) => ({ ...each, state: 'ready', ready: 2 })) }).problems,
  ).toEqual([]);
});
