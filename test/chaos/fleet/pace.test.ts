/**
 * Random schedules of faults test the pace of a fleet: norias are killed, stopped and cut off; the store hangs,
 * restarts, is emptied, or fails over to a replica that lacks the last writes. `NORIA_FLEET_RUNS` is the number of
 * schedules. A run of all tests plays few of them, because `.ci/run` plays 300 in a separate step. `NORIA_FLEET_SEED` is
 * the seed of fast-check that a failure prints.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freePort } from '../../support/free-port.ts';
import { NO_STORE, TestStore } from '../../support/store-server.ts';
import { type Fault, PaceSimulation, type Schedule } from './pace-simulation.ts';
import type { Defect } from './simulated-noria.ts';
import { useVirtualTime, type VirtualStoreTime } from './virtual-store-time.ts';

const RUNS = Number(process.env['NORIA_FLEET_RUNS'] ?? 10);
const SEED = process.env['NORIA_FLEET_SEED'];
/** The maximum number of runs. A few usually find a defect. */
const MOST_RUNS = 500;
const LIMIT_MS = 24 * 3_600_000;

const who = fc.nat(2);
const at = fc.constantFrom('now' as const, 'claim' as const, 'call' as const);
const lostMs = fc.integer({ min: 100, max: 2_000 });
const fault: fc.Arbitrary<Fault> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ kind: fc.constantFrom('kill' as const, 'stop' as const), who, at }) },
  {
    weight: 2,
    arbitrary: fc.record({ kind: fc.constant('stop' as const), who, at: fc.constant('claim' as const) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constantFrom('continue' as const, 'cut' as const, 'heal' as const),
      who,
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constant('failover' as const), lostMs }) },
  { weight: 2, arbitrary: fc.constant({ kind: 'empty' as const }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom('restart' as const, 'hang' as const) }) },
);
const schedule: fc.Arbitrary<Schedule> = fc.record({
  seed: fc.nat(1_000_000),
  norias: fc.integer({ min: 2, max: 3 }),
  faults: fc.array(fc.record({ afterMs: fc.integer({ min: 20, max: 4_000 }), fault }), {
    minLength: 1,
    maxLength: 8,
  }),
});

describe.skipIf(NO_STORE)('with a store', () => {
  let server: TestStore;
  let time: VirtualStoreTime;
  beforeAll(async () => {
    server = new TestStore(await freePort(), { args: ['--appendonly', 'yes', '--appendfsync', 'no'] });
    await server.start();
    time = useVirtualTime();
  });
  afterAll(async () => {
    time.restore();
    await server.close();
  });

  const play = (each: Schedule, defect: Defect) => new PaceSimulation(server, time, each, defect).play();
  const seed = SEED === undefined ? {} : { seed: Number(SEED) };

  test(
    'fleet pace: no two calls arrive closer than the interval, whatever fails',
    async () => {
      let calls = 0;
      const property = fc.asyncProperty(schedule, async (each) => {
        const { arrivals, early } = await play(each, 'none');
        calls += arrivals.length;
        expect(early).toEqual([]);
      });
      await fc.assert(property, { numRuns: RUNS, ...seed });
      expect(calls, 'calls in all schedules').toBeGreaterThan(RUNS);
    },
    LIMIT_MS,
  );

  test.each<Defect>(['use-by', 'floor'])(
    'fleet pace: the random schedules detect a claim without %s',
    async (defect) => {
      const property = fc.asyncProperty(schedule, async (each) => {
        expect((await play(each, defect)).early).toEqual([]);
      });
      const { failed, numRuns } = await fc.check(property, {
        numRuns: MOST_RUNS,
        endOnFailure: true,
        ...seed,
      });
      if (process.env['PRINT_RUNS']) console.log(defect, 'found after', numRuns);
      expect(failed).toBe(true);
    },
    LIMIT_MS,
  );
});
