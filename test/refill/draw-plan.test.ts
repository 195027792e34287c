import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type DrawInputs, planDraw } from '../../src/refill/draw-plan.ts';

const GAP_MS = 10_250;
const LATENCY_MS = 1_000;
const LEAD_MS = GAP_MS + LATENCY_MS;

/** Members by the ms at which they end, seen at 0. */
function stockOf(endings: readonly number[]) {
  const usableAt = (at: number) => endings.filter((end) => end > at).length;
  const nextLossAt = (after: number) => {
    const later = endings.filter((end) => end > after && end !== Infinity);
    return later.length === 0 ? undefined : Math.min(...later);
  };
  return { usableAt, heldAt: usableAt, nextLossAt };
}

function need(endings: readonly number[], changes: Partial<DrawInputs> = {}): DrawInputs {
  return {
    now: 0,
    stock: stockOf(endings),
    demand: { waiting: 0, lastWantedAt: 0, usedUpPerSecond: 0 },
    size: 5,
    idleAfterMs: 300_000,
    startInMs: 0,
    gapMs: GAP_MS,
    latencyMs: LATENCY_MS,
    mostPerCall: 5,
    allowance: Infinity,
    asked: false,
    ...changes,
  };
}

const demand = (changes: Partial<DrawInputs['demand']>): Partial<DrawInputs> => ({
  demand: { waiting: 0, lastWantedAt: 0, usedUpPerSecond: 0, ...changes },
});
const ALIVE = 600_000;
const all = (count: number, end = ALIVE) => new Array<number>(count).fill(end);

test('demand: what is missing is asked for, at most so much for one call', () => {
  expect(planDraw(need([]))).toEqual({ kind: 'draw', count: 5, urgent: false });
  expect(planDraw(need(all(3)))).toEqual({ kind: 'draw', count: 2, urgent: false });
  expect(planDraw(need([], { size: 20 }))).toMatchObject({ count: 5 });
  expect(planDraw(need(all(19), { size: 20, mostPerCall: 20 }))).toMatchObject({ count: 1 });
});

test('demand: who ends before the draw after the next one can land is replaced now', () => {
  expect(planDraw(need([...all(4), LEAD_MS]))).toMatchObject({ kind: 'draw', count: 1 });
  const later = planDraw(need([...all(4), LEAD_MS + 5_000]));
  expect(later).toEqual({ kind: 'served', lookAt: 5_001 });
});

test('demand: the time until the pace lets a call go counts to the lead', () => {
  const endings = [...all(4), LEAD_MS + 4_000];
  expect(planDraw(need(endings))).toMatchObject({ kind: 'served' });
  expect(planDraw(need(endings, { startInMs: 4_000 }))).toMatchObject({ kind: 'draw', count: 1 });
});

test('demand: nothing is drawn while no client has come for long, unless a person asks or 0 says never to stop', () => {
  const quiet = { now: 300_000 };
  expect(planDraw(need([], quiet)).kind).toBe('idle');
  expect(planDraw(need([], { now: 299_999 })).kind).toBe('draw');
  expect(planDraw(need([], { ...quiet, asked: true })).kind).toBe('draw');
  expect(planDraw(need([], { ...quiet, idleAfterMs: 0 })).kind).toBe('draw');
  expect(planDraw(need([], { ...quiet, ...demand({ waiting: 1 }) })).kind).toBe('draw');
});

test('demand: one that is served looks again when it may have become idle', () => {
  expect(planDraw(need(all(5, Infinity)))).toEqual({ kind: 'served', lookAt: 300_000 });
  expect(planDraw(need(all(5, Infinity), { idleAfterMs: 0 }))).toEqual({ kind: 'served', lookAt: Infinity });
});

test('demand: members that clients use up are replaced at the rate at which they do', () => {
  const plan = planDraw(need(all(5), { ...demand({ usedUpPerSecond: 0.2 }), mostPerCall: 10 }));
  expect(plan).toMatchObject({ kind: 'draw', count: Math.ceil((0.2 * LEAD_MS) / 1_000) });
  const enough = planDraw(need(all(8), demand({ usedUpPerSecond: 0.2 })));
  expect(enough).toEqual({ kind: 'served', lookAt: LEAD_MS });
});

test('demand: a client that waits is helped at once where every member rests, by no more than one for each who waits', () => {
  // All five rest, and are back at the horizon.
  const resting = {
    usableAt: (at: number) => (at < 10_000 ? 0 : 5),
    heldAt: () => 5,
    nextLossAt: () => undefined,
  };
  const waiting = (count: number) => planDraw(need([], { stock: resting, ...demand({ waiting: count }) }));
  expect(planDraw(need([], { stock: resting })).kind).toBe('served');
  expect(waiting(2)).toEqual({ kind: 'draw', count: 2, urgent: true });
  expect(waiting(100)).toEqual({ kind: 'draw', count: 5, urgent: true });
});

test('demand: the pool never comes above its size and one draw, ended ones that are still there and resting ones counted', () => {
  const resting = { usableAt: () => 1, heldAt: () => 9, nextLossAt: () => undefined };
  expect(planDraw(need([], { stock: resting }))).toMatchObject({ kind: 'draw', count: 1 });
  const nextLossAt = (after: number) => (after < 2_000 ? 2_000 : undefined);
  const full = { ...resting, heldAt: () => 10, nextLossAt };
  expect(planDraw(need([], { stock: full }))).toEqual({ kind: 'served', lookAt: 2_000 });
});

test('demand: budget and quota bound it, and their end is told', () => {
  expect(planDraw(need([], { allowance: 3 }))).toMatchObject({ kind: 'draw', count: 3 });
  expect(planDraw(need([], { allowance: 0 }))).toEqual({ kind: 'spent', missing: 5 });
  expect(planDraw(need(all(5), { allowance: 0 }))).toMatchObject({ kind: 'served' });
});

test('demand: whatever the stock, it asks for at most what is missing, and never looks again at once', () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: -1_000, max: 700_000 }), { maxLength: 40 }),
      fc.integer({ min: 1, max: 30 }),
      fc.integer({ min: 1, max: 20 }),
      fc.integer({ min: 0, max: 30 }),
      (endings, size, mostPerCall, waiting) => {
        const stock = stockOf(endings);
        const plan = planDraw(need(endings, { size, mostPerCall, ...demand({ waiting }) }));
        if (plan.kind === 'served') expect(plan.lookAt).toBeGreaterThanOrEqual(50);
        if (plan.kind !== 'draw') return;
        expect(plan.count).toBeGreaterThanOrEqual(1);
        expect(plan.count).toBeLessThanOrEqual(Math.min(mostPerCall, size - stock.usableAt(LEAD_MS)));
        expect(stock.usableAt(0) + plan.count).toBeLessThanOrEqual(size + mostPerCall);
      },
    ),
  );
});
