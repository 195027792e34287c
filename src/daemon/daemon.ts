/**
 * A running noria: opens its parts, applies reloaded configurations, and shuts down. The parts open in this order: log,
 * state, pool, fleet, data plane, health checks, admin API, proxyPool, refiller, snapshot; the owner closes them in
 * reverse order. No other file opens parts.
 */
import { hostname } from 'node:os';
import type { AdminBackend } from '../admin/backend.ts';
import type { Config } from '../config/config.ts';
import { type BootClock, type Clock, pause, systemBoot, systemClock } from '../core/clock.ts';
import { SECOND_MS } from '../core/duration.ts';
import { EventBus } from '../core/events.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { makeMark } from '../core/front-proxy.ts';
import { formatHostPort } from '../core/host-port.ts';
import type { BoundAddress } from '../core/listen-address.ts';
import { type Log, logEvents } from '../core/log.ts';
import { type Ownership, openAll } from '../core/ownership.ts';
import { type Random, systemRandom } from '../core/random.ts';
import { isSame, secretsIn } from '../core/secret.ts';
import { type Ledger, openLedger } from '../ledger/ledger.ts';
import { Notifier } from '../ledger/notifier.ts';
import { endOfDay } from '../ledger/usage.ts';
import type { UsedToday } from '../listener/user-limits.ts';
import { type DataPlane, LocalPlane } from '../plane/local-plane.ts';
import { Pool } from '../pool/pool.ts';
import { decodeSessions } from '../pool/stored-state.ts';
import { Prober } from '../prober/prober.ts';
import { Refiller } from '../refill/refiller.ts';
import { Supply } from '../service/client.ts';
import type { RefuseAddress } from '../service/decode.ts';
import { openState } from '../state/folder.ts';
import { openApis, proxyPoolSettings } from './apis.ts';
import { createControl } from './control.ts';
import { createFleet, type Fleet, type FleetConnector, refusalsOf, storeConnector } from './fleet.ts';
import { ListFiles } from './list-files.ts';
import {
  apiNeedsListenerAddress,
  changesForRestart,
  configuredAddresses,
  dialerSettings,
  fleetInstances,
  planeContext,
  poolSettings,
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

/**
 * Starts noria. If a part cannot be opened, closes the parts that are already open.
 *
 * @throws NoriaError listen-failed, state-locked, state-unwritable, bad-config, workers-failed
 */
export async function startDaemon(options: {
  readonly config: Config;
  readonly log: Log;
  readonly clock?: Clock;
  readonly random?: Random;
  /** The clock that processes share, beside `clock`. Default: the clock of this machine since its boot. */
  readonly boot?: BootClock;
  readonly reload?: AdminBackend['reload'];
  readonly inheritedFds?: ReadonlySet<number>;
  /** Default: the fleet of the configuration, if there is one. */
  readonly fleet?: FleetConnector;
  /** A page that every member reaches, for the dashboard's test command. Default: a public page. */
  readonly testUrl?: string;
}): Promise<Daemon> {
  const { config, log, boot = systemBoot() } = options;
  const bus = new EventBus((name, error) =>
    log.error({ event: name, error: describeError(error) }, 'observer failed'),
  );
  const { built } = await openAll(async (owner) => {
    const running: Running = {
      ...{ clock: systemClock, random: systemRandom, reload: refuseReload },
      ...{ inheritedFds: new Set<number>(), testUrl: 'https://example.com/' },
      ...{ fleet: config.fleet && storeConnector(config.fleet), ...options },
      ...{ owner, boot, bus, mark: makeMark(), drainEndsAt: undefined },
      failed: Promise.withResolvers<NoriaError>(),
    };
    return new Daemon(running, await openParts(running));
  });
  return built;
}

interface Running {
  readonly owner: Ownership;
  readonly clock: Clock;
  readonly random: Random;
  readonly boot: BootClock;
  readonly bus: EventBus;
  readonly log: Log;
  readonly reload: AdminBackend['reload'];
  readonly inheritedFds: ReadonlySet<number>;
  readonly fleet: FleetConnector | undefined;
  readonly testUrl: string;
  readonly mark: string;
  readonly failed: PromiseWithResolvers<NoriaError>;
  config: Config;
  drainEndsAt: number | undefined;
}

type Parts = Awaited<ReturnType<typeof openParts>>;

export class Daemon {
  readonly bus: EventBus;
  readonly control: AdminBackend;
  /** Resolves with `workers-failed` when noria can no longer serve clients. The caller must then close this noria. */
  readonly failed: Promise<NoriaError>;
  readonly startConfig: Config;
  /** The connections that `close()` cut, because they were open after `shutdown.drainTimeout`. */
  cutConnections = 0;
  readonly #running: Running;
  readonly #parts: Parts;
  #reloading: Promise<unknown> = Promise.resolve();
  #closing: Promise<void> | undefined;

  constructor(running: Running, parts: Parts) {
    this.#running = running;
    this.#parts = parts;
    this.bus = running.bus;
    this.control = parts.control;
    this.failed = running.failed.promise;
    this.startConfig = running.config;
  }

  get config(): Config {
    return this.#running.config;
  }

  get addresses() {
    const format = ({ host, port }: BoundAddress) => formatHostPort(host, port);
    const { plane, apis } = this.#parts;
    const { admin, proxyPool } = apis;
    return {
      listeners: plane.listeners.flatMap(({ addresses }) => addresses.map(format)),
      admin: admin.address && format(admin.address),
      proxyPool: proxyPool.address && format(proxyPool.address),
    };
  }

  /**
   * Applies another configuration. Keeps members, sessions and the connections of unchanged listeners. If a listener or
   * an API cannot be opened, keeps the previous configuration.
   *
   * @returns the keys that differ from `startConfig` and take effect only after a restart.
   * @throws NoriaError listen-failed, bad-config; shutting-down after `close()`
   */
  reload(config: Config): Promise<readonly string[]> {
    if (this.#running.drainEndsAt !== undefined) {
      const message = 'noria is shutting down: the configuration is not reloaded';
      return Promise.reject(new NoriaError('shutting-down', message));
    }
    const reloaded = this.#reloading.then(() => this.#apply(config)); // starts after the previous reload has ended
    this.#reloading = reloaded.catch(() => {}); // ignored: the caller of `reload` handles the error
    return reloaded;
  }

  /** Lets tunnels finish for at most `shutdown.drainTimeout`. A second call waits for the first. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    const { config, owner, clock } = this.#running;
    const parts = this.#parts;
    const { drainTimeoutMs } = config.shutdown;
    const deadline = clock.monotonic() + drainTimeoutMs;
    // Set before the first `await`, so that the readiness check reports the shutdown even during a reload.
    this.#running.drainEndsAt = clock.now() + drainTimeoutMs;
    parts.readiness.check();
    parts.plane.prepareToClose();
    await this.#reloading;
    const drained = parts.plane.drain();
    // If no client waits, noria stops drawing now: a draw would cost money, and no client would use its members.
    if (parts.pool.waitingCount === 0) await parts.refiller.close();
    const timeout = new AbortController();
    const leftMs = Math.max(0, deadline - clock.monotonic());
    const isDrained = await Promise.race([
      drained.then(() => true),
      pause(clock, leftMs, timeout.signal).then(() => false),
    ]);
    timeout.abort();
    if (!isDrained) this.cutConnections = clientsOf(parts.plane);
    await owner.close();
  }

  async #apply(next: Config): Promise<readonly string[]> {
    const running = this.#running;
    const before = running.config;
    running.config = next;
    try {
      await applyConfig(this.#parts, before, next);
    } catch (error) {
      running.config = before;
      throw error;
    }
    running.log.level = next.log.level;
    return changesForRestart(this.startConfig, next);
  }
}

/** Calls the service only at the end: the first draw costs money, so no part may fail to open after it. */
async function openParts(running: Running) {
  const { clock, random, boot, bus, log, owner, mark, reload, testUrl, fleet: connector } = running;
  const config = () => running.config;
  const eventLog = logEvents(bus, log, clock);
  owner.own('log', () => eventLog[Symbol.dispose]());
  const warn = (message: string) => log.warn({}, message);
  const dir = config().state?.dir;
  const folder = { dir, daemon: true, fleet: connector?.name };
  const state = await owner.open('state', openState({ ...folder, clock, warn, boot }));
  const siteOf = (host: string) => pool.sites.of(host).name;
  // Vendors sell the members of a gateway by traffic, all others by the piece.
  const pricesOf = (name: string) => {
    const { product, price = 0 } = config().sources.find((source) => source.name === name) ?? {};
    return product === 'gateway' ? { perMember: 0, perGb: price } : { perMember: price, perGb: 0 };
  };
  const opening = openLedger({
    ...{ bus, clock, log, dir, siteOf, access: config().log.access },
    pricesOf,
  });
  const ledger = await owner.open('ledger', opening);

  const configured = configuredAddresses(config());
  let ownAddresses = (): readonly BoundAddress[] => configured;
  const refuses: RefuseAddress = (host, port) => refusesOf(config(), ownAddresses())(host, port);
  const forecasts = () => refiller.forecasts();
  const poolOptions = { ...poolSettings(config()), clock, random, bus, forecasts };
  const pool: Pool = await owner.open('pool', new Pool(poolOptions));
  restorePool(pool, state.snapshot, refuses, warn);
  pool.parts.sessions.restore(decodeSessions(state.sessions.found));
  state.sessions.attach((onChange) => pool.parts.sessions.journal(onChange));
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

  const faults = new SourceFaults(clock, log, pool, (source) => plane.resetRefusals(source));
  await owner.open('source faults', faults);
  const opened = openPlane(running, pool, { refiller, fleet, faults });
  const plane: DataPlane = await owner.open('data plane', opened);
  const probing = { ...proberSettings(config()), clock, random, bus, pool, dialer: plane.dialer };
  const prober = await owner.open('prober', new Prober(probing));
  await plane.update(config().listeners, 0);
  const serving = { pool, refiller, fleet, plane, faults, ledger };
  const drainEndsAt = () => running.drainEndsAt;
  const monitor = new ReadinessMonitor({ ...serving, clock, bus, drainEndsAt, config });
  const readiness = await owner.open('readiness', monitor);
  const control = createControl({ ...serving, clock, log, reload, readiness, testUrl, pricesOf });
  const apis = await openApis(config(), { clock, bus, log, owner, pool, control });
  plane.setContext(planeContext(config(), apis.addresses()));
  ownAddresses = () => [...plane.listeners.flatMap(({ addresses }) => addresses), ...apis.addresses()];
  evictOwnMembers(pool, refuses, warn);
  const notifier = new Notifier({
    ...{ bus, clock, log, siteOf, settings: () => config().notify },
    instance: config().fleet?.replica ?? hostname(),
    isBudgetUsed: (source) => {
      const budget = refiller.sources().find(({ name }) => name === source)?.budget ?? null;
      return budget !== null && budget.used >= budget.limit;
    },
  });
  await owner.open('notices', notifier);
  const limits = feedLimits(running, ledger, {
    replicas: () => fleet?.status().replicas.length ?? 1,
    send: (usedToday) => plane.setContext({ ...planeContext(config(), apis.addresses()), usedToday }),
  });
  owner.own('limits', () => limits[Symbol.dispose]());

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

function clientsOf({ listeners }: DataPlane): number {
  return listeners.reduce((sum, { connections }) => sum + connections, 0);
}

async function openPlane(
  running: Running,
  pool: Pool,
  {
    refiller,
    fleet,
    faults,
  }: { readonly refiller: Refiller; readonly fleet: Fleet | undefined; readonly faults: SourceFaults },
): Promise<DataPlane> {
  const { clock, bus, config, inheritedFds, log, mark, failed } = running;
  const options: ConstructorParameters<typeof LocalPlane>[0] = {
    ...{ clock, bus, pool, inheritedFds, mark },
    dialer: dialerSettings(config),
    context: planeContext(config, []),
    onSourceFault: (fault) => faults.update(fault),
    onNetwork: (down) => pool.freezeEvictions(down),
  };
  const workers = workersOf(config);
  if (workers === 1) {
    const elsewhere = fleet && { findSession: (name: string) => fleet.replica.findSession(name) };
    return new LocalPlane({ ...options, leases: fleet?.replica, elsewhere });
  }
  // Loaded only if noria has workers, because it loads node:cluster.
  const { openWorkersPlane } = await import('../plane/workers/workers-plane.ts');
  return openWorkersPlane({
    ...{ ...options, workers, log, onFailed: failed.resolve },
    forecasts: () => refiller.forecasts(),
    fleet: fleet?.replica,
    poolSettings: poolSettings(config),
    secrets: () => secretsIn(running.config),
  });
}

/**
 * Tells the data plane once a second what the users with limits used today. A fleet divides the limits of a day among its
 * norias, as it divides `maxTunnelsPerMember`: what this noria counted is multiplied instead of dividing the limits.
 */
function feedLimits(
  running: Running,
  ledger: Ledger,
  { replicas, send }: { readonly replicas: () => number; readonly send: (usedToday: UsedToday) => void },
): Disposable {
  const { clock } = running;
  const run = () => {
    const users = running.config.listeners.flatMap((listener) => listener.users);
    const norias = Math.max(1, replicas());
    const counted = users.flatMap(({ username, limits }) => {
      if (limits === undefined) return [];
      const { bytes, members } = ledger.usage.todayOf(username);
      return [[username, { bytes: bytes * norias, members: members * norias }] as const];
    });
    const processes = workersOf(running.config) * norias;
    const now = clock.now();
    const leftMs = endOfDay(now) - now;
    if (counted.length > 0) send({ processes, leftMs, users: Object.fromEntries(counted) });
    timer = clock.after(SECOND_MS, run);
  };
  let timer = clock.after(0, run);
  return { [Symbol.dispose]: () => timer[Symbol.dispose]() };
}

async function refuseReload(): Promise<never> {
  throw new NoriaError(
    'bad-config',
    'this noria was started without a configuration file: there is nothing to reload',
  );
}

/** Applies the changes that may fail first, and undoes them if one of them fails; then those that cannot. */
async function applyConfig(parts: Parts, before: Config, next: Config): Promise<void> {
  const { plane, apis } = parts;
  const updateListeners = (config: Config) => plane.update(config.listeners, config.shutdown.drainTimeoutMs);
  const updateAdmin = async (config: Config) => {
    if (!isSame(before.admin, next.admin)) await apis.admin.open(config.admin);
    plane.setContext(planeContext(config, apis.addresses()));
  };
  const updateProxyPool = async (config: Config) => {
    if (isSame(proxyPoolSettings(before), proxyPoolSettings(next))) return;
    await apis.proxyPool.open(proxyPoolSettings(config));
    plane.setContext(planeContext(config, apis.addresses()));
  };
  const updateApis = [updateAdmin, updateProxyPool];
  const steps = apiNeedsListenerAddress(before, next)
    ? [updateListeners, ...updateApis]
    : [...updateApis, updateListeners];
  const done: typeof steps = [];
  try {
    for (const step of steps) {
      await step(next);
      done.unshift(step);
    }
  } catch (error) {
    for (const step of done) await step(before);
    throw error;
  }
  parts.pool.reconfigure(poolSettings(next));
  plane.commit({ dialer: dialerSettings(next), pool: poolSettings(next) });
  parts.prober.configure(proberSettings(next));
  parts.faults.tryAllAgain();
  await parts.ledger.reload(next.log.access);
  await parts.refiller.update(refillSettings(next));
  parts.lists.watch(next);
  // Adds the members that the fleet already has for the new sources.
  if (!isSame(before.sources, next.sources)) parts.fleet?.shared.reload();
}
