/**
 * Builds the parts, in order, and closes them in the reverse order. Nothing else builds parts.
 *
 * The order is that of the arrows: state, pool, service, refill, dialer, listeners, admin. So the listeners drain while the
 * pool lives and the admin page still shows it, and the last snapshot is written when nothing can change any more.
 */
import { type AdminServer, openAdmin } from './admin/server.ts';
import type { Watched } from './admin/watched.ts';
import type { Config, ListenerConfig } from './config/config.ts';
import { type Clock, pause, systemClock } from './core/clock.ts';
import { Deadlines } from './core/deadlines.ts';
import { EventBus } from './core/events.ts';
import { describeError } from './core/faults.ts';
import { formatHostPort } from './core/host-port.ts';
import { type Log, logEvents } from './core/log.ts';
import { type Ownership, openAll } from './core/ownership.ts';
import { type Random, systemRandom } from './core/random.ts';
import { readVersion } from './core/version.ts';
import {
  dialerSettings,
  listenAddress,
  listenerName,
  poolSettings,
  refillSettings,
  refusesOf,
} from './daemon-options.ts';
import { viewDaemon } from './daemon-view.ts';
import { type OpenDialer, openDialer } from './dialer/dialer.ts';
import { createAccess } from './listener/access.ts';
import { isOwnAddress, type OwnAddress } from './listener/deny-targets.ts';
import { type Listener, openListener } from './listener/listener.ts';
import { openPool, type Pool } from './pool/pool.ts';
import { decodeSnapshot } from './pool/snapshot.ts';
import { openRefiller, type Refiller } from './refill/refiller.ts';
import { openServiceClient } from './service/client.ts';
import { openState, type State } from './state/folder.ts';

export interface DaemonOptions {
  readonly config: Config;
  readonly log: Log;
  /** The system's own when absent. */
  readonly clock?: Clock;
  readonly random?: Random;
}

export interface Daemon {
  /** What is really bound, as `host:port`. */
  readonly addresses: { readonly listeners: readonly string[]; readonly admin: string | undefined };
  readonly bus: EventBus;
  /** What the admin API shows and steers. */
  readonly watched: Watched;
  /**
   * Stops taking clients, lets tunnels finish for at most `shutdown.drainTimeout`, then closes everything. Calling it again
   * joins the first call.
   */
  close(): Promise<void>;
}

/** How long a first head, a handshake and a half-closed tunnel may take: not worth a key of the configuration. */
const HEADER_TIMEOUT_MS = 15_000;
const HANDSHAKE_TIMEOUT_MS = 15_000;
const LINGER_MS = 60_000;
/** Coarse: what it ends has been silent for many times as long. */
const DEADLINE_TICK_MS = 250;
/** What a changed pool is worth writing down for; a draw is written at once. */
const CHANGES = [
  'member.left',
  'member.quarantined',
  'member.banned',
  'session.bound',
  'session.moved',
  'session.ended',
] as const;

interface Parts {
  readonly config: Config;
  readonly clock: Clock;
  readonly random: Random;
  readonly bus: EventBus;
  readonly log: Log;
  readonly owner: Ownership;
}

/**
 * Opens everything, or nothing.
 *
 * @throws NoriaError listen-failed, state-locked, state-unwritable, bad-config
 */
export async function startDaemon(options: DaemonOptions): Promise<Daemon> {
  const { config, log, clock = systemClock, random = systemRandom } = options;
  const bus = new EventBus((name, error) =>
    log.error({ event: name, error: describeError(error) }, 'observer failed'),
  );
  let draining = false;
  const { built, owner } = await openAll(async (owner) => {
    const parts: Parts = { config, clock, random, bus, log, owner };
    const following = logEvents(bus, log);
    owner.own('log', () => following[Symbol.dispose]());
    const own: OwnAddress[] = [];
    const state = await owner.open(
      'state',
      openState({ dir: config.state?.dir, daemon: true, clock, warn: (message) => log.warn({}, message) }),
    );
    const { pool, refiller } = await openWheel(parts, state, own);
    const dialer = await openDialling(parts, pool);
    const listeners = await openListeners(parts, dialer, own);
    const watched = viewDaemon({
      version: readVersion(),
      clock,
      log,
      pool,
      refiller,
      listeners: () => listeners,
      draining: () => draining,
      cutLeases: (leases) => dialer.cut(leases),
    });
    const admin = await openWatching(parts, watched);
    if (admin !== undefined) own.push({ address: admin.host, port: admin.port });
    const bound = listeners.flatMap(({ listener }) => listener.addresses);
    return {
      watched,
      listeners,
      addresses: {
        listeners: bound.map(({ host, port }) => formatHostPort(host, port)),
        admin: admin === undefined ? undefined : formatHostPort(admin.host, admin.port),
      },
    };
  });

  const close = async () => {
    draining = true;
    const drained = Promise.all(built.listeners.map(({ listener }) => listener.drain()));
    const patience = new AbortController();
    await Promise.race([drained, pause(clock, config.shutdown.drainTimeoutMs, patience.signal)]);
    patience.abort();
    await owner.close();
  };
  let closing: Promise<void> | undefined;
  return {
    addresses: built.addresses,
    bus,
    watched: built.watched,
    close: () => (closing ??= close()),
  };
}

