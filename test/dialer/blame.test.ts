/** The table of docs/health.md: how an attempt failed, the other evidence, and who is blamed. */
import { expect, test } from 'vitest';
import type { Blame } from '../../src/core/events.ts';
import { FAULTS, type FaultCode } from '../../src/core/faults.ts';
import {
  blameFor,
  type Evidence,
  type FailedAttempt,
  isTargetUnreachable,
  isUndecided,
  reportPoints,
} from '../../src/dialer/blame.ts';

const NOTHING_ELSE: Evidence = {
  reachedByOther: false,
  clientLeft: false,
  similarFailures: 1,
  sourceWorked: true,
  sourceFaulty: false,
  credentialsWork: false,
  networkDown: false,
};

function failed(
  fault: FaultCode,
  phase: FailedAttempt['phase'] = 'answer',
  detail = 'closed',
): FailedAttempt {
  return { fault, phase, detail };
}

const CASES: readonly [what: string, attempt: FailedAttempt, evidence: Partial<Evidence>, blame: Blame][] = [
  ['the member refuses the connection', failed('member-unreachable', 'connect'), {}, 'member'],
  [
    'the member refuses the connection, another reached the target',
    failed('member-unreachable', 'connect'),
    { reachedByOther: true },
    'member',
  ],
  [
    'the member does not answer, the network is down',
    failed('member-unreachable', 'connect'),
    { networkDown: true },
    'network',
  ],
  ['this machine is out of sockets', failed('member-unreachable', 'connect', 'EMFILE'), {}, 'network'],
  ['no TLS handshake with the member', failed('member-silent', 'connect'), {}, 'member'],
  [
    'no TLS handshake, the network is down',
    failed('member-silent', 'connect'),
    { networkDown: true },
    'network',
  ],
  ['the member speaks no proxy protocol', failed('member-protocol'), { similarFailures: 3 }, 'member'],

  ...(['member-silent', 'member-closed', 'member-refused', 'target-doubted'] as const).flatMap(
    (fault): (typeof CASES)[number][] => [
      [`${fault}, another reached the target`, failed(fault), { reachedByOther: true }, 'member-for-target'],
      [`${fault}, no other member was tried`, failed(fault), {}, 'unclear'],
      [`${fault} of several, the source works`, failed(fault), { similarFailures: 2 }, 'target'],
      [
        `${fault} of several, no member of the source works`,
        failed(fault),
        { similarFailures: 2, sourceWorked: false },
        'unclear',
      ],
      [`${fault}, the client left`, failed(fault), { clientLeft: true, similarFailures: 2 }, 'nobody'],
    ],
  ),

  ['credentials refused by this member', failed('member-auth'), { credentialsWork: true }, 'member'],
  ['credentials refused, no other member was tried', failed('member-auth'), {}, 'nobody'],
  ['credentials refused by several', failed('member-auth'), { sourceFaulty: true }, 'source'],

  [
    'the front proxy failed',
    failed('front-proxy-failed', 'connect'),
    { reachedByOther: true },
    'front-proxy',
  ],
  ['the front proxy leads back', failed('proxy-loop', 'connect'), { reachedByOther: true }, 'front-proxy'],
  ['the front proxy is silent', failed('front-proxy-silent', 'connect'), {}, 'front-proxy'],
  [
    'the front proxy is silent, another member was reached',
    failed('front-proxy-silent', 'connect'),
    { reachedByOther: true },
    'member',
  ],
  ['the client left', failed('client-gone', 'connect'), {}, 'nobody'],
  ['SOCKS4 and an IPv6 target', failed('member-incapable', 'connect'), { reachedByOther: true }, 'nobody'],
];

test.each(CASES)('blame: %s', (_, attempt, evidence, blame) => {
  expect(blameFor(attempt, { ...NOTHING_ELSE, ...evidence })).toBe(blame);
});

test('blame: later evidence does not change what is decided at once', () => {
  const later: Partial<Evidence>[] = [
    { reachedByOther: true },
    { similarFailures: 2 },
    { clientLeft: true },
    { sourceWorked: false },
    { sourceFaulty: true },
    { credentialsWork: true },
  ];
  const codes = Object.keys(FAULTS) as FaultCode[];
  const decided = codes
    .flatMap((fault) => [failed(fault, 'connect'), failed(fault, 'answer')])
    .filter((attempt) => !isUndecided(attempt));
  expect(decided.length).toBeGreaterThan(0);
  for (const attempt of decided) {
    const now = blameFor(attempt, NOTHING_ELSE);
    for (const evidence of later) expect(blameFor(attempt, { ...NOTHING_ELSE, ...evidence })).toBe(now);
  }
});

test.each([
  ['target-doubted', 'answer', false, 3],
  ['member-refused', 'answer', false, 2],
  ['member-refused', 'answer', true, 3],
  ['member-closed', 'answer', false, 2],
  ['member-silent', 'answer', false, 0],
  ['member-silent', 'answer', true, 3],
  ['member-silent', 'connect', true, 0],
  ['member-unreachable', 'connect', true, 0],
  ['member-auth', 'answer', true, 0],
] as const)(
  'blame: the report points of %s in phase %s, the member worked: %s',
  (fault, phase, worked, points) => {
    expect(reportPoints(failed(fault, phase), worked)).toBe(points);
  },
);

test.each<[string, FailedAttempt[], points: number, boolean]>([
  ['one full report', [failed('target-doubted')], 3, true],
  ['a weak report', [failed('member-refused')], 2, false],
  ['two full reports', [failed('target-doubted'), failed('member-refused')], 6, true],
  ['a full and a weak report', [failed('target-doubted'), failed('member-refused')], 5, false],
  [
    'two of three members that failed',
    [failed('target-doubted'), failed('target-doubted'), failed('member-silent')],
    6,
    true,
  ],
  [
    'one report, and an unreachable member',
    [failed('target-doubted'), failed('member-unreachable', 'connect')],
    3,
    true,
  ],
  [
    'one report, and a member that required credentials',
    [failed('target-doubted'), failed('member-auth')],
    6,
    false,
  ],
  ['members that received nothing', [failed('member-unreachable', 'connect')], 9, false],
])('blame: whether the target is unreachable after %s', (_, failures, points, expected) => {
  expect(isTargetUnreachable(failures, points)).toBe(expected);
});
