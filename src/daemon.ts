/**
 * Builds the parts, in order, and closes them in the reverse order. Nothing else builds parts.
 *
 * The order: log, state, pool, dialer, prober, listeners, admin, service client, refill. Closing begins with the draining of the
 * listeners, while refill still draws and the admin page still shows it; the last snapshot is written when nothing can
 * change any more.
 */
import type { Watched } from './admin/watched.ts';
import type { Config } from './config/config.ts';
import { isSame } from './config/same.ts';
import { type Clock, pause, systemClock } from './core/clock.ts';
import { EventBus } from './core/events.ts';
import { describeError } from './core/faults.ts';
import { formatHostPort } from './core/host-port.ts';
import { type Log, logEvents } from './core/log.ts';
import { type Ownership, openAll } from './core/ownership.ts';
import { type Random, systemRandom } from './core/random.ts';
import { readVersion } from './core/version.ts';
import { ListenerSet } from './daemon-listeners.ts';
import { dialerSettings, poolSettings, proberSettings, refillSettings } from './daemon-options.ts';
import { AdminSlot, ReplaceableClient, type ReplaceableGround } from './daemon-replaceable.ts';
import { SourceFaults } from './daemon-source-faults.ts';
import { viewDaemon } from './daemon-view.ts';
import { type OpenDialer, openDialer } from './dialer/dialer.ts';
import { openProber, type Prober } from './dialer/prober.ts';
import type { OwnAddress } from './listener/deny-targets.ts';
import { openPool, type Pool } from './pool/pool.ts';
import { decodeSnapshot } from './pool/snapshot.ts';
import { openRefiller, type Refiller } from './refill/refiller.ts';
import { openState, type State } from './state/folder.ts';

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
  readonly watched: Watched;
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

/** What a changed pool is worth writing down for; a draw is written at once. */
const CHANGES = [
  'member.left',
  'member.quarantined',
  'member.banned',
  'session.bound',
  'session.moved',
  'session.ended',
] as const;

/** What every part of one daemon is opened with. */
interface Ground extends ReplaceableGround {
  readonly random: Random;
  readonly owner: Ownership;
  readonly handedOver: ReadonlySet<number>;
}

/** The parts that a reload touches. */
interface Parts {
  readonly client: ReplaceableClient;
  readonly pool: Pool;
  readonly refiller: Refiller;
  readonly dialer: OpenDialer;
  readonly faults: SourceFaults;
  readonly prober: Prober;
  readonly listeners: ListenerSet;
  readonly admin: AdminSlot;
  readonly watched: Watched;
}

