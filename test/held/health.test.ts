import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { FaultCode } from '../../src/core/faults.ts';
import {
  blameFor,
  type Evidence,
  type FailedAttempt,
  MAX_TARGETS_UNREACHABLE,
} from '../../src/dialer/blame.ts';
import { HEDGE_FLOOR_MS } from '../../src/dialer/hedge.ts';
import { MIN_SAMPLES } from '../../src/dialer/latency.ts';
import { LOST_MEMBERS_OF_A_DOWN_NETWORK } from '../../src/dialer/network-watch.ts';

const page = readFileSync('docs/health.md', 'utf8');
const rows = [...page.matchAll(/^\| `([a-z-]+)` \| (connect|answer|done) \| ([^|]+) \| ([a-z-]+) \|$/gm)].map(
  ([, fault = '', phase = '', and = '', blame = '']) => ({ fault, phase, and: and.trim(), blame }),
);

/** What the page's words for the evidence mean. */
const EVIDENCE: Readonly<Record<string, Partial<Evidence> & { readonly local?: boolean }>> = {
  'nothing else': {},
  'our network is down': { networkDown: true },
  'this machine is out of sockets or ports': { local: true },
  'another member reached the target': { reachedByOther: true },
  'others alike': { similarFailures: 2 },
  'others alike, and it worked a moment ago': { similarFailures: 2, memberWorked: true },
  [`others alike, and it has doubted ${MAX_TARGETS_UNREACHABLE + 1} targets in a row`]: {
    similarFailures: 2,
    targetsUnreachable: MAX_TARGETS_UNREACHABLE + 1,
  },
  'the client left': { clientLeft: true, similarFailures: 2 },
  'another member of its source was refused, too': { sourceFaulty: true },
};

test('docs/health.md: every row of the table of blame is what the code decides', () => {
  expect(rows.length, 'found no table').toBeGreaterThan(20);
  for (const { fault, phase, and, blame } of rows) {
    const known = EVIDENCE[and];
    expect(known, `no meaning for "${and}"`).toBeDefined();
    const { local = false, ...evidence } = known ?? {};
    const decided = blameFor(
      { fault: fault as FaultCode, phase: phase as FailedAttempt['phase'], local },
      {
        reachedByOther: false,
        clientLeft: false,
        similarFailures: 1,
        memberWorked: false,
        targetsUnreachable: 1,
        sourceFaulty: false,
        networkDown: false,
        ...evidence,
      },
    );
    expect(`${fault} in ${phase}, ${and}: ${decided}`).toBe(`${fault} in ${phase}, ${and}: ${blame}`);
  }
});

test('docs/health.md: the table names every fault of an attempt', () => {
  const source = readFileSync('src/dialer/blame.ts', 'utf8');
  const body = source.slice(
    source.indexOf('export function blameFor'),
    source.indexOf('export function isUndecided'),
  );
  const cases = new Set([...body.matchAll(/case '([a-z-]+)':/g)].map(([, fault]) => fault));
  expect(cases.size, 'found no cases').toBeGreaterThan(5);
  const named = new Set(rows.map(({ fault }) => fault));
  expect([...cases].filter((fault) => !named.has(fault ?? ''))).toEqual([]);
});

test('docs/health.md: the numbers are those of the code', () => {
  const numbers = { 4: 'four' } as Readonly<Record<number, string>>;
  expect(page).toContain(`never sooner than ${HEDGE_FLOOR_MS} ms`);
  expect(page).toMatch(new RegExp(`Until\\s+${MIN_SAMPLES} successes are known`));
  expect(page).toContain(`connections to ${numbers[LOST_MEMBERS_OF_A_DOWN_NETWORK]} different members`);
});
