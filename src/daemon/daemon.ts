/** A running noria: starts, applies reloaded configurations, and shuts down. parts.ts opens the parts of noria. */
import type { AdminBackend } from '../admin/backend.ts';
import type { Config } from '../config/config.ts';
import { type BootClock, type Clock, pause, systemBoot, systemClock } from '../core/clock.ts';
import { EventBus } from '../core/events.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { makeMark } from '../core/front-proxy.ts';
import { formatHostPort } from '../core/host-port.ts';
import type { BoundAddress } from '../core/listen-address.ts';
import type { Log } from '../core/log.ts';
import { type Ownership, openAll } from '../core/ownership.ts';
import { type Random, systemRandom } from '../core/random.ts';
import { isSame } from '../core/secret.ts';
import type { FleetConnector } from './fleet.ts';
import {
  apiNeedsListenerAddress,
  changesForRestart,
  dialerSettings,
  planeContext,
  poolSettings,
  proberSettings,
  refillSettings,
} from './part-options.ts';
import { clientsOf, openParts, type Parts } from './parts.ts';
import { proxyPoolSettings } from './proxy-pool.ts';

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
  const { log, fleet, clock = systemClock, random = systemRandom, reload = refuseReload } = options;
  const { boot = systemBoot(), inheritedFds = new Set(), testUrl = 'https://example.com/' } = options;
  const bus = new EventBus((name, error) =>
    log.error({ event: name, error: describeError(error) }, 'observer failed'),
  );
  const state: DaemonState = { config: options.config, drainEndsAt: undefined };
  const failed = Promise.withResolvers<NoriaError>();
  const { built: parts, owner } = await openAll((owner) =>
    openParts({
      ...{ owner, log, clock, random, boot, bus, inheritedFds, reload, fleet, testUrl },
      mark: makeMark(),
      config: () => state.config,
      drainEndsAt: () => state.drainEndsAt,
      onFailed: failed.resolve,
    }),
  );
  return new Daemon({ state, parts, owner, log, clock, bus, failed: failed.promise });
}

interface DaemonState {
  config: Config;
  drainEndsAt: number | undefined;
}

interface RunningDaemon {
  readonly state: DaemonState;
  readonly parts: Parts;
  readonly owner: Ownership;
  readonly log: Log;
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly failed: Promise<NoriaError>;
}

export class Daemon {
  readonly bus: EventBus;
  readonly control: AdminBackend;
  /** Resolves with `workers-failed` when noria can no longer serve clients. The caller must then close this noria. */
  readonly failed: Promise<NoriaError>;
  readonly startConfig: Config;
  /** The connections that `close()` cut, because they were open after `shutdown.drainTimeout`. */
  cutConnections = 0;
  readonly #running: RunningDaemon;
  #reloading: Promise<unknown> = Promise.resolve();
  #closing: Promise<void> | undefined;

  constructor(running: RunningDaemon) {
    this.#running = running;
    this.bus = running.bus;
    this.control = running.parts.control;
    this.failed = running.failed;
    this.startConfig = running.state.config;
  }

  get config(): Config {
    return this.#running.state.config;
  }

  get addresses() {
    const format = ({ host, port }: BoundAddress) => formatHostPort(host, port);
    const { plane, apis } = this.#running.parts;
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
    if (this.#running.state.drainEndsAt !== undefined) {
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
    const { state, parts, owner, clock } = this.#running;
    const { drainTimeoutMs } = state.config.shutdown;
    const deadline = clock.monotonic() + drainTimeoutMs;
    // Set before the first `await`, so that the readiness check reports the shutdown even during a reload.
    state.drainEndsAt = clock.now() + drainTimeoutMs;
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
    const { state, parts, log } = this.#running;
    const before = state.config;
    state.config = next;
    try {
      await applyConfig(parts, before, next);
    } catch (error) {
      state.config = before;
      throw error;
    }
    log.level = next.log.level;
    return changesForRestart(this.startConfig, next);
  }
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
