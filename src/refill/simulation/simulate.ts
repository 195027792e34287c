/**
 * Simulates days in seconds: the real pool and the real sources run on a virtual clock, with a simulated service and
 * simulated clients.
 */
import { DAY_MS } from '../../core/duration.ts';
import { EventBus } from '../../core/events.ts';
import { seededRandom } from '../../core/random.ts';
import { Pool } from '../../pool/pool.ts';
import { SERVICE_ZONE_OFFSET_MS } from '../../service/codes.ts';
import type { DrawCall } from '../../service/request.ts';
import { createTimekeeper } from '../../state/moment.ts';
import { createPaceMemory } from '../../state/pace-file.ts';
import { Refiller } from '../refiller.ts';
import { SimulatedClients } from './clients.ts';
import type { Range, SimulationOptions } from './options.ts';
import { type SimulationReport, summarizeWaits } from './report.ts';
import { SimulatedService, typicalLifetimeMs } from './service.ts';
import { VirtualClock } from './virtual-clock.ts';

/** A midnight of the service, so that a simulated day is a day of the service. */
export const SIMULATION_START_AT = Date.UTC(2030, 0, 1) - SERVICE_ZONE_OFFSET_MS;
/**
 * The time in ms for which the simulation continues after the last client has arrived, so that tunnels end and members
 * expire.
 */
const ENDING_MS = 3_600_000;

/** @throws only if noria has a bug. */
export async function simulate(options: SimulationOptions): Promise<SimulationReport> {
  const { refill, load, waitForMemberMs, days, seed } = options;
  const clock = new VirtualClock(SIMULATION_START_AT);
  const random = seededRandom(seed);
  const bus = new EventBus((_name, error) => {
    throw error;
  });
  const service = new SimulatedService({ clock, random, lifetimeMs: lifetimesOf(options) });
  const pool = new Pool({ ...options.pool, clock, random, bus, forecasts: () => refiller.forecasts() });
  const elapsedMs = () => clock.monotonic();
  const boot = { id: 'simulated', elapsedMs, uptimeMs: elapsedMs };
  const refiller = new Refiller({ clock, random, bus, pool });
  refiller.open({
    ...refill,
    // Simulated members need no probe. Their protocol has no effect, because no client connects to them.
    sources: refill.sources.map((source) => ({ ...source, unproven: false, protocol: 'http' })),
    pace: createPaceMemory(createTimekeeper(clock, boot)),
    extractor: service,
  });
  const clients = new SimulatedClients({ clock, random, bus, pool, service, load, waitForMemberMs });
  await clock.runUntil(days * DAY_MS);
  clients.stop();
  await clock.runUntil(days * DAY_MS + ENDING_MS);
  await refiller.close();
  pool.close();
  service.sweep();
  return {
    days,
    seed,
    calls: Object.fromEntries(service.calls),
    drawn: service.drawn,
    used: service.used,
    wasted: service.wasted,
    clients: clients.endings,
    waits: summarizeWaits(clients.waits),
    longestEmptyMs: clients.longestEmptyMs,
  };
}

/**
 * Returns a function that gives the range of lifetimes of a call's members. A link without a configured lifetime has
 * the lifetime that the pool assumes. Any other source has the usual range of its product.
 */
function lifetimesOf({ refill, pool }: SimulationOptions): (call: DrawCall) => Range {
  const assumedMs = new Map(pool.sources.map(({ name, unknownLifetimeMs }) => [name, unknownLifetimeMs]));
  const links = new Map(
    refill.sources.flatMap(({ name, call, defaultLifetimeMs }): [string, Range][] => {
      const ms = defaultLifetimeMs === undefined ? assumedMs.get(name) : undefined;
      return call.product === 'link' && ms !== undefined ? [[call.instance, [ms, ms]]] : [];
    }),
  );
  return (call) => links.get(call.instance) ?? typicalLifetimeMs(call);
}
