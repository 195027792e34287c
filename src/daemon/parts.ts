/**
 * Opens the parts of noria in this order: log, state, pool, fleet, data plane, health checks, admin API, proxyPool,
 * service client, refiller, snapshot. The owner closes them in reverse order. No other file opens parts.
 */
import { hostname } from 'node:os';
import type { AdminBackend } from '../admin/backend.ts';
import type { Config } from '../config/config.ts';
import type { BootClock, Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { NoriaError } from '../core/faults.ts';
import type { LoopGuard } from '../core/front-proxy.ts';
import { type Log, logEvents } from '../core/log.ts';
import type { Ownership } from '../core/ownership.ts';
import type { Random } from '../core/random.ts';
import { secretsIn } from '../core/secret.ts';
import type { SourceFault } from '../dialer/credentials.ts';
import { type Ledger, openLedger } from '../ledger/ledger.ts';
import { Notifier } from '../ledger/notifier.ts';
import type { DataPlane } from '../plane/data-plane.ts';
import { LocalPlane } from '../plane/local-plane.ts';
import type { SourceForecast } from '../pool/lease.ts';
import { Pool } from '../pool/pool.ts';
import { decodeSessions } from '../pool/stored-state.ts';
import { Prober } from '../prober/prober.ts';
import { Refiller, type RefillOptions } from '../refill/refiller.ts';
import { ServiceClient } from '../service/client.ts';
import type { RefuseAddress } from '../service/decode.ts';
import { Supply } from '../service/supply.ts';
import { openState, type State } from '../state/folder.ts';
import { type Apis, openApis } from './apis.ts';
import { createControl } from './control.ts';
import { createFleet, type Fleet, type FleetConnector, refusalsOf, storeConnector } from './fleet.ts';
import { feedLimits } from './limits-feed.ts';
import { ListFiles } from './list-files.ts';
import {
  configuredAddresses,
  dialerSettings,
  fleetInstances,
  listenerSettings,
  planeContext,
  poolSettings,
  pricesOf,
  proberSettings,
  readinessLimits,
  refillSettings,
  refusesOf,
  serviceTunnel,
  sourceKeys,
  workersOf,
} from './part-options.ts';
import { ReadinessMonitor } from './readiness.ts';
import { evictOwnMembers, keepSnapshot, restorePool } from './snapshot.ts';
import { SourceFaults } from './source-faults.ts';

interface PartsContext {
  readonly owner: Ownership;
  readonly clock: Clock;
  readonly random: Random;
  readonly boot: BootClock;
  readonly bus: EventBus;
  readonly log: Log;
  readonly config: () => Config;
  readonly reload: AdminBackend['reload'];
  readonly drainEndsAt: () => number | undefined;
  readonly fleet: FleetConnector | undefined;
  readonly inheritedFds: ReadonlySet<number>;
  readonly mark: string;
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
  readonly lists: ListFiles;
  readonly fleet: Fleet | undefined;
  readonly ledger: Ledger;
}

/** Calls the service only at the end: the first draw costs money, so no part may fail to open after it. */
export async function openParts(context: PartsContext): Promise<Parts> {
  const { clock, random, bus, log, config, owner } = context;
  const eventLog = logEvents(bus, log, clock);
  owner.own('log', () => eventLog[Symbol.dispose]());
  const warn = (message: string) => log.warn({}, message);
  const fleetName = (context.fleet ?? config().fleet)?.name;
  const folder = { dir: config().state?.dir, daemon: true, fleet: fleetName };
  const state = await owner.open('state', openState({ ...folder, clock, warn, boot: context.boot }));
  const ledger = await openLedgerOf(context, (host) => pool.sites.of(host).name);
  const forecasts = () => refiller.forecasts();
  const pool = await openPool(context, state, forecasts);
  const refiller = new Refiller({ clock, random, bus, pool });
  let refusesMember: RefuseAddress = refusesOf(config(), configuredAddresses(config()));
  const fleet = await openFleet(context, {
    ...{ pool, refiller, state },
    clients: () => clientsOf(plane),
    refuses: (host, port) => refusesMember(host, port),
  });
  const { plane, faults, prober } = await openServing(context, { pool, refiller, fleet });
  const { readiness, control, apis } = await openControl(context, {
    ...{ pool, refiller, fleet, plane, faults, ledger },
  });
  plane.setContext(planeContext(config(), apis.addresses()));
  const ownAddresses = () => [...plane.listeners.flatMap(({ addresses }) => addresses), ...apis.addresses()];
  const refuses: RefuseAddress = (host, port) => refusesOf(config(), ownAddresses())(host, port);
  refusesMember = refuses;
  evictOwnMembers(pool, { refuses, warn });
  const notifier = new Notifier({
    ...{ bus, clock, log, settings: () => config().notify, siteOf: (host) => pool.sites.of(host).name },
    instance: config().fleet?.replica ?? hostname(),
    isBudgetUsed: (source) => {
      const budget = refiller.sources().find(({ name }) => name === source)?.budget ?? null;
      return budget !== null && budget.used >= budget.limit;
    },
  });
  owner.own('notices', () => notifier.close());
  const feed = feedLimits({
    ...{ clock, config, ledger, replicas: () => fleet?.status().replicas.length ?? 1 },
    send: (usedToday) => plane.setContext({ ...planeContext(config(), apis.addresses()), usedToday }),
  });
  owner.own('limits', () => feed[Symbol.dispose]());
  await openRefill(context, { pool, refiller, fleet, faults, prober, state, refuses, ownAddresses });
  const lists = new ListFiles((source) => refiller.refill(source));
  lists.watch(config());
  owner.own('list files', () => lists.close());
  return { pool, plane, faults, prober, readiness, control, apis, refiller, lists, fleet, ledger };
}

async function openLedgerOf(
  { bus, clock, log, config, owner }: PartsContext,
  siteOf: (host: string) => string,
): Promise<Ledger> {
  const ledger = await openLedger({
    ...{ bus, clock, log, access: config().log.access, dir: config().state?.dir },
    siteOf,
    priceOf: (source) => pricesOf(config(), source).perMember,
    trafficPriceOf: (source) => pricesOf(config(), source).perGb,
  });
  owner.own('ledger', () => ledger.close());
  return ledger;
}

async function openPool(
  { clock, random, bus, log, config, owner }: PartsContext,
  state: State,
  forecasts: () => readonly SourceForecast[],
): Promise<Pool> {
  const settings = { ...poolSettings(config()), clock, random, bus, forecasts };
  const pool = await owner.open('pool', new Pool(settings));
  const refuses = refusesOf(config(), configuredAddresses(config()));
  restorePool(pool, state.snapshot, { refuses, warn: (message) => log.warn({}, message) });
  pool.restoreSessions(decodeSessions(state.sessions.found));
  state.sessions.attach((onChange) => pool.sessionJournal(onChange));
  return pool;
}

async function openFleet(
  { clock, random, bus, config, fleet: given, owner }: PartsContext,
  parts: Pick<Parts, 'pool' | 'refiller'> & {
    readonly state: State;
    readonly clients: () => number;
    readonly refuses: RefuseAddress;
  },
): Promise<Fleet | undefined> {
  const { pool, refiller, state, clients, refuses } = parts;
  const fleetConfig = config().fleet;
  const connector = given ?? (fleetConfig && storeConnector(fleetConfig));
  if (connector === undefined) return undefined;
  const sources = sourceKeys(config);
  const fleet = await createFleet({
    ...{ connector, clock, random, bus, pool, clients, refuses },
    instances: () => fleetInstances(config()),
    restored: state.snapshot.read('fleet'),
    sources,
    refusals: () => refusalsOf(refiller.sources(), sources),
    callTimeoutMs: () => config().service.timeoutMs,
    onCommand: ({ source, command }) => refiller.whenOpen(() => refiller[command](source)),
    onReport: (report) => refiller.whenOpen(() => refiller.receiveReport(report.source, report)),
  });
  owner.own('fleet', () => fleet.replica.close());
  return fleet;
}

export function clientsOf({ listeners }: DataPlane): number {
  return listeners.reduce((sum, { connections }) => sum + connections, 0);
}

type ServingParts = Pick<Parts, 'pool' | 'refiller' | 'fleet'>;

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
  { pool, refiller, fleet, faults }: ServingParts & Pick<Parts, 'faults'>,
): Promise<DataPlane> {
  const { clock, bus, config, inheritedFds, log, mark, onFailed } = context;
  const options = {
    clock,
    bus,
    pool,
    inheritedFds,
    mark,
    dialer: dialerSettings(config()),
    context: planeContext(config(), []),
    onSourceFault: (fault: SourceFault) => faults.update(fault),
    onNetwork: (down: boolean) => pool.freezeEvictions(down),
  };
  const workers = workersOf(config());
  if (workers === 1) {
    const elsewhere = fleet && { findSession: (name: string) => fleet.replica.sessions.find(name) };
    return new LocalPlane({ ...options, leases: fleet?.replica.sessions, elsewhere });
  }
  // Loaded only if noria has workers, because it loads node:cluster.
  const { openWorkersPlane } = await import('../plane/workers/workers-plane.ts');
  return openWorkersPlane({
    ...options,
    workers,
    log,
    forecasts: () => refiller.forecasts(),
    fleet: fleet?.replica,
    poolSettings: poolSettings(config()),
    onFailed,
    secrets: () => secretsIn(config()),
  });
}

