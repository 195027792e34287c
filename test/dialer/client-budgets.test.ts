import { expect, test } from 'vitest';
import { BURST, ClientBudgets, PER_SECOND } from '../../src/dialer/client-budgets.ts';
import { ManualClock } from '../support/manual-clock.ts';

test('client budgets: a client may spend its burst, then what each second adds', () => {
  const clock = new ManualClock();
  const budgets = new ClientBudgets(clock);
  const spend = () => {
    let spent = 0;
    for (; budgets.allows('mallory'); spent += 1) budgets.charge('mallory', 1);
    return spent;
  };
  expect(spend()).toBe(BURST);
  clock.advance(1_000);
  expect(spend()).toBe(PER_SECOND);
  clock.advance(3_600_000);
  expect(spend(), 'never more than the burst').toBe(BURST);
  expect(budgets.allows('alice'), 'another client').toBe(true);
});

test('client budgets: a tenth of the attempts of all clients is added', () => {
  const budgets = new ClientBudgets(new ManualClock());
  budgets.charge('mallory', BURST);
  for (let attempt = 0; attempt < 9; attempt += 1) budgets.attempted();
  expect(budgets.allows('mallory')).toBe(false);
  for (let attempt = 0; attempt < 2; attempt += 1) budgets.attempted();
  expect(budgets.allows('mallory')).toBe(true);
});
