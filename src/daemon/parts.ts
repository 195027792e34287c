/**
 * Opens the parts of noria in this order: log, state, pool, fleet, data plane, health checks, admin API, proxyPool,
 * refiller, snapshot. The owner closes them in reverse order. No other file opens parts.
 */
import { hostname } from 'node:os';
import type { AdminBackend } from '../admin/backend.ts';
import type { Config } from '../config/config.ts';
import type { BootClock, Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { NoriaError } from '../core/faults.ts';
import type { BoundAddress } from '../core/listen-address.ts';
import { type Log, logEvents } from '../core/log.ts';
import type { Ownership } from '../core/ownership.ts';
import type { Random } from '../core/random.ts';
import { secretsIn } from '../core/secret.ts';
import type { SourceFault } from '../dialer/credentials.ts';
import { type Ledger, openLedger } from '../ledger/ledger.ts';
import { Notifier } from '../ledger/notifier.ts';
import type { DataPlane } from '../plane/data-plane.ts';
import { LocalPlane } from '../plane/local-plane.ts';
import { Pool } from '../pool/pool.ts';
import { decodeSessions } from '../pool/stored-state.ts';
import { Prober } from '../prober/prober.ts';
import { Refiller } from '../refill/refiller.ts';
import type { RefuseAddress } from '../service/decode.ts';
import { Supply } from '../service/supply.ts';
import { openState } from '../state/folder.ts';
import { type Apis, openApis } from './apis.ts';
import { createControl } from './control.ts';
import { createFleet, type Fleet, type FleetConnector, refusalsOf, storeConnector } from './fleet.ts';
import { feedLimits } from './limits-feed.ts';
import { ListFiles } from './list-files.ts';
import {
  configuredAddresses,
  dialerSettings,
  fleetInstances,
  planeContext,
  poolSettings,
  pricesOf,
  proberSettings,
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
  const { clock, random, boot, bus, log, config, owner, mark, drainEndsAt, reload, testUrl } = context;
  const eventLog = logEvents(bus, log, clock);
  owner.own('log', () => eventLog[Symbol.dispose]());
  const warn = (message: string) => log.warn({}, message);
  const { fleet: fleetConfig } = config();
  const connector = context.fleet ?? (fleetConfig && storeConnector(fleetConfig));
  const dir = config().state?.dir;
  const folder = { dir, daemon: true, fleet: connector?.name };
  const state = await owner.open('state', openState({ ...folder, clock, warn, boot }));
  const siteOf = (host: string) => pool.sites.of(host).name;
  const prices = (source: string) => pricesOf(config(), source);
  const opening = openLedger({
    ...{ bus, clock, log, dir, siteOf, access: config().log.access },
    pricesOf: prices,
  });
  const ledger = await owner.open('ledger', opening);

  const configured = configuredAddresses(config());
  let ownAddresses = (): readonly BoundAddress[] => configured;
  const refuses: RefuseAddress = (host, port) => refusesOf(config(), ownAddresses())(host, port);
  const forecasts = () => refiller.forecasts();
  const poolOptions = { ...poolSettings(config()), clock, random, bus, forecasts };
  const pool: Pool = await owner.open('pool', new Pool(poolOptions));
  restorePool(pool, state.snapshot, { refuses, warn });
  pool.restoreSessions(decodeSessions(state.sessions.found));
  state.sessions.attach((onChange) => pool.sessionJournal(onChange));
  const refiller: Refiller = new Refiller({ clock, random, bus, pool });
  const sources = sourceKeys(config);
  const fleet: Fleet | undefined =
    connector &&
    (await createFleet({
      ...{ connector, clock, random, bus, pool, sources, refuses },
      restored: state.snapshot.read('fleet'),
      clients: () => clientsOf(plane),
      instances: () => fleetInstances(config()),
      refusals: () => refusalsOf(refiller.sources(), sources),
      callTimeoutMs: () => config().service.timeoutMs,
      onCommand: ({ source, command }) => refiller.whenOpen(() => refiller[command](source)),
      onReport: (report) => refiller.whenOpen(() => refiller.receiveReport(report.source, report)),
    }));
  if (fleet !== undefined) owner.own('fleet', () => fleet.replica.close());

  const blocking = {
    block: (source: string, reason: string | undefined) => pool.blockSource(source, reason),
    resetRefusals: (source: string) => plane.resetRefusals(source),
  };
  const faults = await owner.open('source faults', new SourceFaults({ clock, log, ...blocking }));
  const plane = await owner.open('data plane', openPlane(context, { pool, refiller, fleet, faults }));
  const probing = { ...proberSettings(config()), clock, random, bus, pool, dialer: plane.dialer };
  const prober = await owner.open('prober', new Prober(probing));
  await plane.update(config().listeners, 0);
  const serving = { pool, refiller, fleet, plane, faults, ledger };
  const monitor = new ReadinessMonitor({ ...serving, clock, bus, drainEndsAt, config });
  const readiness = await owner.open('readiness', monitor);
  const control = createControl({ ...serving, clock, log, reload, readiness, testUrl, pricesOf: prices });
  const apis = await openApis(config(), { clock, bus, log, owner, pool, control });
  plane.setContext(planeContext(config(), apis.addresses()));
  ownAddresses = () => [...plane.listeners.flatMap(({ addresses }) => addresses), ...apis.addresses()];
  evictOwnMembers(pool, { refuses, warn });
  const notifier = new Notifier({
    ...{ bus, clock, log, siteOf, settings: () => config().notify },
    instance: config().fleet?.replica ?? hostname(),
    isBudgetUsed: (source) => {
      const budget = refiller.sources().find(({ name }) => name === source)?.budget ?? null;
      return budget !== null && budget.used >= budget.limit;
    },
  });
  await owner.open('notices', notifier);
  const feed = feedLimits({
    ...{ clock, config, ledger, replicas: () => fleet?.status().replicas.length ?? 1 },
    send: (usedToday) => plane.setContext({ ...planeContext(config(), apis.addresses()), usedToday }),
  });
  owner.own('limits', () => feed[Symbol.dispose]());

  const extractor = new Supply({
    ...{ clock, random, refuses },
    // read before each call, so that a reload takes effect
    get timeoutMs() {
      return config().service.timeoutMs;
    },
    get openTunnel() {
      return serviceTunnel(config(), { mark, ownAddresses });
    },
  });
  await fleet?.replica.open();
  refiller.open({
    ...refillSettings(config()),
    extractor,
    pace: fleet === undefined ? state.pace : state.addOwnCalls(fleet.shared.pace),
    restored: state.snapshot.read('refill'),
    adviceOnBlock: (source) => faults.of(source)?.advice,
    urls: {
      open: (url, signal) => extractor.open(url, signal),
      exitOf: (...asked) => prober.exitOf(...asked),
    },
    sharedCount: fleet?.sharedCount,
    onReport: fleet && ((source, report) => fleet.replica.reportSource(source, report)),
  });
  await owner.open('refill', refiller);
  const contents = {
    pool: () => pool.snapshot(),
    refill: () => refiller.record(),
    ...(fleet && { fleet: () => fleet.record() }),
  };
  const keeping = keepSnapshot(state.snapshot, contents, bus);
  owner.own('snapshot', () => keeping[Symbol.dispose]());
  const lists = new ListFiles((source) => refiller.refill(source));
  lists.watch(config());
  await owner.open('list files', lists);
  return { pool, plane, faults, prober, readiness, control, apis, refiller, lists, fleet, ledger };
}

export function clientsOf({ listeners }: DataPlane): number {
  return listeners.reduce((sum, { connections }) => sum + connections, 0);
}

async function openPlane(
  context: PartsContext,
  { pool, refiller, fleet, faults }: Pick<Parts, 'pool' | 'refiller' | 'fleet' | 'faults'>,
): Promise<DataPlane> {
  const { clock, bus, config, inheritedFds, log, mark, onFailed } = context;
  const options = {
    ...{ clock, bus, pool, inheritedFds, mark },
    dialer: dialerSettings(config()),
    context: planeContext(config(), []),
    onSourceFault: (fault: SourceFault) => faults.update(fault),
    onNetwork: (down: boolean) => pool.freezeEvictions(down),
  };
  const workers = workersOf(config());
  if (workers === 1) {
    const elsewhere = fleet && { findSession: (name: string) => fleet.replica.findSession(name) };
    return new LocalPlane({ ...options, leases: fleet?.replica, elsewhere });
  }
  // Loaded only if noria has workers, because it loads node:cluster.
  const { openWorkersPlane } = await import('../plane/workers/workers-plane.ts');
  return openWorkersPlane({
    ...{ ...options, workers, log, onFailed },
    forecasts: () => refiller.forecasts(),
    fleet: fleet?.replica,
    poolSettings: poolSettings(config()),
    secrets: () => secretsIn(config()),
  });
}
