/** The plan over random demand: never more than the rule, and never later than the demand allows. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { type DrawInputs, planDraw, wantedMembers } from '../../src/refill/plan.ts';

const SECOND = 1_000;

/** Members that end at these moments; none of them is quarantined. */
function stockOf(endsAt: readonly number[]): DrawInputs['stock'] {
  const left = (moment: number) => endsAt.filter((end) => end > moment).length;
  return {
    countedAt: left,
    heldAt: left,
    nextLossAt: (after) => {
      const later = endsAt.filter((end) => end > after);
      return later.length === 0 ? undefined : Math.min(...later);
    },
  };
}

const inputs = fc
  .record({
    size: fc.integer({ min: 1, max: 40 }),
    fill: fc.constantFrom('demand', 'size'),
    waiting: fc.integer({ min: 0, max: 60 }),
    perSecond: fc.oneof(fc.constant(0), fc.double({ min: 0.001, max: 100, noNaN: true })),
    held: fc.integer({ min: 0, max: 60 }),
    usedUpPerSecond: fc.oneof(fc.constant(0), fc.double({ min: 0, max: 2, noNaN: true })),
    wantedAgoMs: fc.integer({ min: 0, max: 600 * SECOND }),
    idleAfterMs: fc.constantFrom(0, 60 * SECOND, 300 * SECOND),
    lifetimeMs: fc.integer({ min: 20 * SECOND, max: 600 * SECOND }),
    atLeast: fc.integer({ min: 0, max: 2 }),
    ends: fc.array(fc.integer({ min: 1, max: 400 * SECOND }), { maxLength: 50 }),
    startInMs: fc.integer({ min: 0, max: 20 * SECOND }),
    gapMs: fc.integer({ min: 100, max: 20 * SECOND }),
    latencyMs: fc.integer({ min: 50, max: 3 * SECOND }),
    maxPerCall: fc.integer({ min: 1, max: 30 }),
    deadShare: fc.double({ min: 0, max: 0.8, noNaN: true }),
    failedInARow: fc.integer({ min: 0, max: 12 }),
    quotaLeft: fc.oneof(fc.constant(Infinity), fc.integer({ min: 0, max: 50 })),
  })
  .map(({ wantedAgoMs, ends, gapMs, waiting, perSecond, held, usedUpPerSecond, fill, ...rest }) => {
    const now = 1e6;
    const lastWantedAt = now - wantedAgoMs;
    return {
      ...rest,
      fill: fill === 'size' ? ('size' as const) : ('demand' as const),
      now,
      demand: { waiting, stranded: 0, perSecond, held, usedUpPerSecond, lastWantedAt },
      stock: stockOf(ends.map((ms) => now + ms)),
      callCycleMs: gapMs + rest.latencyMs,
    } satisfies DrawInputs;
  });

const horizonOf = ({ now, startInMs, callCycleMs, latencyMs }: DrawInputs) =>
  now + startInMs + callCycleMs + latencyMs;
const usedUp = (given: DrawInputs) =>
  Math.ceil((given.demand.usedUpPerSecond * (horizonOf(given) - given.now)) / SECOND);

test('plan: a draw is never larger than the rule, the call and the quota allow', () => {
  fc.assert(
    fc.property(inputs, (given) => {
      const plan = planDraw(given);
      if (plan.kind !== 'draw') return;
      const { size, demand, maxPerCall, quotaLeft, deadShare, failedInARow } = given;
      expect(plan.count).toBeGreaterThanOrEqual(1);
      expect(plan.count).toBeLessThanOrEqual(Math.min(maxPerCall, quotaLeft));
      const lacking = wantedMembers(given) + usedUp(given) - given.stock.countedAt(horizonOf(given));
      const needed = Math.max(lacking, Math.min(demand.waiting, size));
      const spares = Math.max(Math.ceil(needed / (1 - deadShare)) - needed, Math.min(3, failedInARow));
      expect(plan.count, 'what the demand lacks, and spares for dead ones').toBeLessThanOrEqual(
        needed + spares,
      );
      expect(wantedMembers(given)).toBeLessThanOrEqual(size);
      const held = given.stock.heldAt(given.now + given.startInMs);
      if (!plan.urgent) expect(held + plan.count).toBeLessThanOrEqual(size + usedUp(given) + maxPerCall);
    }),
    { numRuns: 2_000 },
  );
});

test('plan: members that will be missing are drawn now, unless nobody wants them or nothing is left', () => {
  fc.assert(
    fc.property(inputs, (given) => {
      const { now, demand, idleAfterMs, atLeast, size, maxPerCall, quotaLeft, stock } = given;
      const isIdle = idleAfterMs > 0 && demand.waiting === 0 && now >= demand.lastWantedAt + idleAfterMs;
      const isLacking = wantedMembers(given) + usedUp(given) > stock.countedAt(horizonOf(given));
      const hasRoom = stock.heldAt(now + given.startInMs) < size + usedUp(given) + maxPerCall;
      if ((isIdle && atLeast === 0) || !isLacking || !hasRoom) return;
      expect(planDraw(given).kind).toBe(quotaLeft < 1 ? 'exhausted' : 'draw');
    }),
    { numRuns: 2_000 },
  );
});

test('plan: with a steady demand, no draw becomes due before the next check', () => {
  let compared = 0;
  fc.assert(
    fc.property(inputs, fc.double({ min: 0, max: 0.999, noNaN: true }), (random, share) => {
      const given = { ...random, startInMs: 0 }; // the pace allows a call
      const plan = planDraw(given);
      if (plan.kind !== 'enough' || plan.checkAt === Infinity) return;
      const waitMs = plan.checkAt - given.now;
      if (waitMs <= 50) return; // the least time between two checks
      compared += 1;
      const now = given.now + share * waitMs;
      expect(planDraw({ ...given, now }).kind, `after ${now - given.now} of ${waitMs} ms`).not.toBe('draw');
    }),
    { numRuns: 5_000 },
  );
  expect(compared).toBeGreaterThan(500);
});
