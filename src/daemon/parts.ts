/**
 * Opens the parts of noria in this order: log, state, pool, fleet, data plane, health checks, admin API, proxyPool,
 * service client, refiller, snapshot. The owner closes them in reverse order. No other file opens parts.
 */
import type { AdminBackend } from '../admin/backend.ts';
import type { Config } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { NoriaError } from '../core/faults.ts';
import { type Log, logEvents } from '../core/log.ts';
import type { Ownership } from '../core/ownership.ts';
import type { Random } from '../core/random.ts';
import { secretsIn } from '../core/secret.ts';
import type { SourceFault } from '../dialer/credentials.ts';
import type { DataPlane } from '../plane/data-plane.ts';
import { openLocalPlane } from '../plane/local-plane.ts';
import { Pool } from '../pool/pool.ts';
import { decodeSessions } from '../pool/stored-state.ts';
import { Prober } from '../prober/prober.ts';
import type { RefillerOptions } from '../refill/options.ts';
import { Refiller } from '../refill/refiller.ts';
import { ServiceClient } from '../service/client.ts';
import type { RefuseAddress } from '../service/decode.ts';
import { openState, type State } from '../state/folder.ts';
import { type Apis, openApis } from './apis.ts';
import { createControl } from './control.ts';
import { createFleet, type Fleet, type FleetConnector, refusalsOf, storeConnector } from './fleet.ts';
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
import { ReadinessMonitor } from './readiness-monitor.ts';
import { evictOwnMembers, keepSnapshot, restorePool } from './snapshot.ts';
import { SourceFaults } from './source-faults.ts';

interface PartsContext {
  readonly owner: Ownership;
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly log: Log;
  readonly config: () => Config;
  readonly reload: AdminBackend['reload'];
  readonly drainEndsAt: () => number | undefined;
  readonly fleet: FleetConnector | undefined;
  readonly inheritedFds: ReadonlySet<number>;
  /** Called when noria can no longer serve clients. */
  readonly onFailed: (error: NoriaError) => void;
  readonly testUrl: string;
}

export interface Parts {
  readonly pool: Pool;
  readonly plane: DataPlane;
  readonly faults: SourceFaults;
  readonly prober: Prober;
  readonly readiness: ReadinessMonitor;
  readonly control: AdminBackend;
  readonly apis: Apis;
  readonly refiller: Refiller;
  readonly fleet: Fleet | undefined;
}

/** Opens the refiller last: its first draw costs money, so no part may fail to open after this draw. */
export async function openParts(context: PartsContext): Promise<Parts> {
  const { clock, bus, log, config, owner } = context;
  const eventLog = logEvents(bus, log, clock);
  owner.own('log', () => eventLog[Symbol.dispose]());
  const warn = (message: string) => log.warn({}, message);
  const fleetName = (context.fleet ?? config().fleet)?.name;
  const folder = { dir: config().state?.dir, daemon: true, fleet: fleetName };
  const state = await owner.open('state', openState({ ...folder, clock, warn }));
  const slot = new RefillerSlot();
  const pool = await openPool(context, { state, slot });
  const fleet = await openFleet(context, { pool, state, slot, clients: () => clientsOf(plane) });
  const { plane, faults, prober } = await openServing(context, { pool, fleet, slot });
  const { readiness, control, apis } = await openControl(context, { pool, fleet, slot, plane, faults });
  plane.setContext(planeContext(config(), apis.addresses()));
  const refuses = refusesAddresses(config, { plane, apis });
  evictOwnMembers(pool, { refuses, warn });
  const refiller = await openRefill(context, { pool, fleet, state, slot, refuses });
  return { pool, plane, faults, prober, readiness, control, apis, refiller, fleet };
}

/** Holds the refiller, for parts that open before the refiller and use it later. */
class RefillerSlot {
  #refiller: Refiller | undefined;
  readonly #commands: ((refiller: Refiller) => void)[] = [];

  get current(): SlotRefiller {
    return this.#refiller ?? NO_REFILLER;
  }