async function openControl(
  context: PartsContext,
  parts: ServingParts & Pick<Parts, 'plane' | 'faults' | 'ledger'>,
): Promise<Pick<Parts, 'readiness' | 'control' | 'apis'>> {
  const { clock, bus, log, config, drainEndsAt, reload, owner, testUrl } = context;
  const limits = () => readinessLimits(config());
  const readiness = new ReadinessMonitor({ ...parts, clock, bus, drainEndsAt, limits });
  owner.own('readiness', () => readiness.close());
  const control = createControl({ ...parts, clock, log, reload, readiness, testUrl, config });
  const apis = await openApis(config(), { clock, bus, log, owner, pool: parts.pool, control });
  return { readiness, control, apis };
}

interface RefillParts extends ServingParts, Pick<Parts, 'faults' | 'prober'> {
  readonly state: State;
  readonly refuses: RefuseAddress;
  readonly ownAddresses: LoopGuard['ownAddresses'];
}

async function openRefill(context: PartsContext, parts: RefillParts): Promise<void> {
  const { bus, config, owner } = context;
  const { pool, refiller, fleet, faults, prober, state, refuses } = parts;
  const client = await owner.open('service client', openClient(context, parts));
  const extractor = new Supply({ client, clock: context.clock, random: context.random, refuses });
  await fleet?.replica.open();
  const restored = state.snapshot.read('refill');
  const pace = fleet === undefined ? state.pace : state.addOwnCalls(fleet.shared.pace);
  const adviceOnBlock = (source: string) => faults.of(source)?.advice;
  const urls: RefillOptions['urls'] = {
    open: (url, signal) => extractor.open(url, signal),
    exitOf: (...asked) => prober.exitOf(...asked),
  };
  const drawing = { pace, extractor, urls, restored, adviceOnBlock, ...drawingTogether(fleet) };
  refiller.open({ ...refillSettings(config()), ...drawing });
  await owner.open('refill', refiller);
  const contents = { pool: () => pool.snapshot(), refill: () => refiller.record() };
  const keeping = keepSnapshot(
    state.snapshot,
    fleet === undefined ? contents : { ...contents, fleet: () => fleet.record() },
    bus,
  );
  owner.own('snapshot', () => keeping[Symbol.dispose]());
}

/** `ServiceClient` reads these options before each call, so a reload takes effect without a new `ServiceClient`. */
function openClient(
  { clock, config, mark }: PartsContext,
  { refuses, ownAddresses }: Pick<RefillParts, 'refuses' | 'ownAddresses'>,
): ServiceClient {
  return new ServiceClient({
    clock,
    get timeoutMs() {
      return config().service.timeoutMs;
    },
    get openTunnel() {
      return serviceTunnel(config(), { mark, ownAddresses });
    },
    refuses,
  });
}

function drawingTogether(fleet: Fleet | undefined): Pick<RefillOptions, 'sharedCount' | 'onReport'> {
  if (fleet === undefined) return {};
  const { replica, sharedCount } = fleet;
  return { sharedCount, onReport: (source, report) => replica.sources.report(source, report) };
}
