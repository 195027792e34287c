/**
 * Simulates days in seconds: the real pool and the real sources run on a virtual clock, with a simulated service and
 * simulated clients.
 */
import { DAY_MS } from '../../core/duration.ts';
import { EventBus } from '../../core/events.ts';
import { type Random, seededRandom } from '../../core/random.ts';
import { addDemand } from '../../pool/demand.ts';
import type { AddedMembers, Demand, DrawnMember } from '../../pool/drawn-member.ts';
import type { PoolSettings } from '../../pool/options.ts';
import { Pool } from '../../pool/pool.ts';
import { SERVICE_ZONE_OFFSET_MS } from '../../service/codes.ts';
import type { DrawCall } from '../../service/request.ts';
import { createTimekeeper } from '../../state/moment.ts';
import { createPaceMemory, type PaceStore } from '../../state/pace-file.ts';
import type { RefillPool, RefillSettings } from '../options.ts';
import { Refiller } from '../refiller.ts';
import { SimulatedClients, type SimulatedLoad } from './clients.ts';
import { type SimulationReport, summarize } from './report.ts';
import { type Range, SimulatedService, type SimulatedVendor, typicalLifetimeMs } from './service.ts';
import { VirtualClock } from './virtual-clock.ts';

export interface SimulationOptions {
  readonly refill: RefillSettings;
  readonly pool: PoolSettings;
  readonly waitForMemberMs: number;
  readonly days: number;
  /** The same seed gives the same result. */
  readonly seed: number;
  readonly load: SimulatedLoad;
  /** What the service's members are like. Default: all work until their promised end. */
  readonly vendor?: SimulatedVendor;
  /** Norias that share one pool. Default 1. */
  readonly replicas?: number;
  /** The price of one drawn IP by the name of the source. */
  readonly prices?: ReadonlyMap<string, number>;
}

/** A midnight of the service, so that a simulated day is a day of the service. */
export const SIMULATION_START_AT = Date.UTC(2030, 0, 1) - SERVICE_ZONE_OFFSET_MS;
/** After the last client has arrived, tunnels end and members expire. */
const ENDING_MS = 3_600_000;

/** @throws only if noria has a bug. */
export async function simulate(options: SimulationOptions): Promise<SimulationReport> {
  const { days, seed, vendor, replicas = 1, prices } = options;
  const clock = new VirtualClock(SIMULATION_START_AT);
  const random = seededRandom(seed);
  const lifetimeMs = lifetimesOf(options);
  const service = new SimulatedService({ clock, random, lifetimeMs, ...(vendor && { vendor }) });
  const elapsedMs = () => clock.monotonic();
  const boot = { id: 'simulated', elapsedMs, uptimeMs: elapsedMs };
  const pace = createPaceMemory(createTimekeeper(clock, boot));
  const drawnBy = new Map<string, number>();
  const pools: Pool[] = [];
  const world = { clock, random, service, pace, pools, drawnBy };
  const norias = Array.from({ length: replicas }, (_, index) => openReplica(options, world, index));
  await clock.runUntil(days * DAY_MS);
  for (const { clients } of norias) clients.stop();
  await clock.runUntil(days * DAY_MS + ENDING_MS);
  for (const { refiller, pool } of norias) {
    await refiller.close();
    pool.close();
  }
  service.sweep();
  return summarize({
    ...{ days, seed, service, drawnBy, prices },
    clients: norias.map(({ clients }) => clients),
  });
}

/** One noria of the simulation. All of them share the pace, the members and the demand, as a fleet does. */
function openReplica(
  options: SimulationOptions,
  world: {
    readonly clock: VirtualClock;
    readonly random: Random;
    readonly service: SimulatedService;
    readonly pace: PaceStore;
    readonly pools: Pool[];
    readonly drawnBy: Map<string, number>;
  },
  index: number,
) {
  const { refill, load, waitForMemberMs, replicas = 1 } = options;
  const { clock, random, service, pace, pools, drawnBy } = world;
  const bus = new EventBus((_name, error) => {
    throw error;
  });
  const pool = new Pool({ ...options.pool, clock, random, bus, forecasts: () => refiller.forecasts() });
  pools.push(pool);
  const refiller = new Refiller({ clock, random, bus, pool: sharedPool(pool, pools) });
  refiller.open({
    ...refill,
    // Simulated members need no probe. Their protocol has no effect, because no client connects to them.
    sources: refill.sources.map((source) => ({ ...source, unproven: false, protocol: 'http' })),
    pace,
    extractor: service,
  });
  bus.on('draw.done', ({ source, received }) => {
    drawnBy.set(source, (drawnBy.get(source) ?? 0) + received);
  });
  const { log } = load;
  const clients = new SimulatedClients({
    ...{ clock, random, bus, pool, service, waitForMemberMs },
    load: {
      ...load,
      ratesByHour: load.ratesByHour.map((rate) => rate / replicas),
      log: log && { ...log, moments: log.moments.filter((_, at) => at % replicas === index) },
    },
    onBan: (lease) =>
      pool.banExit({ host: 'target.test', exit: lease.exit, source: lease.source, evidence: 'status' }),
  });
  return { pool, refiller, clients };
}

/** The pool as refill of one replica sees it: members that it draws join all pools, and the demand is that of all. */
function sharedPool(own: Pool, pools: readonly Pool[]): RefillPool {
  return {
    stockAt: (source, moment) => own.stockAt(source, moment),
    nextLossAt: (source, moment) => own.nextLossAt(source, moment),
    countsOf: (source) => own.countsOf(source),
    retainMembers: (source, kept) => own.retainMembers(source, kept),
    drainMember: (source, member) => own.drainMember(source, member),
    limitTunnels: (source, factor) => own.limitTunnels(source, factor),
    unlimitTunnels: (source) => own.unlimitTunnels(source),
    demand: (source) =>
      pools.reduce<Demand | undefined>((sum, pool) => {
        const demand = pool.demand(source);
        return sum === undefined ? demand : addDemand(sum, demand);
      }, undefined) ?? own.demand(source),
    addMembers(source: string, drawn: readonly DrawnMember[]): AddedMembers {
      for (const pool of pools) if (pool !== own) pool.addMembers(source, drawn);
      return own.addMembers(source, drawn);
    },
  };
}

/** A link without a configured lifetime has the one that the pool assumes; any other source, that of its product. */
function lifetimesOf({ refill, pool, vendor }: SimulationOptions): (call: DrawCall) => Range {
  const assumedMs = new Map(pool.sources.map(({ name, unknownLifetimeMs }) => [name, unknownLifetimeMs]));
  const links = new Map(
    refill.sources.flatMap(({ name, call, defaultLifetimeMs }): [string, Range][] => {
      const ms = defaultLifetimeMs === undefined ? assumedMs.get(name) : undefined;
      return call.product === 'link' && ms !== undefined ? [[call.instance, [ms, ms]]] : [];
    }),
  );
  return (call) => vendor?.lifetimeMs ?? links.get(call.instance) ?? typicalLifetimeMs(call);
}