  /** Passes the refiller to `command`: at once if the refiller is open, or else when `fill` is called. */
  run(command: (refiller: Refiller) => void): void {
    if (this.#refiller === undefined) this.#commands.push(command);
    else command(this.#refiller);
  }

  fill(refiller: Refiller): void {
    this.#refiller = refiller;
    for (const command of this.#commands) command(refiller);
  }
}

type SlotRefiller = Pick<Refiller, 'sources' | 'forecasts' | 'refill' | 'pause' | 'resume'>;

/** Used in place of the refiller until `fill` is called: it has no sources and rejects all commands. */
const NO_REFILLER: SlotRefiller = {
  sources: () => [],
  forecasts: () => [],
  refill: () => false,
  pause: () => false,
  resume: () => false,
};

interface StoredParts {
  readonly state: State;
  readonly slot: RefillerSlot;
}

async function openPool(context: PartsContext, { state, slot }: StoredParts): Promise<Pool> {
  const { clock, random, bus, log, config, owner } = context;
  const forecasts = () => slot.current.forecasts();
  const pool = await owner.open(
    'pool',
    new Pool({ ...poolSettings(config()), clock, random, bus, forecasts }),
  );
  const refuses = refusesOf(config(), configuredAddresses(config()));
  restorePool(pool, state.snapshot, { refuses, warn: (message) => log.warn({}, message) });
  pool.restoreSessions(decodeSessions(state.sessions.found));
  state.sessions.attach((onChange) => pool.sessionJournal(onChange));
  return pool;
}

interface FleetParts extends StoredParts {
  readonly pool: Pool;
  readonly clients: () => number;
}

async function openFleet(
  { clock, random, bus, config, fleet: given, owner }: PartsContext,
  { pool, state, slot, clients }: FleetParts,
): Promise<Fleet | undefined> {
  const fleetConfig = config().fleet;
  const connector = given ?? (fleetConfig && storeConnector(fleetConfig));
  if (connector === undefined) return undefined;
  const sources = sourceKeys(config);
  const fleet = await createFleet({
    ...{ connector, clock, random, bus, pool, clients },
    restored: state.snapshot.read('fleet'),
    sources,
    refusals: () => refusalsOf(slot.current.sources(), sources),
    callTimeoutMs: () => config().service.timeoutMs,
    onCommand: ({ source, command }) => slot.run((refiller) => refiller[command](source)),
    onReport: (report) => slot.run((refiller) => refiller.receiveReport(report.source, report)),
  });
  owner.own('fleet', () => fleet.replica.close());
  return fleet;
}

/** Returns the number of client connections. */
export function clientsOf({ listeners }: DataPlane): number {
  return listeners.reduce((sum, { connections }) => sum + connections, 0);
}

interface ServingParts extends Pick<Parts, 'pool' | 'fleet'> {
  readonly slot: RefillerSlot;
}

/** Opens the parts that serve clients, and the health checks of members. */
async function openServing(
  context: PartsContext,
  parts: ServingParts,
): Promise<Pick<Parts, 'plane' | 'faults' | 'prober'>> {
  const { clock, random, bus, log, config, owner } = context;
  const { pool } = parts;
  const faults: SourceFaults = new SourceFaults({
    clock,
    log,
    block: (source, reason) => pool.blockSource(source, reason),
    resetRefusals: (source) => plane.resetRefusals(source),
  });
  owner.own('source faults', () => faults.close());
  const plane = await owner.open('data plane', openPlane(context, { ...parts, faults }));
  const probing = { ...proberSettings(config()), clock, random, bus, pool, dialer: plane.dialer };
  const prober = await owner.open('prober', new Prober(probing));
  await plane.update(listenerSettings(config()), 0);
  return { plane, faults, prober };
}

async function openPlane(
  context: PartsContext,
  { pool, fleet, slot, faults }: ServingParts & Pick<Parts, 'faults'>,
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
  if (workers === 1) return openLocalPlane({ ...options, leases: fleet?.replica.sessions });
  // Loaded only if noria has workers, because it loads node:cluster.
  const { openWorkersPlane } = await import('../plane/workers/workers-plane.ts');
  return openWorkersPlane({
    ...options,
    workers,
    log,
    forecasts: () => slot.current.forecasts(),
    fleet: fleet?.replica,
    poolSettings: poolSettings(config()),
    onFailed,
    secrets: () => secretsIn(config()),
  });
}

/** Opens the parts through which operators and programs see and control noria. */
async function openControl(
  context: PartsContext,
  { slot, ...parts }: ServingParts & Pick<Parts, 'plane' | 'faults'>,
): Promise<Pick<Parts, 'readiness' | 'control' | 'apis'>> {
  const { clock, bus, log, config, drainEndsAt, reload, owner, testUrl } = context;
  const refiller = () => slot.current;
  const limits = () => readinessLimits(config());
  const readiness = new ReadinessMonitor({ ...parts, clock, bus, drainEndsAt, limits, refiller });
  owner.own('readiness', () => readiness.close());
  const control = createControl({ ...parts, clock, log, reload, readiness, refiller, testUrl });
  const apis = await openApis(config(), { clock, bus, log, owner, pool: parts.pool, control });
  return { readiness, control, apis };
}

/**
 * Returns the function that refuses noria's own addresses, and private addresses unless the configuration allows them.
 */
function refusesAddresses(
  config: () => Config,
  { plane, apis }: Pick<Parts, 'plane' | 'apis'>,
): RefuseAddress {
  const own = () => [...plane.listeners.flatMap(({ addresses }) => addresses), ...apis.addresses()];
  return (host, port) => refusesOf(config(), own())(host, port);
}

interface RefillParts extends Pick<Parts, 'pool' | 'fleet'>, StoredParts {
  readonly refuses: RefuseAddress;
}

async function openRefill(
  context: PartsContext,
  { pool, fleet, state, slot, refuses }: RefillParts,
): Promise<Refiller> {
  const { clock, random, bus, config, owner } = context;
  const extractor = await owner.open('service client', openClient(context, refuses));
  await fleet?.replica.open();
  const restored = state.snapshot.read('refill');
  const pace = fleet === undefined ? state.pace : state.addOwnCalls(fleet.shared.pace);
  const drawing = { clock, random, bus, pace, extractor, pool, restored, ...drawingTogether(fleet) };
  const refiller = new Refiller({ ...refillSettings(config()), ...drawing });
  // Executes the commands that arrived before the refiller was open, such as `pause`. This must come before the next
  // `await`, during which each source decides whether to draw.
  slot.fill(refiller);
  await owner.open('refill', refiller);
  const contents = { pool: () => pool.snapshot(), refill: () => refiller.record() };
  const keeping = keepSnapshot(
    state.snapshot,
    fleet === undefined ? contents : { ...contents, fleet: () => fleet.record() },
    bus,
  );
  owner.own('snapshot', () => keeping[Symbol.dispose]());
  return refiller;
}

/** `ServiceClient` reads these options before each call, so a reload takes effect without a new `ServiceClient`. */
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

function drawingTogether(fleet: Fleet | undefined): Pick<RefillerOptions, 'sharedCount' | 'onReport'> {
  if (fleet === undefined) return {};
  const { replica, sharedCount } = fleet;
  return { sharedCount, onReport: (source, report) => replica.sources.report(source, report) };
}
