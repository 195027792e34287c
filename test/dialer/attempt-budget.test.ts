import { expect, test } from 'vitest';
import {
  AttemptBudget,
  FAST_FAILURE_MS,
  MOST_TRIES,
  SECOND_OPINION_WAIT_MS,
} from '../../src/dialer/attempt-budget.ts';

const SETTINGS = { attempts: 3, deadlineMs: 30_000, waitForMemberMs: 15_000 };
const NOTHING = { running: 0, doubts: 0 };

test('allowance: slow failures are as many as the attempts, those under way counted', () => {
  const allowance = new AttemptBudget(SETTINGS);
  allowance.failed(FAST_FAILURE_MS);
  expect(allowance.mayTryAnother({ ...NOTHING, running: 1 }, false)).toBe(true);
  expect(allowance.mayTryAnother({ ...NOTHING, running: 2 }, false)).toBe(false);
  allowance.failed(5_000);
  allowance.failed(5_000);
  expect(allowance.mayTryAnother(NOTHING, false)).toBe(false);
});

test('allowance: fast failures do not count, up to ten tries in all', () => {
  const allowance = new AttemptBudget(SETTINGS);
  for (let time = 0; time < MOST_TRIES; time += 1) {
    expect(allowance.mayTryAnother(NOTHING, false)).toBe(true);
    allowance.tried();
    allowance.failed(FAST_FAILURE_MS - 1);
  }
  expect([allowance.triedCount, allowance.mayTryAnother(NOTHING, false)]).toEqual([10, false]);
});

test('allowance: two opinions settle that a target is unreachable, five where it was reached a moment ago', () => {
  const may = (doubts: number, reachable: boolean) =>
    new AttemptBudget(SETTINGS).mayTryAnother({ ...NOTHING, doubts }, reachable);
  expect([may(1, false), may(2, false), may(4, true), may(5, true)]).toEqual([true, false, true, false]);
});

test('allowance: waiting is limited by itself, by the deadline, and for a second opinion', () => {
  const allowance = new AttemptBudget(SETTINGS);
  expect(allowance.mayWaitMs(0, NOTHING)).toBe(15_000);
  allowance.waited(4_000);
  expect(allowance.mayWaitMs(4_000, NOTHING)).toBe(11_000);
  expect(allowance.mayWaitMs(29_000, NOTHING)).toBe(1_000);
  expect(allowance.mayWaitMs(31_000, NOTHING)).toBe(0);
  expect(allowance.mayWaitMs(4_000, { ...NOTHING, doubts: 1 })).toBe(SECOND_OPINION_WAIT_MS);
  expect(allowance.mayWaitMs(29_500, { ...NOTHING, doubts: 1 })).toBe(500);
});
