import fc from 'fast-check';
import { expect, test } from 'vitest';
import { NO_DEMAND } from '../../src/pool/drawn-member.ts';
import { type DrawInputs, describeHolding, planDraw, wantedMembers } from '../../src/refill/plan.ts';

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
    demand: { ...NO_DEMAND, lastWantedAt: 0 },
    size: 5,
    idleAfterMs: 300_000,
    startInMs: 0,
    callCycleMs: GAP_MS,
    latencyMs: LATENCY_MS,
    maxPerCall: 5,
    quotaLeft: Infinity,
    fill: 'size',
    lifetimeMs: 180_000,
    atLeast: 0,
    deadShare: 0,
    failedInARow: 0,
    ...changes,
  };
}

const demand = (changes: Partial<DrawInputs['demand']>): Partial<DrawInputs> => ({
  demand: { ...NO_DEMAND, lastWantedAt: 0, ...changes },
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
  expect(planDraw(inputs([], { ...quiet, atLeast: 1 })).kind).toBe('draw');
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

test('draw plan: a draw is urgent if no member is left when its answer arrives', () => {
  const urgent = (end: number) => {
    const plan = planDraw(inputs([end], { ...demand({ waiting: 1 }), startInMs: 4_000 }));
    return plan.kind === 'draw' && plan.urgent;
  };
  expect([4_000 + LATENCY_MS, 4_001 + LATENCY_MS].map(urgent)).toEqual([true, false]);
});

test('draw plan: the pool never exceeds its size plus one draw, expiring and quarantined members included', () => {
  const quarantined = { countedAt: () => 1, heldAt: () => 9, nextLossAt: () => undefined };
  expect(planDraw(inputs([], { stock: quarantined }))).toMatchObject({ kind: 'draw', count: 1 });
  const nextLossAt = (after: number) => (after < 2_000 ? 2_000 : undefined);
  const full = { ...quarantined, heldAt: () => 10, nextLossAt };
  expect(planDraw(inputs([], { stock: full }))).toEqual({ kind: 'enough', checkAt: 2_000 });
  const ending = [...all(1), ...all(9, 4_000)];
  expect(planDraw(inputs(ending, { startInMs: 4_000 })), 'they end before the call').toMatchObject({
    count: 4,
  });
  expect(planDraw(inputs([2_000, ...all(5)])), 'there is room').toEqual({ kind: 'enough', checkAt: 300_000 });
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

const DEMAND: Partial<DrawInputs> = { fill: 'demand', size: 20, maxPerCall: 20 };
const perMinute = (requests: number, more: Partial<DrawInputs['demand']> = {}) =>
  demand({ perSecond: requests / 60, ...more });

test('fill demand: the members are those that the requests of a life are worth', () => {
  const held = (requests: number, more: Partial<DrawInputs> = {}) =>
    wantedMembers(inputs([], { ...DEMAND, ...perMinute(requests), ...more }));
  expect([0, 0.5, 1, 2, 4, 10, 30, 60].map((requests) => held(requests))).toEqual([0, 0, 1, 1, 3, 4, 5, 10]);
  expect(held(2_400), 'heavy load: all serve').toBe(20);
  expect(held(4, { lifetimeMs: 60_000 })).toBe(1);
  expect(held(1, perMinute(1, { held: 6 })), 'sessions and tunnels').toBe(6);
  expect(held(0, { fill: 'size' })).toBe(20);
  expect(held(0, { idleAfterMs: 0 }), 'idleAfter 0 keeps the pool full').toBe(20);
  expect(held(0, { atLeast: 2 }), 'the first draw').toBe(2);
});

test('fill demand: the status says what is held and why', () => {
  const told = (requests: number, held: number) =>
    describeHolding(inputs([], { ...DEMAND, ...perMinute(requests) }), held);
  expect(told(4, 3)).toBe('holds 3 of at most 20: 4 requests a minute, members live 3 min');
  expect(told(2_400, 20)).toBe('holds 20 of at most 20: 40 requests a second, members live 3 min');
  expect(told(60, 9)).toBe('holds 9 of at most 20: 1 request a second, members live 3 min');
  expect(told(1, 1)).toBe('holds 1 of at most 20: 1 request a minute, members live 3 min');
  expect(told(0.1, 1)).toBe('holds 1 of at most 20: 6 requests an hour, members live 3 min');
  expect(describeHolding(inputs([]), 3), 'the size').toBe('holds 3 of 5');
});

test('fill demand: at light load nothing is held, and a client that waits causes a draw of one', () => {
  const light = { ...DEMAND, ...perMinute(0.5) };
  expect(planDraw(inputs([], light))).toMatchObject({ kind: 'idle' });
  expect(planDraw(inputs(all(1), light)).kind, 'a member that lives is kept').toBe('enough');
  const waiting = { ...DEMAND, ...perMinute(0.5, { waiting: 1 }) };
  expect(planDraw(inputs([], waiting))).toEqual({ kind: 'draw', count: 1, urgent: true });
  expect(planDraw(inputs([], { ...waiting, failedInARow: 1 })), 'the last one was dead').toMatchObject({
    count: 2,
  });
});

test('fill demand: a lost member is replaced only while the demand needs it', () => {
  const busy = { ...DEMAND, ...perMinute(43) };
  expect(planDraw(inputs(all(7), busy)).kind).toBe('enough');
  expect(planDraw(inputs(all(4), busy))).toMatchObject({ kind: 'draw', count: 3 });
  expect(planDraw(inputs(all(4), { ...busy, deadShare: 0.2 }))).toMatchObject({ count: 4 });
  expect(planDraw(inputs(all(6), { ...busy, deadShare: 0.2 })), 'one needs no spare').toMatchObject({
    count: 1,
  });
  expect(planDraw(inputs(all(20), { ...DEMAND, ...perMinute(1) })).kind, 'from full to light').toBe('enough');
});

test('fill demand: while clients come, the plan is made again each second', () => {
  const recent = { now: 10_000, ...perMinute(4, { lastWantedAt: 9_000 }) };
  const later = { now: 10_000, ...perMinute(4, { lastWantedAt: 7_000 }) };
  expect(planDraw(inputs(all(3), { ...DEMAND, ...recent }))).toEqual({ kind: 'enough', checkAt: 11_000 });
  expect(planDraw(inputs(all(3), { ...DEMAND, ...later }))).toEqual({ kind: 'enough', checkAt: 307_000 });
});

test('fill demand: for any demand it draws for waiting clients, and never more than the rule allows', () => {
  const share = fc.double({ min: 0, max: 0.8, noNaN: true });
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: 1, max: 700_000 }), { maxLength: 40 }),
      fc.double({ min: 0, max: 50, noNaN: true }),
      fc.record({ waiting: fc.integer({ min: 0, max: 60 }), held: fc.integer({ min: 0, max: 60 }) }),
      fc.record({ deadShare: share, failedInARow: fc.integer({ min: 0, max: 9 }) }),
      fc.record({ size: fc.integer({ min: 1, max: 40 }), maxPerCall: fc.integer({ min: 1, max: 20 }) }),
      (expiries, perSecond, { waiting, held }, history, limits) => {
        const given = { ...DEMAND, ...history, ...limits, ...demand({ perSecond, waiting, held }) };
        const plan = planDraw(inputs(expiries, given));
        const alive = stockOf(expiries).countedAt(HORIZON_MS);
        const wanted = wantedMembers(inputs(expiries, given));
        expect(wanted).toBeLessThanOrEqual(limits.size);
        const room = limits.size + limits.maxPerCall > stockOf(expiries).heldAt(0);
        if ((alive < wanted && room) || (waiting > 0 && stockOf(expiries).countedAt(LATENCY_MS) === 0))
          expect(plan.kind).toBe('draw');
        if (plan.kind !== 'draw') return;
        const needed = Math.max(wanted - alive, Math.min(waiting, limits.size));
        expect(needed, 'a draw that nobody needs').toBeGreaterThan(0);
        const spares = Math.max(needed / (1 - history.deadShare) - needed + 1, history.failedInARow);
        expect(plan.count).toBeLessThanOrEqual(Math.min(limits.maxPerCall, Math.ceil(needed + spares)));
      },
    ),
    { numRuns: 2_000 },
  );
});
