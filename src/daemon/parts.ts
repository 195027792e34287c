/**
 * Opens the parts of noria in this order: log, state, pool, fleet, data plane, health checks, admin API, proxyPool, service
 * client, refill, snapshot. The owner closes them in reverse order. No other file opens parts.
 */
import type { AdminBackend } from '../admin/backend.ts';
import type { HttpServer } from '../admin/http-server.ts';
import type { AdminConfig, Config } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { EventBus, EventName } from '../core/events.ts';
import { describeError, type NoriaError } from '../core/faults.ts';
import type { BoundAddress } from '../core/listen-address.ts';
import { type Log, logEvents } from '../core/log.ts';
import type { Ownership } from '../core/ownership.ts';
import type { Random } from '../core/random.ts';
import { secretsIn } from '../core/secret.ts';
import { readVersion } from '../core/version.ts';
import type { SourceFault } from '../dialer/credentials.ts';
import type { Replica } from '../fleet/replica.ts';
import type { DataPlane } from '../plane/data-plane.ts';
import { openLocalPlane } from '../plane/local-plane.ts';
import type { SourceForecast } from '../pool/options.ts';
import { Pool } from '../pool/pool.ts';
import { decodeSessions } from '../pool/stored-state.ts';
import { Prober } from '../prober/prober.ts';
import type { RefillerOptions } from '../refill/options.ts';
import { openRefiller, type Refiller } from '../refill/refiller.ts';
import { ServiceClient } from '../service/client.ts';
import type { RefuseAddress } from '../service/decode.ts';
import { openState, type State } from '../state/folder.ts';
import { createControl } from './control.ts';
import { createFleet, type Fleet, type FleetPlace, placeInStore } from './fleet.ts';
import {
  configuredAddresses,
  dialerSettings,
  listenerSettings,
  planeContext,
  poolSettings,
  proberSettings,
  readinessLimits,
  refillSettings,
  refusesOf,
  serviceTunnel,
  sourceKeys,
  workersOf,
} from './part-options.ts';
import { openProxyPoolOf, type ProxyPoolSettings, proxyPoolSettings } from './proxy-pool.ts';
import { ReadinessMonitor } from './readiness-monitor.ts';
import { evictOwnMembers, restorePool } from './restore-pool.ts';
import { ServerSlot } from './server-slot.ts';
import { SourceFaults } from './source-faults.ts';

export interface PartsContext {
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly log: Log;
  readonly config: () => Config;
  readonly reload: AdminBackend['reload'];
  readonly draining: () => boolean;
  /** Connects this noria to a fleet. If undefined, noria joins the fleet of the configuration, if there is one. */
  readonly fleet: FleetPlace | undefined;
  readonly inheritedFds: ReadonlySet<number>;
  /** Called when noria can no longer serve clients. */
  readonly onFailed: (error: NoriaError) => void;
}

export interface Parts {
  readonly pool: Pool;
  readonly plane: DataPlane;
  readonly faults: SourceFaults;
  readonly prober: Prober;
  readonly readiness: ReadinessMonitor;
  readonly control: AdminBackend;
  readonly admin: ServerSlot<AdminConfig>;
  readonly proxyPool: ServerSlot<ProxyPoolSettings>;
  readonly apiAddresses: () => readonly BoundAddress[];
  readonly refiller: Refiller;
  readonly fleet: Fleet | undefined;
}