/** The pool and what keeps it full. */
async function openWheel(
  { config, clock, random, bus, owner }: Parts,
  state: State,
  own: readonly OwnAddress[],
): Promise<{ pool: Pool; refiller: Refiller }> {
  let outlook: Refiller['outlook'] = () => ({ sources: [] });
  const pool = await owner.open(
    'pool',
    openPool({ ...poolSettings(config), clock, random, bus, outlook: () => outlook() }),
  );
  const kept = decodeSnapshot(state.snapshot.read('pool'));
  if (kept !== undefined) pool.restore(kept);
  const client = await owner.open(
    'service client',
    openServiceClient({
      timeoutMs: config.service.timeoutMs,
      clock,
      refuses: refusesOf(config, (host, port) => isOwnAddress({ host, port, kind: 'ipv4' }, own)),
    }),
  );
  const refiller = await owner.open(
    'refill',
    openRefiller({
      ...refillSettings(config),
      clock,
      random,
      bus,
      pace: state.pace,
      extractor: client,
      reservoir: pool,
      restored: state.snapshot.read('refill'),
    }),
  );
  outlook = () => refiller.outlook();
  keepSnapshot(state, pool, refiller, bus, owner);
  return { pool, refiller };
}

function keepSnapshot(
  { snapshot }: State,
  pool: Pool,
  refiller: Refiller,
  bus: EventBus,
  owner: Ownership,
): void {
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

function openDialling({ config, clock, bus, log, owner }: Parts, pool: Pool): Promise<OpenDialer> {
  return owner.open(
    'dialer',
    openDialer({
      ...dialerSettings(config),
      clock,
      bus,
      pool,
      onSourceFault({ source, lasting, reason, advice }) {
        pool.blockSource(source, lasting ? reason : undefined);
        if (lasting) log.error({ source, reason, advice }, 'source refused by its members');
        else log.info({ source }, 'source accepted by its members again');
      },
      onNetwork: (down) => pool.freezeEvictions(down),
    }),
  );
}

async function openListeners(parts: Parts, dialer: OpenDialer, own: OwnAddress[]) {
  const { config, clock, owner } = parts;
  const deadlines = new Deadlines(clock, DEADLINE_TICK_MS);
  owner.own('deadlines', () => deadlines.clearAll());
  const opened: { readonly listener: Listener; readonly protocols: ListenerConfig['protocols'] }[] = [];
  for (const listenerConfig of config.listeners) {
    const listener = await owner.open(
      `listener ${listenerName(listenerConfig)}`,
      openOneListener(parts, listenerConfig, { dialer, deadlines, own }),
    );
    own.push(...listener.addresses.map(({ host, port }) => ({ address: host, port })));
    opened.push({ listener, protocols: listenerConfig.protocols });
  }
  return opened;
}

function openOneListener(
  { config, clock, bus }: Parts,
  listener: ListenerConfig,
  shared: { readonly dialer: OpenDialer; readonly deadlines: Deadlines; readonly own: readonly OwnAddress[] },
): Promise<Listener> {
  const { users, allow, denyTargets, tls } = listener;
  return openListener({
    name: listenerName(listener),
    access: createAccess({ users, allow, denyTargets, ownAddresses: () => shared.own, clock }),
    dialer: shared.dialer,
    bus,
    clock,
    deadlines: shared.deadlines,
    sessionMode: listener.session,
    ...(listener.source === undefined ? {} : { source: listener.source }),
    sources: config.sources.map(({ name }) => name),
    idleTimeoutMs: listener.idleTimeoutMs,
    lingerMs: LINGER_MS,
    headerTimeoutMs: HEADER_TIMEOUT_MS,
    handshakeTimeoutMs: HANDSHAKE_TIMEOUT_MS,
    addresses: [listenAddress(listener)],
    protocols: listener.protocols,
    ...(tls === undefined ? {} : { tls: { cert: tls.cert, key: tls.key.reveal() } }),
    maxConnections: listener.maxConnections,
    maxConnectionsPerClient: 0,
    mayFaceNetwork: users.length > 0,
  });
}

async function openWatching(
  { config, clock, bus, log, owner }: Parts,
  watched: Watched,
): Promise<AdminServer | undefined> {
  const { admin } = config;
  if (admin === undefined || admin.address.kind !== 'tcp') return undefined;
  return owner.open(
    'admin',
    openAdmin({
      host: admin.address.host,
      port: admin.address.port,
      ...(admin.token === undefined ? {} : { token: admin.token }),
      version: readVersion(),
      watched,
      bus,
      clock,
      onError: (error) => log.error({ error: describeError(error) }, 'admin request failed'),
    }),
  );
}
