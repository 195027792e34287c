/** The table of docs/health.md: how an attempt failed, what else is known, and who is blamed. */
import { expect, test } from 'vitest';
import type { Blame } from '../../src/core/events.ts';
import { FAULTS, type FaultCode } from '../../src/core/faults.ts';
import {
  blameFor,
  type Evidence,
  type FailedAttempt,
  isUndecided,
  MAX_TARGETS_UNREACHABLE,
} from '../../src/dialer/blame.ts';

const NOTHING_ELSE: Evidence = {
  reachedByOther: false,
  clientLeft: false,
  similarFailures: 1,
  memberWorked: true,
  targetsUnreachable: 1,
  sourceFaulty: false,
  networkDown: false,
};

function failed(fault: FaultCode, phase: FailedAttempt['phase'] = 'answer', local = false): FailedAttempt {
  return { fault, phase, local };
}

const TOO_MANY = MAX_TARGETS_UNREACHABLE + 1;

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
  ['this machine is out of sockets', failed('member-unreachable', 'connect', true), {}, 'network'],
  ['no TLS handshake with the member', failed('member-silent', 'connect'), {}, 'member'],
  [
    'no TLS handshake, the network is down',
    failed('member-silent', 'connect'),
    { networkDown: true },
    'network',
  ],
  ['the member speaks no proxy protocol', failed('member-protocol'), { similarFailures: 3 }, 'member'],

  ['silence, another reached the target', failed('member-silent'), { reachedByOther: true }, 'member'],
  ['silence, no other member was tried', failed('member-silent'), {}, 'member'],
  ['silence of several that worked recently', failed('member-silent'), { similarFailures: 2 }, 'target'],
  [
    'silence of several that did not work recently',
    failed('member-silent'),
    { similarFailures: 2, memberWorked: false },
    'member',
  ],
  ['silence, the client left', failed('member-silent'), { clientLeft: true, similarFailures: 2 }, 'nobody'],
  ['closed, another reached the target', failed('member-closed'), { reachedByOther: true }, 'member'],
  ['closed by several that worked recently', failed('member-closed'), { similarFailures: 2 }, 'target'],
  ['refused, another reached the target', failed('member-refused'), { reachedByOther: true }, 'member'],
  ['refused by several that worked recently', failed('member-refused'), { similarFailures: 3 }, 'target'],
  ['refused by one', failed('member-refused'), {}, 'member'],

  [
    '"unreachable", another reached it',
    failed('target-doubted'),
    { reachedByOther: true, similarFailures: 2 },
    'member',
  ],
  [
    '"unreachable", another reports the same',
    failed('target-doubted'),
    { similarFailures: 2, memberWorked: false },
    'target',
  ],
  ['"unreachable", no other member was tried', failed('target-doubted'), {}, 'nobody'],
  [
    '"unreachable", the client left',
    failed('target-doubted'),
    { clientLeft: true, similarFailures: 2 },
    'nobody',
  ],
  [
    '"unreachable" for too many targets in a row',
    failed('target-doubted'),
    { similarFailures: 2, targetsUnreachable: TOO_MANY },
    'member',
  ],

  ['credentials refused by this member', failed('member-auth'), { reachedByOther: true }, 'member'],
  ['credentials refused by several', failed('member-auth'), { sourceFaulty: true }, 'source'],

  ['the tunnel was cut before its first byte', failed('member-cut', 'done'), {}, 'half-member'],
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
    { targetsUnreachable: TOO_MANY },
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
