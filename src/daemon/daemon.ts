/**
 * Builds the parts, in order, and closes them in the reverse order. Nothing else builds parts.
 *
 * The order: log, state, pool, data plane, prober, admin, service client, refill. Closing begins with the draining of the
 * data plane, while refill still draws and the admin page still shows it; the last snapshot is written when nothing can
 * change any more.
 */
import type { AdminBackend } from '../admin/backend.ts';
import type { Config } from '../config/config.ts';
import { type Clock, pause, systemClock } from '../core/clock.ts';
import { EventBus } from '../core/events.ts';
import { describeError, type NoriaError } from '../core/faults.ts';
import { formatHostPort } from '../core/host-port.ts';
import { isSame } from '../core/is-same.ts';
import { type Log, logEvents } from '../core/log.ts';
import { type Ownership, openAll } from '../core/ownership.ts';
import { type Random, systemRandom } from '../core/random.ts';
import { readVersion } from '../core/version.ts';
import type { SourceFault } from '../dialer/credentials.ts';
import type { OwnAddress } from '../listener/deny-targets.ts';
import { asOwn, type DataPlane, LocalPlane } from '../plane/data-plane.ts';
import type { Surroundings } from '../plane/workers/messages.ts';
import { Pool } from '../pool/pool.ts';
import { decodeSnapshot } from '../pool/snapshot.ts';
import { Prober } from '../prober/prober.ts';
import { openRefiller, type Refiller } from '../refill/refiller.ts';
import { openState } from '../state/folder.ts';
import { viewDaemon } from './admin-view.ts';
import {
  adminWaits,
  dialerSettings,
  poolSettings,
  proberSettings,
  refillSettings,
  secretsIn,
  waitsForRestart,
  workersOf,
} from './part-options.ts';
import { AdminSlot, ReplaceableClient, type ReplaceableGround } from './replaceable-parts.ts';
import { keepSnapshot } from './snapshot-writer.ts';
import { SourceFaults } from './source-faults.ts';

export interface DaemonOptions {
  readonly config: Config;
  readonly log: Log;
  /** The system's own when absent. */
  readonly clock?: Clock;
  readonly random?: Random;
  /** Descriptors of listening sockets that were handed over (`fd:3`); none when absent. */
  readonly handedOver?: ReadonlySet<number>;
}

export interface Daemon {
  /** The configuration in force. */
  readonly config: Config;
  /** What is really bound, as `host:port`. */
  readonly addresses: { readonly listeners: readonly string[]; readonly admin: string | undefined };
  readonly bus: EventBus;
  /** What the admin API shows and steers. */
  readonly control: AdminBackend;
  /** Resolves when nobody can be served any more: workers-failed. It is to be closed then. */
  readonly failed: Promise<NoriaError>;
  /**
   * Takes over another configuration without a loss: members, sessions and connections of what did not change stay. When
   * something cannot be opened everything stays as it was.
   *
   * @returns what changed only in the file, and waits for a restart.
   * @throws NoriaError listen-failed, bad-config
   */
  reload(config: Config): Promise<readonly string[]>;
  /**
   * Stops taking clients, lets tunnels finish for at most `shutdown.drainTimeout`, then closes everything. Calling it again
   * joins the first call.
   */
  close(): Promise<void>;
}

/** What every part of one daemon is opened with. */
interface Ground extends ReplaceableGround {
  readonly random: Random;
  readonly owner: Ownership;
  readonly handedOver: ReadonlySet<number>;
  readonly onFailed: (error: NoriaError) => void;
}

/** The parts that a reload touches. */
interface Parts {
  readonly client: ReplaceableClient;
  readonly pool: Pool;
  readonly refiller: Refiller;
  readonly plane: DataPlane;
  readonly faults: SourceFaults;
  readonly prober: Prober;
  readonly admin: AdminSlot;
  readonly backend: AdminBackend;
}

/**
 * Opens everything, or nothing.
 *
 * @throws NoriaError listen-failed, state-locked, state-unwritable, bad-config, workers-failed
 */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { log, clock = systemClock, random = systemRandom, handedOver = new Set() } = options;
  const bus = new EventBus((name, error) =>
    log.error({ event: name, error: describeError(error) }, 'observer failed'),
  );
  let config = options.config;
  let draining = false;
  const failed = Promise.withResolvers<NoriaError>();
  const ground = { clock, random, bus, log, handedOver, config: () => config, onFailed: failed.resolve };
  const { built: parts, owner } = await openAll((owner) => openParts({ ...ground, owner }, () => draining));

  const reload = async (next: Config): Promise<readonly string[]> => {
    const before = config;
    config = next;
    try {
      await takeOver(parts, before, next);
    } catch (error) {
      config = before;
      throw error;
    }
    log.level = next.log.level;
    return waitsForRestart(before, next);
  };
  const close = async (): Promise<void> => {
    const drained = parts.plane.drain();
    // A draw that nobody waits for would be paid for in vain.
    if (parts.pool.waitingCount === 0) await parts.refiller.close();
    const patience = new AbortController();
    await Promise.race([drained, pause(clock, config.shutdown.drainTimeoutMs, patience.signal)]);
    patience.abort();
    await owner.close();
  };
  let reloading: Promise<unknown> = Promise.resolve();
  let closing: Promise<void> | undefined;
  return {
    get config() {
      return config;
    },
    get addresses() {
      const { plane, admin } = parts;
      return {
        listeners: addressesOf(plane).map(({ host, port }) => formatHostPort(host, port)),
        admin:
          admin.address === undefined ? undefined : formatHostPort(admin.address.host, admin.address.port),
      };
    },
    bus,
    control: parts.backend,
    failed: failed.promise,
    reload(next) {
      const reloaded = reloading.then(() => reload(next)); // one after the other
      reloading = reloaded.catch(() => {}); // ignored here: the caller is told
      return reloaded;
    },
    close() {
      draining = true; // before a reload under way has finished: readiness says it at once
      parts.plane.hurry();
      closing ??= reloading.then(close);
      return closing;
    },
  };
}

