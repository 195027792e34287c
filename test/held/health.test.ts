import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { FaultCode } from '../../src/core/faults.ts';
import { blameFor, type Evidence, type FailedAttempt } from '../../src/dialer/blame.ts';
import { MIN_HEDGE_DELAY_MS } from '../../src/dialer/limits.ts';
import { MIN_LOST_MEMBERS } from '../../src/dialer/reachability.ts';
import { MIN_SAMPLES } from '../../src/dialer/source-memory.ts';

const page = readFileSync('docs/health.md', 'utf8');
const rows = [...page.matchAll(/^\| `([a-z-]+)` \| (connect|answer|done) \| ([^|]+) \| ([a-z-]+) \|$/gm)].map(
  ([, fault = '', phase = '', text = '', blame = '']) => ({ fault, phase, text: text.trim(), blame }),
);

/** The evidence that each text on the page means. */
const EVIDENCE: Readonly<Record<string, Partial<Evidence> & { readonly detail?: string }>> = {
  'nothing else': {},
  'our network is down': { networkDown: true },
  'this machine is out of sockets or ports': { detail: 'EMFILE' },
  'another member reached the target': { reachedByOther: true },
  'similar failure of another member': { similarFailures: 2 },
  'similar failure of another member; the source works': { similarFailures: 2, sourceWorked: true },
  'the client left': { clientLeft: true, similarFailures: 2 },
  'most members refuse': { sourceFaulty: true },
  'other members accept the same credentials': { credentialsWork: true },
};

test('docs/health.md: every row of the table of blame matches the code', () => {
  expect(rows.length, 'found no table').toBeGreaterThan(20);
  for (const { fault, phase, text, blame } of rows) {
    const known = EVIDENCE[text];
    expect(known, `no evidence for "${text}"`).toBeDefined();
    const { detail = '', ...evidence } = known ?? {};
    const decided = blameFor(
      { fault: fault as FaultCode, phase: phase as FailedAttempt['phase'], detail },
      {
        reachedByOther: false,
        clientLeft: false,
        similarFailures: 1,
        sourceWorked: false,
        sourceFaulty: false,
        credentialsWork: false,
        networkDown: false,
        ...evidence,
      },
    );
    expect(`${fault} in ${phase}, ${text}: ${decided}`).toBe(`${fault} in ${phase}, ${text}: ${blame}`);
  }
});

test('docs/health.md: the table contains every fault of an attempt', () => {
  const source = readFileSync('src/dialer/blame.ts', 'utf8');
  const body = source.slice(source.indexOf('export function blameFor'));
  const cases = new Set([...body.matchAll(/case '([a-z-]+)':/g)].map(([, fault]) => fault));
  expect(cases.size, 'found no cases').toBeGreaterThan(5);
  const named = new Set(rows.map(({ fault }) => fault));
  expect([...cases].filter((fault) => !named.has(fault ?? ''))).toEqual([]);
});

test('docs/health.md: the numbers match the code', () => {
  const text = page.replace(/\s+/g, ' ');
  const words: Readonly<Record<number, string>> = { 4: 'four' };
  expect(text).toContain(`never below ${MIN_HEDGE_DELAY_MS} ms`);
  expect(text).toContain(`Until ${MIN_SAMPLES} successes are known`);
  expect(text).toContain(`connections to ${words[MIN_LOST_MEMBERS]} different members`);
});