/**
 * Opens everything, or nothing.
 *
 * @throws NoriaError listen-failed, state-locked, state-unwritable, bad-config
 */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { log, clock = systemClock, random = systemRandom, handedOver = new Set() } = options;
  const bus = new EventBus((name, error) =>
    log.error({ event: name, error: describeError(error) }, 'observer failed'),
  );
  let config = options.config;
  let draining = false;
  const { built: parts, owner } = await openAll((owner) =>
    openParts({ clock, random, bus, log, owner, handedOver, config: () => config }, () => draining),
  );

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
    const drained = parts.listeners.drain();
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
      const { listeners, admin } = parts;
      return {
        listeners: listeners.addresses.map(({ host, port }) => formatHostPort(host, port)),
        admin:
          admin.address === undefined ? undefined : formatHostPort(admin.address.host, admin.address.port),
      };
    },
    bus,
    watched: parts.watched,
    reload(next) {
      const reloaded = reloading.then(() => reload(next)); // one after the other
      reloading = reloaded.catch(() => {}); // ignored here: the caller is told
      return reloaded;
    },
    close() {
      draining = true; // before a reload under way has finished: readiness says it at once
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
  const pool = await owner.open('pool', openPool({ ...poolSettings(config()), clock, random, bus, outlook }));
  const kept = decodeSnapshot(state.snapshot.read('pool'));
  if (kept !== undefined) pool.restore(kept, state.snapshot.ageMs('pool'));
  const faults: SourceFaults = new SourceFaults({
    clock,
    log,
    block: (source, reason) => pool.blockSource(source, reason),
    forgive: (source) => dialer.forgive(source),
  });
  owner.own('source faults', () => faults.close());
  const dialer = await openDialling(ground, pool, faults);
  const probing = { ...proberSettings(config()), clock, random, bus, pool, dialer };
  const prober = await owner.open('prober', openProber(probing));
  const admin = new AdminSlot(ground);
  const sources = () => config().sources.map(({ name }) => name);
  const ownAddresses = (): OwnAddress[] =>
    [...listeners.addresses, ...(admin.address === undefined ? [] : [admin.address])].map(asOwn);
  const listeners: ListenerSet = await owner.open(
    'listeners',
    new ListenerSet({ clock, bus, dialer, sources, ownAddresses, handedOver: ground.handedOver }),
  );
  await listeners.update(config().listeners, 0);
  const watched = viewDaemon({
    version: readVersion(),
    clock,
    log,
    pool,
    refiller: () => refiller,
    listeners: () =>
      listeners.opened.map(({ listener, config }) => ({ listener, protocols: config.protocols })),
    draining,
    cutLeases: (leases) => dialer.cut(leases),
    faults,
  });
  owner.own('admin', () => admin.close());
  await admin.open(config(), watched);

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
      reservoir: pool,
      restored: state.snapshot.read('refill'),
    }),
  );
  keepSnapshot(state, pool, refiller, ground);
  return { client, pool, refiller, dialer, faults, prober, listeners, admin, watched };
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

const asOwn = ({ host, port }: { readonly host: string; readonly port: number }): OwnAddress => ({
  address: host,
  port,
});

function keepSnapshot({ snapshot }: State, pool: Pool, refiller: Refiller, { bus, owner }: Ground): void {
  snapshot.keep('pool', () => pool.snapshot());
  snapshot.keep('refill', () => refiller.record());
  const subscriptions = [
    bus.on('draw.done', () => void snapshot.save()), // paid for: a crash a moment later must not lose it
    ...CHANGES.map((name) => bus.on(name, () => snapshot.changed())),
  ];
  owner.own('snapshot', () => {
    for (const subscription of subscriptions) subscription[Symbol.dispose]();
  });
}

function openDialling(
  { clock, bus, owner, config }: Ground,
  pool: Pool,
  faults: SourceFaults,
): Promise<OpenDialer> {
  return owner.open(
    'dialer',
    openDialer({
      ...dialerSettings(config()),
      clock,
      bus,
      pool,
      onSourceFault: (fault) => faults.tell(fault),
      onNetwork: (down) => pool.freezeEvictions(down),
    }),
  );
}

/**
 * What may fail comes first and is undone by whoever does it; the rest cannot fail. Sources change before listeners let go of
 * what they had, so that no client meets a listener whose source is not there yet.
 */
async function takeOver(parts: Parts, before: Config, next: Config): Promise<void> {
  await parts.listeners.update(next.listeners, next.shutdown.drainTimeoutMs);
  try {
    if (!isSame(before.admin, next.admin)) await parts.admin.open(next, parts.watched);
  } catch (error) {
    await parts.admin.open(before, parts.watched);
    await parts.listeners.update(before.listeners, before.shutdown.drainTimeoutMs);
    throw error;
  }
  parts.client.renew();
  parts.pool.reconfigure(poolSettings(next));
  parts.dialer.configure(dialerSettings(next));
  parts.prober.configure(proberSettings(next));
  parts.faults.forget();
  await parts.refiller.update(refillSettings(next));
}

/** Sections that are read once, at the start. */
function waitsForRestart(before: Config, next: Config): string[] {
  const sections = {
    'state.dir': [before.state, next.state],
    workers: [before.workers, next.workers],
    'log.format': [before.log.format, next.log.format],
  } as const;
  return Object.entries(sections).flatMap(([name, [one, other]]) => (isSame(one, other) ? [] : [name]));
}
