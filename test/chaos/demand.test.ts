/**
 * Random histories of demand, from nothing to heavy load and back: at no time are more members held than the rule allows,
 * and no call comes early. The pool, the source and its pace are noria's; the clock is virtual.
 */

import { expect, test } from 'vitest';
import { EventBus } from '../../src/core/events.ts';
import { type Random, randomBelow, seededRandom } from '../../src/core/random.ts';
import { Pool } from '../../src/pool/pool.ts';
import { PACE_SLACK_MS } from '../../src/refill/pace-rule.ts';
import { wantedMembers } from '../../src/refill/plan.ts';
import { Refiller } from '../../src/refill/refiller.ts';
import { rateInHours, SimulatedClients } from '../../src/refill/simulation/clients.ts';
import { SimulatedService } from '../../src/refill/simulation/service.ts';
import { SIMULATION_START_AT } from '../../src/refill/simulation/simulate.ts';
import { VirtualClock } from '../../src/refill/simulation/virtual-clock.ts';
import type { DrawCall } from '../../src/service/request.ts';
import { createTimekeeper } from '../../src/state/moment.ts';
import { createPaceMemory } from '../../src/state/pace-file.ts';
import { sourceOptions } from '../refill/rig.ts';
import { CITY, poolSettings } from '../support/pool-settings.ts';

const SIZE = 20;
const LIFETIME_MS = 180_000;
const INTERVAL_MS = 10_000;
const HISTORY_MS = 30 * 60_000;
const SAMPLE_MS = 1_000;
/** A call, the pace, and the next call. */
const AHEAD_MS = 13_000;
/** Two for the first draw, and the most that a draw adds after dead members. */
const SPARES = 5;
const SEEDS = Array.from({ length: 10 }, (_, at) => at + 1);

class RecordingService extends SimulatedService {
  readonly arrivals: number[] = [];

  protected override answer(call: DrawCall) {
    this.arrivals.push(this.options.clock.monotonic());
    return super.answer(call);
  }
}

/** Requests in periods of up to five minutes, each with a rate from none to 20 a second. */
function historyOf(random: Random): number[] {
  const moments: number[] = [];
  let at = 0;
  while (at < HISTORY_MS) {
    const endsAt = at + 10_000 + random() * 290_000;
    const perSecond = [0, 0.02, 0.1, 1, 5, 20][randomBelow(random, 6)] ?? 0;
    if (perSecond === 0) at = endsAt;
    else for (; at < endsAt; at += (-Math.log(1 - random()) * 1_000) / perSecond) moments.push(at);
  }
  return moments;
}

test.each(SEEDS)('chaos demand: no member too many and no early call (seed %i)', async (seed) => {
  const random = seededRandom(seed);
  const moments = historyOf(random);
  const dead = [0, 0.1, 0.3][seed % 3] ?? 0;
  const clock = new VirtualClock(SIMULATION_START_AT);
  const bus = new EventBus((_name, error) => {
    throw error;
  });
  const vendor = { dead, slow: 0.05, early: 0.1 };
  const service = new RecordingService({
    ...{ clock, random, vendor },
    lifetimeMs: () => [LIFETIME_MS, LIFETIME_MS],
  });
  const settings = poolSettings({ sources: [{ ...CITY, size: SIZE }] });
  const pool = new Pool({ ...settings, clock, random, bus, forecasts: () => refiller.forecasts() });
  const refiller = new Refiller({ clock, random, bus, pool });
  const elapsedMs = () => clock.monotonic();
  const boot = { id: 'chaos', elapsedMs, uptimeMs: elapsedMs };
  refiller.open({
    sources: [sourceOptions({ size: SIZE, intervalMs: INTERVAL_MS, count: 20 })],
    ...{ fill: 'demand', idleAfterMs: 300_000, callTimeoutMs: 10_000 },
    pace: createPaceMemory(createTimekeeper(clock, boot)),
    extractor: service,
  });
  const load = { ratesByHour: rateInHours(1), tunnelMs: 2_000, moments } as const;
  const clients = new SimulatedClients({
    ...{ clock, random, bus, pool, service, load },
    waitForMemberMs: 15_000,
  });
  /** What the rule allowed at each moment of the last life of a member. */
  const allowed: { readonly at: number; readonly members: number }[] = [];
  let excess = 0;
  let most = 0;
  for (let at = SAMPLE_MS; at <= HISTORY_MS; at += SAMPLE_MS) {
    await clock.runUntil(at);
    const demand = pool.demand('city');
    const rule = {
      size: SIZE,
      fill: 'demand',
      idleAfterMs: 300_000,
      lifetimeMs: LIFETIME_MS,
      atLeast: 0,
    } as const;
    const needed = Math.max(wantedMembers({ ...rule, demand }), Math.min(SIZE, demand.waiting));
    allowed.push({ at, members: needed });
    while ((allowed[0]?.at ?? at) < at - LIFETIME_MS - 2 * INTERVAL_MS) allowed.shift();
    const peak = Math.max(...allowed.map(({ members }) => members));
    // Members that end before the next call can deliver are being replaced, so they do not count.
    const held = pool.stockAt('city', at + AHEAD_MS).usable;
    most = Math.max(most, held);
    excess = Math.max(excess, held - Math.ceil(peak / (1 - dead) / (1 - dead)) - SPARES);
  }
  clients.stop();
  await refiller.close();
  pool.close();
  const gaps = service.arrivals.slice(1).map((arrival, index) => arrival - (service.arrivals[index] ?? 0));
  expect(most, 'members were held').toBeGreaterThan(1);
  expect(excess, 'members above the rule').toBeLessThanOrEqual(0);
  expect(gaps.length).toBeGreaterThan(1);
  expect(Math.min(...gaps), 'the shortest time between two calls').toBeGreaterThanOrEqual(
    INTERVAL_MS + PACE_SLACK_MS,
  );
  expect(clients.endings.noMember, 'clients without a member').toBe(0);
});
