/** The judge of the chaos runs reports every kind of violation, and reports nothing when there is none. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { dirname, join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { testFolder } from '../journeys/noria-process.ts';
import { listen, portOf } from './delaying-proxy.ts';
import type { Fault } from './faults/fault.ts';
import { type Judged, type Measured, violationsOf } from './judge.ts';
import { type Exchange, Recording } from './record.ts';
import { openServiceGate } from './service-gate.ts';
import { SECRETS } from './stage.ts';

const FOOTPRINT = { rssBytes: 100 * 2 ** 20, externalBytes: 4 * 2 ** 20, descriptors: 40 };
const lifeTo = (change: Partial<typeof FOOTPRINT>, isCut = false) => ({
  first: FOOTPRINT,
  last: { ...FOOTPRINT, ...change },
  isCut,
});

const CALM: Measured = {
  eventLoopDelayMs: [12],
  ownDelayMs: 5,
  exits: new Set(['127.9.9.9']),
  served: '{}',
  lateMs: [],
};

function exchanges(count: number, outcome: Exchange['outcome'], at = 1_000): Exchange[] {
  return Array.from({ length: count }, () => ({
    kind: 'download',
    subject: 'noria',
    beganAt: at,
    endedAt: at + 10,
    outcome,
  }));
}

function judge({
  found = [],
  succeeded = 2_000,
  faults = [],
  measured = {},
  seen = ['127.9.9.9'],
  output = '',
  stored = '',
  crashes = [],
  early = [],
  lives = [lifeTo({})],
}: {
  found?: Exchange[];
  succeeded?: number;
  faults?: Recording['faults'];
  measured?: Partial<Measured>;
  seen?: string[];
  output?: string;
  stored?: string;
  crashes?: string[];
  early?: string[];
  lives?: readonly ReturnType<typeof lifeTo>[];
}): readonly string[] {
  const folder = testFolder();
  const file = join(folder, 'state', 'snapshot.json');
  mkdirSync(dirname(file));
  writeFileSync(file, stored);
  const recording = new Recording();
  recording.exchanges.push(...exchanges(succeeded, { kind: 'ok' }), ...found);
  recording.faults.push(...faults);
  const judged: Judged = {
    keys: ['0123456789abcdef'],
    seen: new Set(seen),
    gates: [{ violations: () => early }],
    subjects: [{ name: 'noria', output, crashes, lives, stateFolder: dirname(file) }],
  };
  return violationsOf(judged, recording, { ...CALM, ...measured });
}

function playedFault(promise: Fault['promise'], isLearnt = false): Recording['faults'][number] {
  const fault = { name: 'x', promise, isLearnt, begin: async () => () => {} };
  return { fault, beganAt: 900, endedAt: 950 };
}

const CUT = { kind: 'cut', detail: 'ended inside a head' } as const;

test('chaos: a calm run breaks no invariant, and one failure in a thousand and one more are allowed', () => {
  expect(judge({})).toEqual([]);
  expect(judge({ found: exchanges(3, CUT) }), 'two of two thousand, and one').toEqual([]);
  expect(judge({ found: exchanges(4, CUT) })).toHaveLength(1);
  expect(judge({ succeeded: 200, found: exchanges(2, CUT) }), 'as many as in a thousand, and one').toEqual(
    [],
  );
  expect(judge({ succeeded: 200, found: exchanges(3, CUT) })).toHaveLength(1);
  expect(judge({ succeeded: 0, found: exchanges(199, CUT) }), 'too few to judge').toEqual([]);
  expect(judge({ succeeded: 0, found: exchanges(200, CUT) })).toHaveLength(1);
});

test('chaos: failures count unless a fault that breaks connections excuses them', () => {
  const found = exchanges(20, CUT);
  expect(judge({ found }).join()).toMatch(/99\.01 % of 2020 .* 20 × cut: ended inside a head/);
  expect(judge({ found, faults: [playedFault('served')] })).toHaveLength(1);
  expect(judge({ found, faults: [playedFault('broken')] })).toEqual([]);
  const later = [...exchanges(20, CUT, 2_951), ...exchanges(200, { kind: 'ok' }, 2_951)];
  expect(judge({ found: later, faults: [playedFault('broken')] }), 'after the aftermath').toHaveLength(1);
});

test('chaos: one failure more is allowed for each time that a noria has to learn which members misbehave', () => {
  const faults = [1, 2, 3].map(() => playedFault('served', true));
  expect(judge({ succeeded: 200, faults, found: exchanges(4, CUT) })).toEqual([]);
  expect(judge({ succeeded: 200, faults, found: exchanges(5, CUT) })).toHaveLength(1);
  expect(judge({ succeeded: 4_000, faults, found: exchanges(6, CUT) }), 'not in a longer run').toHaveLength(
    1,
  );
  const open = exchanges(80, { kind: 'ok' }, 895);
  const crowded = (count: number) => ({ succeeded: 200, faults, found: [...open, ...exchanges(count, CUT)] });
  expect(judge(crowded(31)), 'one in eight of 80 that were open, three times, and one').toEqual([]);
  expect(judge(crowded(32))).toHaveLength(1);
});

test.each<[string, Parameters<typeof judge>[0], RegExp]>([
  [
    'wrong bytes, also during a fault',
    { found: exchanges(1, { kind: 'wrong-bytes', detail: '' }), faults: [playedFault('broken')] },
    /wrong-bytes/,
  ],
  ['an expired member', { found: exchanges(1, { kind: 'expired', detail: '-1' }) }, /expired/],
  ['a late answer', { found: exchanges(1, { kind: 'late', detail: '' }) }, /no answer within the deadline/],
  ['an early call', { early: ['a call came after 5 ms'] }, /5 ms/],
  ['a direct connection', { seen: ['127.0.0.1'] }, /127\.0\.0\.1, which is no member/],
  ['a password in the log', { output: `x ${SECRETS.http} y` }, /output of noria contains a secret/],
  ['a key in the state', { stored: '0123456789abcdef' }, /state of noria contains a secret/],
  [
    'a token in a page',
    { measured: { served: SECRETS.admin } },
    /admin API, or the store, contains a secret/,
  ],
  ['more memory', { lives: [lifeTo({ rssBytes: 200 * 2 ** 20 })] }, /100 MiB more than at its start/],
  [
    'more buffers',
    { lives: [lifeTo({ externalBytes: 8 * 2 ** 20 })] },
    /4 MiB of buffers more than at its start/,
  ],
  ['more descriptors', { lives: [lifeTo({ descriptors: 90 })] }, /50 descriptors more than at its start/],
  [
    'what a process kept that was killed later',
    { lives: [lifeTo({ descriptors: 900 }, true), lifeTo({})] },
    /in life 1 of 2, kept 860 descriptors/,
  ],
  [
    'a member used after its end',
    { measured: { lateMs: [3, 240] } },
    /connected 1 times .* up to 240 ms later/,
  ],
  [
    'a session that moved',
    { found: exchanges(1, { kind: 'broken-promise', detail: 'two exits' }) },
    /download: two exits/,
  ],
  ['a slow event loop', { measured: { eventLoopDelayMs: [56] } }, /late by 56 ms \(p99\), above 55 ms/],
  ['a crash', { crashes: ['noria exited with 1'] }, /exited with 1/],
])('chaos: the judge reports %s', (_, what, expected) => {
  const violations = judge(what);
  expect(violations).toHaveLength(1);
  expect(violations[0]).toMatch(expected);
});

test('chaos: the delay of the machine is no fault of noria', () => {
  expect(judge({ measured: { eventLoopDelayMs: [590], ownDelayMs: 100, lateMs: [90] } })).toEqual([]);
  expect(judge({ measured: { eventLoopDelayMs: [610], ownDelayMs: 100 } })).toHaveLength(1);
});

test('chaos: connections and buffers of clients that a process was serving when it was killed are no leak', () => {
  expect(
    judge({ lives: [lifeTo({ externalBytes: 12 * 2 ** 20, descriptors: 300 }, true), lifeTo({})] }),
  ).toEqual([]);
});

test('chaos: the gate of the service reports early calls, and two calls in flight, separately for each instance', async () => {
  const held: (() => void)[] = [];
  const service = createServer((request, response) => {
    if (request.url?.includes('hold')) held.push(() => response.end());
    else response.end();
  });
  await listen(service);
  const gate = await openServiceGate(`http://127.0.0.1:${portOf(service)}`);
  onTestFinished(async () => {
    await gate.close();
    service.close();
    service.closeAllConnections();
  });
  const call = (query: string) => fetch(`${gate.url}/GetIP/?${query}`, { headers: { Connection: 'close' } });
  await call('api=one');
  await call('api=two');
  expect(gate.violations(60_000)).toEqual([]);
  await call('api=two');
  expect(gate.violations(60_000).join()).toMatch(/^instance two: a call came after \d+ ms/);
  expect(gate.violations(0)).toEqual([]);
  const holding = call('api=three&hold');
  while (held.length === 0) await new Promise((next) => setTimeout(next, 5));
  await call('api=three');
  expect(gate.violations(0)).toEqual(['instance three: a call came while another one was in flight']);
  for (const release of held) release();
  await holding;
});