/** Opens refill after all other parts, because the first draw of refill costs money. */
export async function openParts(context: PartsContext, owner: Ownership): Promise<Parts> {
  const { clock, random, bus, log, config, draining } = context;
  const eventLog = logEvents(bus, log, clock);
  owner.own('log', () => eventLog[Symbol.dispose]());
  const warn = (message: string) => log.warn({}, message);
  const state = await owner.open('state', openState({ dir: config().state?.dir, daemon: true, clock, warn }));
  let refiller = NO_REFILLER;
  const forecasts = () => refiller.forecasts();
  const pool = await owner.open(
    'pool',
    new Pool({ ...poolSettings(config()), clock, random, bus, forecasts }),
  );
  restorePool(pool, state.snapshot, { refuses: refusesOf(config(), configuredAddresses(config())), warn });
  pool.restoreSessions(decodeSessions(state.sessions.found));
  state.sessions.attach((onChange) => pool.sessionJournal(onChange));
  const untilRefill: ((refiller: Refiller) => void)[] = [];
  const steer = (run: (refiller: Refiller) => void) =>
    void (refiller === NO_REFILLER ? untilRefill.push(run) : run(refiller));
  const fleet = await openFleet(
    context,
    { pool, clients: () => clientsOf(plane), steer, restored: state.snapshot.read('fleet') },
    owner,
  );
  const faults: SourceFaults = new SourceFaults({
    clock,
    log,
    block: (source, reason) => pool.blockSource(source, reason),
    resetRefusals: (source) => plane.resetRefusals(source),
  });
  owner.own('source faults', () => faults.close());
  const plane = await owner.open(
    'data plane',
    openPlane(context, { pool, replica: fleet?.replica, faults, forecasts }),
  );
  const probing = { ...proberSettings(config()), clock, random, bus, pool, dialer: plane.dialer };
  const prober = await owner.open('prober', new Prober(probing));
  await plane.update(listenerSettings(config()), 0);
  const limits = () => readinessLimits(config());
  const readiness = new ReadinessMonitor({
    clock,
    bus,
    pool,
    plane,
    draining,
    faults,
    limits,
    fleet,
    refiller: () => refiller,
  });
  owner.own('readiness', () => readiness.close());
  const control = createControl({
    clock,
    log,
    reload: context.reload,
    pool,
    plane,
    faults,
    readiness,
    fleet,
    refiller: () => refiller,
  });
  const admin = new ServerSlot((settings: AdminConfig) => openAdminOf(settings, control, context));
  owner.own('admin', () => admin.close());
  await admin.open(config().admin);
  const proxyPool = new ServerSlot((settings: ProxyPoolSettings) =>
    openProxyPoolOf(settings, { clock, bus, log, pool }),
  );
  owner.own('proxyPool', () => proxyPool.close());
  await proxyPool.open(proxyPoolSettings(config()));
  const apiAddresses = () => [admin, proxyPool].flatMap(({ address = [] }) => address);
  plane.setContext(planeContext(config(), apiAddresses()));
  const ownAddresses = () => [...plane.listeners.flatMap(({ addresses }) => addresses), ...apiAddresses()];
  const refuses: RefuseAddress = (host, port) => refusesOf(config(), ownAddresses())(host, port);
  evictOwnMembers(pool, { refuses, warn });
  const extractor = await owner.open('service client', openClient(context, refuses));
  await fleet?.replica.open();
  const restored = state.snapshot.read('refill');
  const pace = fleet?.shared.pace ?? state.pace;
  const drawing = { clock, random, bus, pace, extractor, pool, restored, ...drawingTogether(fleet) };
  refiller = openRefiller({ ...refillSettings(config()), ...drawing });
  for (const run of untilRefill) run(refiller); // passes the commands that came earlier to the refiller now, because each source decides during the next `await` whether to draw
  await owner.open('refill', refiller);
  const keeping = keepSnapshot(state, { pool, refiller, fleet }, bus);
  owner.own('snapshot', () => keeping[Symbol.dispose]());
  return { pool, plane, faults, prober, readiness, control, admin, proxyPool, apiAddresses, refiller, fleet };
}

/** Takes the place of the refiller until refill opens. */
const NO_REFILLER: Refiller = {
  sources: () => [],
  forecasts: () => [],
  refill: () => false,
  pause: () => false,
  resume: () => false,
  hear: () => false,
  update: async () => {},
  record: () => ({}),
  close: async () => {},
};

async function openAdminOf(
  { address, token }: AdminConfig,
  backend: AdminBackend,
  { clock, bus, log }: PartsContext,
): Promise<HttpServer> {
  if (address.kind !== 'tcp') throw new TypeError('admin.address is not host:port');
  const { host, port } = address;
  const { openAdmin } = await import('../admin/server.ts'); // a noria without the admin API need not load it
  return openAdmin({
    host,
    port,
    ...(token !== undefined && { token }),
    version: readVersion(),
    backend,
    bus,
    clock,
    onError: (error) => log.error({ error: describeError(error) }, 'admin request failed'),
  });
}

