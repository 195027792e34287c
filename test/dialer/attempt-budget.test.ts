import { expect, test } from 'vitest';
import {
  AttemptBudget,
  CLIENT_ATTEMPTS_PER_SECOND,
  CLIENT_BURST,
  ClientBudgets,
  FAST_FAILURE_MS,
  MAX_ATTEMPTS,
  SECOND_REPORT_WAIT_MS,
} from '../../src/dialer/attempt-budget.ts';
import { FULL_REPORT_POINTS } from '../../src/dialer/blame.ts';
import { ManualClock } from '../support/manual-clock.ts';

const SETTINGS = { attempts: 3, deadlineMs: 30_000, waitForMemberMs: 15_000 };

test('attempt budget: slow failures and running attempts are limited by dial.attempts', () => {
  const budget = new AttemptBudget(SETTINGS);
  budget.failed(FAST_FAILURE_MS);
  expect(budget.allowsAnother(1, 0, Infinity)).toBe(true);
  expect(budget.allowsAnother(2, 0, Infinity)).toBe(false);
  budget.failed(5_000);
  budget.failed(5_000);
  expect(budget.allowsAnother(0, 0, Infinity)).toBe(false);
});

test('attempt budget: fast failures do not count, up to ten attempts', () => {
  const budget = new AttemptBudget(SETTINGS);
  for (let time = 0; time < MAX_ATTEMPTS; time += 1) {
    expect(budget.allowsAnother(0, 0, Infinity)).toBe(true);
    budget.started();
    budget.failed(FAST_FAILURE_MS - 1);
  }
  expect([budget.attempts, budget.allowsAnother(0, 0, Infinity)]).toEqual([10, false]);
});

test('attempt budget: two members decide that a target is unreachable, five if it was reached recently, none if just now', () => {
  const allows = (reports: number, sinceReachedMs: number) =>
    new AttemptBudget(SETTINGS).allowsAnother(0, reports * FULL_REPORT_POINTS, sinceReachedMs);
  expect([allows(1, Infinity), allows(2, Infinity)]).toEqual([true, false]);
  expect([allows(4, 5_001), allows(5, 5_001)]).toEqual([true, false]);
  expect(allows(9, 5_000)).toBe(true);
});

test('attempt budget: the wait is limited by waitForMember, by the deadline, and for a second report', () => {
  const budget = new AttemptBudget(SETTINGS);
  expect(budget.maxWaitMs(0, 0)).toBe(15_000);
  budget.waited(4_000);
  expect(budget.maxWaitMs(4_000, 0)).toBe(11_000);
  expect(budget.maxWaitMs(29_000, 0)).toBe(1_000);
  expect(budget.maxWaitMs(31_000, 0)).toBe(0);
  expect(budget.maxWaitMs(4_000, FULL_REPORT_POINTS)).toBe(SECOND_REPORT_WAIT_MS);
  expect(budget.maxWaitMs(29_500, FULL_REPORT_POINTS)).toBe(500);
});

test('client budgets: a client may spend its burst, then what each second adds', () => {
  const clock = new ManualClock();
  const budgets = new ClientBudgets(clock);
  const spend = () => {
    let spent = 0;
    for (; budgets.allows('mallory'); spent += 1) budgets.charge('mallory', 1);
    return spent;
  };
  expect(spend()).toBe(CLIENT_BURST);
  clock.advance(1_000);
  expect(spend()).toBe(CLIENT_ATTEMPTS_PER_SECOND);
  clock.advance(3_600_000);
  expect(spend(), 'never more than the burst').toBe(CLIENT_BURST);
  expect(budgets.allows('alice'), 'another client').toBe(true);
});

test('client budgets: a tenth of the attempts of all clients is added', () => {
  const budgets = new ClientBudgets(new ManualClock());
  budgets.charge('mallory', CLIENT_BURST);
  for (let attempt = 0; attempt < 9; attempt += 1) budgets.attempted();
  expect(budgets.allows('mallory')).toBe(false);
  for (let attempt = 0; attempt < 2; attempt += 1) budgets.attempted();
  expect(budgets.allows('mallory')).toBe(true);
});
