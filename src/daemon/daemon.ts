/** A running noria: starts, applies reloaded configurations, and shuts down. parts.ts opens the parts of noria. */
import type { AdminBackend } from '../admin/backend.ts';
import type { Config } from '../config/config.ts';
import { type Clock, pause, systemClock } from '../core/clock.ts';
import { EventBus } from '../core/events.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { formatHostPort } from '../core/host-port.ts';
import { isSame } from '../core/is-same.ts';
import type { Log } from '../core/log.ts';
import { openAll } from '../core/ownership.ts';
import { type Random, systemRandom } from '../core/random.ts';
import type { FleetPlace } from './fleet.ts';
import {
  apiNeedsListenerAddress,
  changesForRestart,
  dialerSettings,
  listenerSettings,
  planeContext,
  poolSettings,
  proberSettings,
  refillSettings,
} from './part-options.ts';
import { openParts, type Parts } from './parts.ts';
import { proxyPoolSettings } from './proxy-pool.ts';

export interface DaemonOptions {
  readonly config: Config;
  readonly log: Log;
  readonly clock?: Clock;
  readonly random?: Random;
  /** Reads the configuration again and applies it, for the admin API. Absent when there is no file to read. */
  readonly reload?: AdminBackend['reload'];
  /** File descriptors of inherited listening sockets (`fd:3`). */
  readonly inheritedFds?: ReadonlySet<number>;
  /** Connects this noria to a fleet without a store. If absent, noria joins the fleet of the configuration, if there is one. */
  readonly fleet?: FleetPlace;
}

export interface Daemon {
  /** The configuration in use. A reload replaces it. */
  readonly config: Config;
  /** The bound addresses, each as `host:port`. */
  readonly addresses: {
    readonly listeners: readonly string[];
    readonly admin: string | undefined;
    readonly proxyPool: string | undefined;
  };
  readonly bus: EventBus;
  readonly control: AdminBackend;
  /** Resolves with `workers-failed` when noria can no longer serve clients. The caller must then close this noria. */
  readonly failed: Promise<NoriaError>;
  /**
   * Applies another configuration. Keeps members, sessions and the connections of unchanged listeners. If anything cannot be
   * opened, nothing changes.
   *
   * @returns the changed keys that take effect only after a restart.
   * @throws NoriaError listen-failed, bad-config; shutting-down after `close()`
   */
  reload(config: Config): Promise<readonly string[]>;
  /**
   * Stops accepting clients, lets tunnels finish for at most `shutdown.drainTimeout`, then closes everything. A second call waits
   * for the first one.
   */
  close(): Promise<void>;
}

/**
 * Starts noria. If a part cannot be opened, closes the parts that are already open.
 *
 * @throws NoriaError listen-failed, state-locked, state-unwritable, bad-config, workers-failed
 */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { log, clock = systemClock, random = systemRandom, inheritedFds = new Set() } = options;
  const bus = new EventBus((name, error) =>
    log.error({ event: name, error: describeError(error) }, 'observer failed'),
  );
  let config = options.config;
  let draining = false;
  const failed = Promise.withResolvers<NoriaError>();
  const { built: parts, owner } = await openAll((owner) =>
    openParts(
      {
        log,
        clock,
        random,
        bus,
        inheritedFds,
        config: () => config,
        reload: options.reload ?? refuseReload,
        draining: () => draining,
        fleet: options.fleet,
        onFailed: failed.resolve,
      },
      owner,
    ),
  );

  const reload = async (next: Config): Promise<readonly string[]> => {
    const before = config;
    config = next;
    try {
      await applyConfig(parts, before, next);
    } catch (error) {
      config = before;
      throw error;
    }
    log.level = next.log.level;
    return changesForRestart(before, next);
  };
  const close = async (): Promise<void> => {
    const drained = parts.plane.drain();
    // If no client waits, noria stops drawing now: a draw would cost money, and no client would use its members.
    if (parts.pool.waitingCount === 0) await parts.refiller.close();
    const timeout = new AbortController();
    await Promise.race([drained, pause(clock, config.shutdown.drainTimeoutMs, timeout.signal)]);
    timeout.abort();
    await owner.close();
  };
  let reloading: Promise<unknown> = Promise.resolve();
  let closing: Promise<void> | undefined;
  return {
    get config() {
      return config;
    },
    get addresses() {
      const format = ({ host, port }: { readonly host: string; readonly port: number }) =>
        formatHostPort(host, port);
      const { admin, proxyPool } = parts;
      return {
        listeners: parts.plane.listeners.flatMap(({ addresses }) => addresses.map(format)),
        admin: admin.address && format(admin.address),
        proxyPool: proxyPool.address && format(proxyPool.address),
      };
    },
    bus,
    control: parts.control,
    failed: failed.promise,
    reload(next) {
      if (draining)
        return Promise.reject(
          new NoriaError('shutting-down', 'noria is shutting down: the configuration is not reloaded'),
        );
      const reloaded = reloading.then(() => reload(next)); // starts after the previous reload has ended
      reloading = reloaded.catch(() => {}); // ignored: the caller of `reload` handles the error
      return reloaded;
    },
    close() {
      draining = true; // set before the reload ends, so that the readiness check reports the shutdown at once
      parts.readiness.check();
      parts.plane.prepareToClose();
      closing ??= reloading.then(close);
      return closing;
    },
  };
}

async function refuseReload(): Promise<never> {
  throw new NoriaError(
    'bad-config',
    'this noria was started without a configuration file: there is nothing to reload',
  );
}

/** First runs the steps that may fail. If one of them fails, undoes the completed steps. Then runs the steps that cannot fail. */
async function applyConfig(parts: Parts, before: Config, next: Config): Promise<void> {
  const { plane, admin, proxyPool, apiAddresses } = parts;
  const updateListeners = (config: Config) =>
    plane.update(listenerSettings(config), config.shutdown.drainTimeoutMs);
  const updateAdmin = async (config: Config) => {
    if (!isSame(before.admin, next.admin)) await admin.open(config.admin);
    plane.setContext(planeContext(config, apiAddresses()));
  };
  const updateProxyPool = async (config: Config) => {
    if (isSame(proxyPoolSettings(before), proxyPoolSettings(next))) return;
    await proxyPool.open(proxyPoolSettings(config));
    plane.setContext(planeContext(config, apiAddresses()));
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
  parts.faults.forget();
  await parts.refiller.update(refillSettings(next));
  if (!isSame(before.sources, next.sources)) parts.fleet?.shared.reload(); // a reload of the shared pool adds the fleet's members of new sources
}