interface FleetParts {
  readonly pool: Pool;
  readonly clients: () => number;
  readonly restored: unknown;
  /** Calls `run` with the refiller: now or, if the refiller is not open yet, just before the refiller opens. */
  readonly steer: (run: (refiller: Refiller) => void) => void;
}

async function openFleet(
  { clock, random, bus, config, fleet: given }: PartsContext,
  { pool, clients, steer, restored }: FleetParts,
  owner: Ownership,
): Promise<Fleet | undefined> {
  const fleetConfig = config().fleet;
  const place = given ?? (fleetConfig && placeInStore(fleetConfig));
  if (place === undefined) return undefined;
  const fleet = await createFleet({
    ...{ place, restored, clock, random, bus, pool, clients },
    sources: sourceKeys(config),
    callTimeoutMs: () => config().service.timeoutMs,
    onCommand: ({ source, command }) => steer((refiller) => refiller[command](source)),
    onReport: (report) => steer((refiller) => refiller.hear(report.source, report)),
  });
  owner.own('fleet', () => fleet.replica.close());
  return fleet;
}

function drawingTogether(fleet: Fleet | undefined): Pick<RefillerOptions, 'sharedCount' | 'onReport'> {
  if (fleet === undefined) return {};
  const { replica, sharedCount } = fleet;
  return { sharedCount, onReport: (source, report) => replica.reportSource(source, report) };
}

function clientsOf({ listeners }: DataPlane): number {
  return listeners.reduce((sum, { connections }) => sum + connections, 0);
}

interface PlaneParts {
  readonly pool: Pool;
  /** This noria as a replica of its fleet. Undefined without a fleet. */
  readonly replica: Replica | undefined;
  readonly faults: SourceFaults;
  readonly forecasts: () => readonly SourceForecast[];
}

async function openPlane(
  context: PartsContext,
  { pool, replica, faults, forecasts }: PlaneParts,
): Promise<DataPlane> {
  const { clock, bus, config, inheritedFds, log, onFailed } = context;
  const options = {
    clock,
    bus,
    pool,
    inheritedFds,
    dialer: dialerSettings(config()),
    context: planeContext(config(), []),
    onSourceFault: (fault: SourceFault) => faults.update(fault),
    onNetwork: (down: boolean) => pool.freezeEvictions(down),
  };
  const workers = workersOf(config());
  if (workers === 1) return openLocalPlane({ ...options, leases: replica });
  const { openWorkersPlane } = await import('../plane/workers/workers-plane.ts'); // imported only here, so that a noria without workers does not load node:cluster
  return openWorkersPlane({
    ...options,
    workers,
    log,
    forecasts,
    fleet: replica,
    poolSettings: poolSettings(config()),
    onFailed,
    secrets: () => secretsIn(config()),
  });
}

/** The client reads the timeout and the front proxy for each call, so that a reload takes effect without a new client. */
function openClient({ clock, config }: PartsContext, refuses: RefuseAddress): ServiceClient {
  return new ServiceClient({
    clock,
    get timeoutMs() {
      return config().service.timeoutMs;
    },
    get openTunnel() {
      return serviceTunnel(config());
    },
    refuses,
  });
}

/** After these events, noria saves a snapshot within seconds. After a draw, it saves a snapshot at once. */
const SNAPSHOT_EVENTS = [
  'member.left',
  'member.quarantined',
  'member.banned',
  'fleet.store',
] as const satisfies readonly EventName[];

/** Saves the snapshot after changes. Ends when the caller disposes the result. */
function keepSnapshot(
  { snapshot }: State,
  { pool, refiller, fleet }: Pick<Parts, 'pool' | 'refiller' | 'fleet'>,
  bus: EventBus,
): Disposable {
  snapshot.addPart('pool', () => pool.snapshot());
  snapshot.addPart('refill', () => refiller.record());
  if (fleet !== undefined) snapshot.addPart('fleet', () => fleet.record());
  const subscriptions = [
    bus.on('draw.done', () => void snapshot.save()), // a draw is saved at once, because its members cost money
    ...SNAPSHOT_EVENTS.map((name) => bus.on(name, () => snapshot.saveSoon())),
  ];
  return {
    [Symbol.dispose]: () => {
      for (const subscription of subscriptions) subscription[Symbol.dispose]();
    },
  };
}
