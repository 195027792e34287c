import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type DrawInputs, planDraw } from '../../src/refill/plan.ts';

const GAP_MS = 10_250;
const LATENCY_MS = 1_000;
const HORIZON_MS = GAP_MS + LATENCY_MS;

/** A stock of members that expire at these times in ms; now is 0. */
function stockOf(expiries: readonly number[]) {
  const countedAt = (at: number) => expiries.filter((end) => end > at).length;
  const nextLossAt = (after: number) => {
    const later = expiries.filter((end) => end > after && end !== Infinity);
    return later.length === 0 ? undefined : Math.min(...later);
  };
  return { countedAt, heldAt: countedAt, nextLossAt };
}

function inputs(expiries: readonly number[], changes: Partial<DrawInputs> = {}): DrawInputs {
  return {
    now: 0,
    stock: stockOf(expiries),
    demand: { waiting: 0, lastWantedAt: 0, usedUpPerSecond: 0 },
    size: 5,
    idleAfterMs: 300_000,
    startInMs: 0,
    callCycleMs: GAP_MS,
    latencyMs: LATENCY_MS,
    maxPerCall: 5,
    quotaLeft: Infinity,
    despiteNoDemand: false,
    ...changes,
  };
}

const demand = (changes: Partial<DrawInputs['demand']>): Partial<DrawInputs> => ({
  demand: { waiting: 0, lastWantedAt: 0, usedUpPerSecond: 0, ...changes },
});
const ALIVE = 600_000;
const all = (count: number, end = ALIVE) => new Array<number>(count).fill(end);

test('draw plan: it requests the missing members, up to the maximum per call', () => {
  expect(planDraw(inputs([]))).toEqual({ kind: 'draw', count: 5, urgent: false });
  expect(planDraw(inputs(all(3)))).toEqual({ kind: 'draw', count: 2, urgent: false });
  expect(planDraw(inputs([], { size: 20 }))).toMatchObject({ count: 5 });
  expect(planDraw(inputs(all(19), { size: 20, maxPerCall: 20 }))).toMatchObject({ count: 1 });
});

test('draw plan: a member that expires before the following draw can deliver is replaced now', () => {
  expect(planDraw(inputs([...all(4), HORIZON_MS]))).toMatchObject({ kind: 'draw', count: 1 });
  const later = planDraw(inputs([...all(4), HORIZON_MS + 5_000]));
  expect(later).toEqual({ kind: 'enough', checkAt: 5_001 });
});

test('draw plan: the wait for the pace counts towards the horizon', () => {
  const expiries = [...all(4), HORIZON_MS + 4_000];
  expect(planDraw(inputs(expiries))).toMatchObject({ kind: 'enough' });
  expect(planDraw(inputs(expiries, { startInMs: 4_000 }))).toMatchObject({ kind: 'draw', count: 1 });
});

test('draw plan: without clients nothing is drawn, unless the operator requests it or idleAfter is 0', () => {
  const quiet = { now: 300_000 };
  expect(planDraw(inputs([], quiet)).kind).toBe('idle');
  expect(planDraw(inputs([], { now: 299_999 })).kind).toBe('draw');
  expect(planDraw(inputs([], { ...quiet, despiteNoDemand: true })).kind).toBe('draw');
  expect(planDraw(inputs([], { ...quiet, idleAfterMs: 0 })).kind).toBe('draw');
  expect(planDraw(inputs([], { ...quiet, ...demand({ waiting: 1 }) })).kind).toBe('draw');
});

test('draw plan: a source with enough members checks again when it may become idle', () => {
  expect(planDraw(inputs(all(5, Infinity)))).toEqual({ kind: 'enough', checkAt: 300_000 });
  expect(planDraw(inputs(all(5, Infinity), { idleAfterMs: 0 }))).toEqual({
    kind: 'enough',
    checkAt: Infinity,
  });
});

test('draw plan: members that clients use up are replaced at the same rate', () => {
  const plan = planDraw(inputs(all(5), { ...demand({ usedUpPerSecond: 0.2 }), maxPerCall: 10 }));
  expect(plan).toMatchObject({ kind: 'draw', count: Math.ceil((0.2 * HORIZON_MS) / 1_000) });
  const enough = planDraw(inputs(all(8), demand({ usedUpPerSecond: 0.2 })));
  expect(enough).toEqual({ kind: 'enough', checkAt: HORIZON_MS });
});

test('draw plan: clients that wait while all members are quarantined cause a draw of at most one member each', () => {
  // All five members are quarantined, and usable again at the horizon.
  const quarantined = {
    countedAt: (at: number) => (at < 10_000 ? 0 : 5),
    heldAt: () => 5,
    nextLossAt: () => undefined,
  };
  const waiting = (count: number) =>
    planDraw(inputs([], { stock: quarantined, ...demand({ waiting: count }) }));
  expect(planDraw(inputs([], { stock: quarantined })).kind).toBe('enough');
  expect(waiting(2)).toEqual({ kind: 'draw', count: 2, urgent: true });
  expect(waiting(100)).toEqual({ kind: 'draw', count: 5, urgent: true });
});

test('draw plan: the pool never exceeds its size plus one draw, expiring and quarantined members included', () => {
  const quarantined = { countedAt: () => 1, heldAt: () => 9, nextLossAt: () => undefined };
  expect(planDraw(inputs([], { stock: quarantined }))).toMatchObject({ kind: 'draw', count: 1 });
  const nextLossAt = (after: number) => (after < 2_000 ? 2_000 : undefined);
  const full = { ...quarantined, heldAt: () => 10, nextLossAt };
  expect(planDraw(inputs([], { stock: full }))).toEqual({ kind: 'enough', checkAt: 2_000 });
});

test('draw plan: budget and quota limit the count, and a used-up one is reported', () => {
  expect(planDraw(inputs([], { quotaLeft: 3 }))).toMatchObject({ kind: 'draw', count: 3 });
  expect(planDraw(inputs([], { quotaLeft: 0 }))).toEqual({ kind: 'exhausted' });
  expect(planDraw(inputs(all(5), { quotaLeft: 0 }))).toMatchObject({ kind: 'enough' });
});

test('draw plan: for any stock it requests at most what is missing and never checks again at once', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: -1_000, max: 700_000 }), { maxLength: 40 }),
      fc.integer({ min: 1, max: 30 }),
      fc.integer({ min: 1, max: 20 }),
      fc.integer({ min: 0, max: 30 }),
      (expiries, size, maxPerCall, waiting) => {
        const stock = stockOf(expiries);
        const plan = planDraw(inputs(expiries, { size, maxPerCall, ...demand({ waiting }) }));
        if (plan.kind === 'enough') expect(plan.checkAt).toBeGreaterThanOrEqual(50);
        if (plan.kind !== 'draw') return;
        expect(plan.count).toBeGreaterThanOrEqual(1);
        expect(plan.count).toBeLessThanOrEqual(Math.min(maxPerCall, size - stock.countedAt(HORIZON_MS)));
        // An urgent draw counts only members that are left when the draw arrives.
        const left = stock.countedAt(plan.urgent ? LATENCY_MS : 0);
        expect(left + plan.count).toBeLessThanOrEqual(size + maxPerCall);
      },
    ),
    { numRuns: 1_000, examples: [[[1, 1], 1, 1, 1]] },
  );
});
