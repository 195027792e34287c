import { expect, test } from 'vitest';
import type { SimulationOptions } from '../../../src/refill/simulation/options.ts';
import { formatReport } from '../../../src/refill/simulation/report.ts';
import { simulate } from '../../../src/refill/simulation/simulate.ts';
import { calmTrial } from './calm-trial.ts';

const simulateCalm = (changes: Partial<SimulationOptions> = {}) => simulate({ ...calmTrial(), ...changes });
const calm = await simulateCalm();

test('simulation: the same seed gives the same result, another seed another one', async () => {
  expect(await simulateCalm()).toEqual(calm);
  expect((await simulateCalm({ seed: 8 })).clients).not.toEqual(calm.clients);
});

test('simulation: every client is served, only the first one waits, and every member ends used or wasted', () => {
  const { clients, waits, calls, drawn, used, wasted } = calm;
  expect(clients).toMatchObject({ noMember: 0, membersFailed: 0 });
  expect(clients.served).toBeGreaterThan(5_000);
  expect(waits.count).toBeLessThanOrEqual(1);
  expect(Object.keys(calls)).toEqual(['10001']);
  expect(used + wasted).toBe(drawn);
});

test('simulation: clients arrive in the active hours only', async () => {
  const hour = await simulateCalm({ load: { ...calmTrial().load, activeHours: [8, 9] } });
  expect(calm.clients.served / hour.clients.served).toBeGreaterThan(18);
  expect(calm.clients.served / hour.clients.served).toBeLessThan(32);
});

test('simulation: a day without clients costs one call', async () => {
  const load = { requestsPerMinute: 1e-9, activeHours: [0, 24], tunnelMs: 1 } as const;
  const { calls, drawn } = await simulateCalm({ load });
  expect(calls).toEqual({ 10001: 1 });
  expect(drawn).toBe(5);
});

test('simulation: the report lists the figures', () => {
  expect(formatReport(calm).split('\n')).toEqual([
    expect.stringMatching(/^simulated +1 day, seed 1$/),
    expect.stringMatching(/^calls +\d+ \(\d+ a day\): 10001 \d+$/),
    expect.stringMatching(/^members drawn +\d+ \(\d+ a day\)$/),
    expect.stringMatching(/^ {2}used +\d+ \([\d.]+ %\)$/),
    expect.stringMatching(/^ {2}wasted +\d+ \([\d.]+ %\): expired unused$/),
    expect.stringMatching(/^client requests +\d+, [\d.]+ per drawn member$/),
    expect.stringMatching(/^ {2}served +\d+ \(100 %\)$/),
    expect.stringMatching(/^ {2}no member in time +0$/),
    expect.stringMatching(/^ {2}members failed +0$/),
    expect.stringMatching(/^requests that waited +/),
    expect.stringMatching(/^longest time without a member +/),
  ]);
});
