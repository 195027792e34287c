/** The table of docs/health.md: what happened to an attempt, what else was seen, and whose fault it is. */
import { expect, test } from 'vitest';
import type { Blame } from '../../src/core/events.ts';
import { FAULTS, type FaultCode } from '../../src/core/faults.ts';
import {
  blameFor,
  type Evidence,
  type FailedAttempt,
  isOpenQuestion,
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
  ['nobody listens at the member', failed('member-unreachable', 'connect'), {}, 'member'],
  [
    'nobody listens, and the target is fine',
    failed('member-unreachable', 'connect'),
    { reachedByOther: true },
    'member',
  ],
  ['nobody answers at any member', failed('member-unreachable', 'connect'), { networkDown: true }, 'network'],
  ['this machine has no sockets left', failed('member-unreachable', 'connect', true), {}, 'network'],
  ['TLS with the member never stands', failed('member-silent', 'connect'), {}, 'member'],
  [
    'TLS never stands while the network is down',
    failed('member-silent', 'connect'),
    { networkDown: true },
    'network',
  ],
  ['the member speaks no proxy protocol', failed('member-protocol'), { similarFailures: 3 }, 'member'],

  ['silence, another reached the target', failed('member-silent'), { reachedByOther: true }, 'member'],
  ['silence, nobody else was asked', failed('member-silent'), {}, 'member'],
  ['silence of several that work otherwise', failed('member-silent'), { similarFailures: 2 }, 'target'],
  [
    'silence of several that never worked',
    failed('member-silent'),
    { similarFailures: 2, memberWorked: false },
    'member',
  ],
  ['silence, the client left', failed('member-silent'), { clientLeft: true, similarFailures: 2 }, 'nobody'],
  ['hung up, another reached the target', failed('member-closed'), { reachedByOther: true }, 'member'],
  ['hung up, several alike', failed('member-closed'), { similarFailures: 2 }, 'target'],
  ['refused, another reached the target', failed('member-refused'), { reachedByOther: true }, 'member'],
  ['refused by several that work otherwise', failed('member-refused'), { similarFailures: 3 }, 'target'],
  ['refused by one alone', failed('member-refused'), {}, 'member'],

  [
    '"unreachable", another reached it',
    failed('target-doubted'),
    { reachedByOther: true, similarFailures: 2 },
    'member',
  ],
  [
    '"unreachable", another says so too',
    failed('target-doubted'),
    { similarFailures: 2, memberWorked: false },
    'target',
  ],
  ['"unreachable", nobody else was asked', failed('target-doubted'), {}, 'nobody'],
  [
    '"unreachable", the client left',
    failed('target-doubted'),
    { clientLeft: true, similarFailures: 2 },
    'nobody',
  ],
  [
    '"unreachable" of every target there is',
    failed('target-doubted'),
    { similarFailures: 2, targetsUnreachable: TOO_MANY },
    'member',
  ],

  ['credentials refused by this member', failed('member-auth'), { reachedByOther: true }, 'member'],
  ['credentials refused by several', failed('member-auth'), { sourceFaulty: true }, 'source'],

  ['cut before the first byte', failed('member-cut', 'done'), {}, 'half-member'],
  ['the client left', failed('client-gone', 'connect'), {}, 'nobody'],
  ['SOCKS4 and an IPv6 target', failed('member-incapable', 'connect'), { reachedByOther: true }, 'nobody'],
];

test.each(CASES)('blame: %s', (_, attempt, evidence, blame) => {
  expect(blameFor(attempt, { ...NOTHING_ELSE, ...evidence })).toBe(blame);
});

test('blame: what is judged at once cannot be judged otherwise later', () => {
  const later: Partial<Evidence>[] = [
    { reachedByOther: true },
    { similarFailures: 2 },
    { clientLeft: true },
    { targetsUnreachable: TOO_MANY },
  ];
  const codes = Object.keys(FAULTS) as FaultCode[];
  const clear = codes
    .flatMap((fault) => [failed(fault, 'connect'), failed(fault, 'answer')])
    .filter((attempt) => !isOpenQuestion(attempt));
  expect(clear.length).toBeGreaterThan(0);
  for (const attempt of clear) {
    const now = blameFor(attempt, NOTHING_ELSE);
    for (const evidence of later) expect(blameFor(attempt, { ...NOTHING_ELSE, ...evidence })).toBe(now);
  }
});