/**
 * Refill comes last: what fails to open before it has cost no call. Until then the others see a refill without sources.
 */
async function openParts(ground: Ground, draining: () => boolean): Promise<Parts> {
  const { clock, random, bus, log, owner, config } = ground;
  const following = logEvents(bus, log);
  owner.own('log', () => following[Symbol.dispose]());
  const state = await owner.open(
    'state',
    openState({ dir: config().state?.dir, daemon: true, clock, warn: (message) => log.warn({}, message) }),
  );
  let refiller = NO_REFILL;
  const outlook = () => refiller.outlook();
  const pool = await owner.open('pool', new Pool({ ...poolSettings(config()), clock, random, bus, outlook }));
  const kept = decodeSnapshot(state.snapshot.read('pool'));
  if (kept !== undefined) pool.restore(kept, state.snapshot.ageMs('pool'));
  const faults: SourceFaults = new SourceFaults({
    clock,
    log,
    block: (source, reason) => pool.blockSource(source, reason),
    forgive: (source) => plane.resetRefusals(source),
  });
  owner.own('source faults', () => faults.close());
  const plane = await owner.open('data plane', openPlane(ground, pool, faults));
  const probing = { ...proberSettings(config()), clock, random, bus, pool, dialer: plane };
  const prober = await owner.open('prober', new Prober(probing));
  const admin = new AdminSlot(ground);
  await plane.update(config().listeners, 0);
  const backend = viewDaemon({
    version: readVersion(),
    clock,
    log,
    pool,
    refiller: () => refiller,
    plane,
    draining,
    faults,
  });
  owner.own('admin', () => admin.close());
  await admin.open(config(), backend);
  plane.surround(surroundingsOf(config(), admin));

  const ownAddresses = () => [...addressesOf(plane).map(asOwn), ...ownAdmin(admin)];
  const client = await owner.open('service client', new ReplaceableClient(ground, ownAddresses));
  refiller = await owner.open(
    'refill',
    openRefiller({
      ...refillSettings(config()),
      clock,
      random,
      bus,
      pace: state.pace,
      extractor: client,
      pool: pool,
      restored: state.snapshot.read('refill'),
    }),
  );
  const keeping = keepSnapshot(state, pool, refiller, bus);
  owner.own('snapshot', () => keeping[Symbol.dispose]());
  return { client, pool, refiller, plane, faults, prober, admin, backend };
}

/** What stands in for refill until it opens. */
const NO_REFILL: Refiller = {
  sources: () => [],
  outlook: () => ({ sources: [] }),
  refill: () => false,
  pause: () => false,
  resume: () => false,
  update: async () => {},
  record: () => ({}),
  close: async () => {},
};

/** What is really bound, of all listeners. */
const addressesOf = ({ listeners }: DataPlane) => listeners.flatMap(({ addresses }) => addresses);

const ownAdmin = ({ address }: AdminSlot): OwnAddress[] => (address === undefined ? [] : [asOwn(address)]);

function surroundingsOf({ sources }: Config, admin: AdminSlot | undefined): Surroundings {
  return {
    sources: sources.map(({ name }) => name),
    own: admin === undefined ? [] : ownAdmin(admin),
  };
}

/** In this process, or in as many as the configuration says. */
async function openPlane(ground: Ground, pool: Pool, faults: SourceFaults): Promise<DataPlane> {
  const { clock, bus, config, handedOver, log, onFailed } = ground;
  const common = {
    clock,
    bus,
    pool,
    handedOver,
    dialer: dialerSettings(config()),
    surroundings: surroundingsOf(config(), undefined),
    onSourceFault: (fault: SourceFault) => faults.tell(fault),
    onNetwork: (down: boolean) => pool.freezeEvictions(down),
  };
  const workers = workersOf(config());
  if (workers === 1) return new LocalPlane(common);
  const { openWorkersPlane } = await import('../plane/workers/workers-plane.ts'); // node:cluster is for those who want it
  return openWorkersPlane({ ...common, workers, log, onFailed, secrets: () => secretsIn(config()) });
}

/**
 * What may fail comes first, and each step that fails has changed nothing; the rest cannot fail. Sources change before
 * listeners let go of what they had, so that no client meets a listener whose source is not there yet.
 */
async function takeOver(parts: Parts, before: Config, next: Config): Promise<void> {
  const { plane, admin, backend } = parts;
  const takeListeners = (config: Config) => plane.update(config.listeners, config.shutdown.drainTimeoutMs);
  const takeAdmin = async (config: Config) => {
    if (!isSame(before.admin, next.admin)) await admin.open(config, backend);
  };
  const steps = adminWaits(before, next) ? [takeListeners, takeAdmin] : [takeAdmin, takeListeners];
  const taken: typeof steps = [];
  plane.surround(surroundingsOf(next, admin));
  try {
    for (const step of steps) {
      await step(next);
      taken.unshift(step);
    }
  } catch (error) {
    for (const step of taken) await step(before);
    plane.surround(surroundingsOf(before, admin));
    throw error;
  }
  plane.surround(surroundingsOf(next, admin));
  parts.client.renew();
  parts.pool.reconfigure(poolSettings(next));
  plane.configure(dialerSettings(next));
  parts.prober.configure(proberSettings(next));
  parts.faults.forget();
  await parts.refiller.update(refillSettings(next));
}
