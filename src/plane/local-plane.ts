/**
 * The data plane in one process, all of noria's or that of a worker: its dialer, and its listeners across reloads. An
 * unchanged listener keeps its connections. A new listener replaces a changed listener and takes over its addresses; the
 * tunnels of the old listener may finish.
 *
 * An update is provisional until `commit`. Until then, a removed listener stops listening but keeps its connections, so
 * that a second update can restore it.
 */
import { type Clock, pause } from '../core/clock.ts';
import { Deadlines } from '../core/deadlines.ts';
import type { EventBus } from '../core/events.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import type { LoopGuard } from '../core/front-proxy.ts';
import {
  type BoundAddress,
  formatListenAddress,
  type ListenAddress,
  overlap,
} from '../core/listen-address.ts';
import { isSame, type Secret } from '../core/secret.ts';
import { type DialerOptions, MemberDialer } from '../dialer/dialer.ts';
import type { DialerSettings } from '../dialer/limits.ts';
import { Access, type AccessOptions, type WrongAttempt } from '../listener/access.ts';
import type { ConnectionLimit, ListenerOptions } from '../listener/client-connection.ts';
import { type Listener, openListener } from '../listener/listener.ts';
import { type UsedToday, UserLimits } from '../listener/user-limits.ts';
import type { ClientName, ClientUse, LeaseHolder } from '../pool/leases.ts';
import type { PoolSettings } from '../pool/options.ts';
import type { Pool } from '../pool/pool.ts';

/** The data plane as the daemon controls it: the listeners and their dialer, in this process or in several workers. */
export interface DataPlane {
  readonly listeners: readonly ListenerStatus[];
  /** The number of processes that serve clients. `wanted`: the configured number. `running`: the current number. */
  readonly workers: { readonly wanted: number; readonly running: number };
  readonly dialer: Pick<MemberDialer, 'attempt'>;
  /**
   * Opens and closes listeners until they match `settings`. If a listener cannot be opened, restores the previous listeners and
   * throws. The update is provisional until `commit`. Before `commit`, a second call with the previous settings restores the
   * previous listeners and all their connections.
   * @param drainTimeoutMs - how long tunnels of removed listeners may take to finish.
   * @throws NoriaError listen-failed, bad-config
   */
  update(settings: readonly ListenerSettings[], drainTimeoutMs: number): Promise<void>;
  /** Makes the update final: applies these settings and drains the listeners that `update` removed. */
  commit(settings: PlaneSettings): void;
  setContext(context: PlaneContext): void;
  resetRefusals(source: string): void;
  closeConnections(of: LeaseHolder): void;
  /** Call it before `close`. A current or later `update` then ends within about a second, even if a worker hangs. */
  prepareToClose(): void;
  drain(): Promise<void>;
  close(): Promise<void>;
}

export interface PlaneSettings {
  readonly dialer: DialerSettings;
  readonly pool: PoolSettings;
}

export interface ListenerSettings
  extends Pick<AccessOptions, 'users' | 'allow' | 'denyTargets'>,
    Pick<
      ListenerOptions,
      'protocols' | 'maxConnections' | 'idleTimeoutMs' | 'session' | 'source' | 'proxyProtocol'
    > {
  readonly address: ListenAddress;
  readonly tls?: { readonly cert: string; readonly key: Secret } | undefined;
  /** The settings that are equal in all processes that serve this listener. Absent if noria has no workers. */
  readonly shared?: {
    /** The id of the listener in every process. A reload that does not change the listener keeps the id. */
    readonly id: number;
    /** The port to use in place of port 0, which would be a different port in each process. */
    readonly port: number | undefined;
  };
}

export interface PlaneContext {
  readonly sourceNames: readonly string[];
  /** The addresses of the admin API and of proxyPool. Clients may not use them as targets. */
  readonly apiAddresses: readonly BoundAddress[];
  /** What the users with limits used today. Absent: as before. */
  readonly usedToday?: UsedToday;
}

export interface ListenerStatus {
  readonly name: string;
  readonly protocols: ListenerSettings['protocols'];
  readonly addresses: readonly BoundAddress[];
  /** The number of open client connections, including connections that were accepted before the last change of the listener. */
  readonly connections: number;
}

export interface LocalPlaneOptions extends Pick<DialerOptions, 'leases' | 'onSourceFault' | 'onNetwork'> {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly pool: Pool;
  readonly dialer: DialerSettings;
  readonly context: PlaneContext;
  /** The file descriptors of inherited listening sockets (`fd:3`). Each descriptor can be opened only once. */
  readonly inheritedFds: ReadonlySet<number>;
  readonly mark: string;
  /** Absent in a noria with one process. */
  readonly sharing?: {
    connectionLimit(listenerId: number): ConnectionLimit;
    onWrongCredentials(listenerId: number, attempt: WrongAttempt): void;
  };
  /** What clients ask and say through the proxy, in other processes and norias that serve them. */
  readonly elsewhere?:
    | {
        findSession(name: string): Promise<unknown>;
        lastUses?(name: ClientName): Promise<readonly ClientUse[]>;
        closeTunnels?(name: ClientName, host: string): void;
      }
    | undefined;
}

interface OpenedListener {
  settings: ListenerSettings;
  readonly listener: Listener;
  readonly access: Access;
}

interface RequiredListener {
  readonly settings: ListenerSettings;
  readonly existing: OpenedListener | undefined;
}

interface Change {
  readonly removed: readonly OpenedListener[];
  /** The removed listeners that no longer listen, because other listeners need their addresses. */
  readonly stopped: OpenedListener[];
  readonly started: OpenedListener[];
}

const LIMITS = {
  headerTimeoutMs: 15_000,
  handshakeTimeoutMs: 15_000,
  /** How long one direction of a tunnel may stay open and silent after the other has ended. */
  lingerMs: 60_000,
} as const;
/** The timeouts of listeners fire up to this number of ms late, which is little compared with their length. */
const DEADLINE_TICK_MS = 250;

export class LocalPlane implements DataPlane {
  readonly workers = { wanted: 1, running: 1 };
  readonly dialer: MemberDialer;
  readonly #options: LocalPlaneOptions;
  readonly #deadlines: Deadlines;
  #context: PlaneContext;
  #opened: readonly OpenedListener[] = [];
  /** Undefined until the first update after a commit. */
  #previous: { readonly opened: readonly OpenedListener[]; readonly drainTimeoutMs: number } | undefined;
  readonly #draining = new Map<Listener, Promise<void>>();
  /** After a close, the number of a descriptor may refer to another file. */
  readonly #usedFds = new Set<number>();
  /** noria's own addresses, cached because every request reads them. */
  #ownAddresses: readonly BoundAddress[] = [];
  readonly #guard: LoopGuard;
  readonly #limits: UserLimits;

  constructor(options: LocalPlaneOptions) {
    this.#options = options;
    this.#deadlines = new Deadlines(options.clock, DEADLINE_TICK_MS);
    this.#context = options.context;
    this.#limits = new UserLimits(options.clock);
    this.#guard = { mark: options.mark, ownAddresses: () => this.#ownAddresses };
    this.dialer = new MemberDialer({ ...options, ...options.dialer, guard: this.#guard });
  }

  get listeners(): readonly ListenerStatus[] {
    const leaving = [...this.#suspended.map(({ listener }) => listener), ...this.#draining.keys()];
    return this.#opened.map(({ settings, listener }) => {
      const sameName = [listener, ...leaving.filter(({ name }) => name === listener.name)];
      return {
        name: listener.name,
        protocols: settings.protocols,
        addresses: listener.addresses,
        connections: sameName.reduce((sum, { connectionCount }) => sum + connectionCount, 0),
      };
    });
  }

  setContext(context: PlaneContext): void {
    this.#context = context;
    if (context.usedToday !== undefined) this.#limits.setToday(context.usedToday);
    this.#refreshOwnAddresses();
  }

  async update(settings: readonly ListenerSettings[], drainTimeoutMs: number): Promise<void> {
    const before = this.#opened;
    this.#limits.configure(settings.flatMap(({ users }) => users));
    const wanted = this.#match(settings);
    const certificateSwaps = wanted.flatMap(prepareCertificate);
    const change: Change = {
      removed: before.filter((opened) => !wanted.some(({ existing }) => existing === opened)),
      stopped: [],
      started: [],
    };
    const next: OpenedListener[] = [];
    try {
      for (const each of wanted) next.push(await this.#start(each, change));
    } catch (error) {
      await this.#undo(change, error, drainTimeoutMs);
      throw error;
    }
    for (const swap of certificateSwaps) swap();
    this.#setOpened(next);
    const restorable = this.#previous?.opened ?? before;
    if (restorable.length > 0) this.#previous = { opened: restorable, drainTimeoutMs };
    for (const removed of change.removed) {
      stop(removed);
      // Only the listeners of the last commit can be restored. This listener was opened later, so it is closed.
      if (!restorable.includes(removed)) this.#drainAndClose(removed.listener, drainTimeoutMs);
    }
  }

  commit({ dialer }: Pick<PlaneSettings, 'dialer'>): void {
    const { drainTimeoutMs = 0 } = this.#previous ?? {};
    for (const { listener } of this.#suspended) this.#drainAndClose(listener, drainTimeoutMs);
    this.#previous = undefined;
    this.dialer.configure(dialer);
  }

  resetRefusals(source: string): void {
    this.dialer.resetRefusals(source);
  }

  closeConnections(of: LeaseHolder): void {
    this.dialer.closeConnections(this.#options.pool.leases.of(of));
  }

  closeTunnels(name: ClientName, host: string): void {
    this.dialer.closeConnections(this.#options.pool.leases.to(name, host));
  }

  prepareToClose(): void {} // nothing to prepare: an update in this process cannot hang

  countWrongCredentials(listenerId: number, attempt: WrongAttempt): void {
    const opened = this.#opened.find(({ settings }) => settings.shared?.id === listenerId);
    opened?.access.countWrongCredentials(attempt);
  }

  async drain(): Promise<void> {
    const listeners = [...this.#opened, ...this.#suspended].map(({ listener }) => listener);
    await Promise.all([...listeners.map((listener) => listener.drain()), ...this.#draining.values()]);
  }

  async close(): Promise<void> {
    const listeners = [...this.#opened, ...this.#suspended].map(({ listener }) => listener);
    await Promise.all([...listeners, ...this.#draining.keys()].map((listener) => listener.close()));
    this.#deadlines.clearAll();
    await this.dialer.close();
  }

  /** Listeners that an uncommitted update removed: they do not listen, but keep their connections. */
  get #suspended(): readonly OpenedListener[] {
    return (this.#previous?.opened ?? []).filter((opened) => !this.#opened.includes(opened));
  }

  #match(settings: readonly ListenerSettings[]): RequiredListener[] {
    const available = [...this.#opened, ...this.#suspended];
    return settings.map((each) => {
      const at = available.findIndex((opened) => isSameButCertificate(opened.settings, each));
      return { settings: each, existing: at < 0 ? undefined : available.splice(at, 1)[0] };
    });
  }

  async #start({ settings, existing }: RequiredListener, change: Change): Promise<OpenedListener> {
    if (existing !== undefined && this.#opened.includes(existing)) return existing;
    if (existing === undefined) this.#claimInherited(settings.address);
    for (const removed of change.removed) {
      const conflicts = overlap(bindAddress(removed.settings), bindAddress(settings));
      if (!conflicts || change.stopped.includes(removed)) continue;
      change.stopped.push(removed);
      stop(removed);
    }
    await existing?.listener.listen();
    const started = existing ?? (await this.#open(settings));
    change.started.push(started);
    return started;
  }

  /**
   * Reverts a failed update.
   * @throws NoriaError listen-failed if another program has taken the address of a stopped listener. This listener
   * closes; the next reload whose settings contain the listener opens it again.
   */
  async #undo({ stopped, started }: Change, reason: unknown, drainTimeoutMs: number): Promise<void> {
    for (const each of started) {
      if (this.#suspended.includes(each)) stop(each);
      else await each.listener.close();
    }
    const lost: string[] = [];
    for (const each of stopped) {
      try {
        await each.listener.listen();
      } catch (error) {
        lost.push(describeError(error)); // handled: the error is thrown after the other listeners are restored
        this.#setOpened(this.#opened.filter((opened) => opened !== each));
        this.#drainAndClose(each.listener, drainTimeoutMs);
      }
    }
    if (lost.length === 0) return;
    const why = `${describeError(reason)}; could not restore the previous listeners: ${lost.join('; ')}`;
    throw new NoriaError('listen-failed', why, { cause: reason });
  }

  #claimInherited(address: ListenAddress): void {
    if (address.kind !== 'fd') return;
    const { fd } = address;
    const isInherited = this.#options.inheritedFds.has(fd);
    if (isInherited && !this.#usedFds.has(fd)) {
      this.#usedFds.add(fd);
      return;
    }
    const why = isInherited
      ? 'an inherited socket can be opened only once; restart noria to change this listener'
      : 'noria inherited no socket with this number; start noria through a systemd socket unit, or listen on host:port';
    throw new NoriaError('listen-failed', `cannot listen on fd:${fd}: ${why}`);
  }

  #setOpened(opened: readonly OpenedListener[]): void {
    this.#opened = opened;
    this.#refreshOwnAddresses();
  }

  #refreshOwnAddresses(): void {
    const listeners = this.#opened.flatMap(({ listener }) => listener.addresses);
    this.#ownAddresses = [...listeners, ...this.#context.apiAddresses];
  }

  #drainAndClose(listener: Listener, drainTimeoutMs: number): void {
    const timeout = new AbortController();
    const closed = Promise.race([
      listener.drain(),
      pause(this.#options.clock, drainTimeoutMs, timeout.signal),
    ])
      .then(() => listener.close())
      .finally(() => {
        timeout.abort();
        this.#draining.delete(listener);
      });
    this.#draining.set(listener, closed);
  }

  async #open(settings: ListenerSettings): Promise<OpenedListener> {
    const { clock, bus, pool, sharing, elsewhere } = this.#options;
    const { address, users, allow, denyTargets, tls, shared, ...rest } = settings;
    const shares = sharing === undefined || shared === undefined ? undefined : { sharing, id: shared.id };
    const access = new Access({
      users,
      allow,
      denyTargets,
      guard: this.#guard,
      clock,
      ...(shares && {
        onWrongCredentials: (attempt) => shares.sharing.onWrongCredentials(shares.id, attempt),
      }),
    });
    const listener = await openListener({
      ...rest,
      ...LIMITS,
      name: formatListenAddress(address),
      addresses: [bindAddress(settings)],
      allowNonLoopback: users.length > 0,
      ...(tls && { tls: { cert: tls.cert, key: tls.key.reveal() } }),
      access,
      dialer: this.dialer,
      desk: {
        clients: pool.leases,
        lastUse: (name) => (elsewhere === undefined ? pool.leases.lastUse(name) : this.#lastUse(name)),
        rotateSession: (name) => pool.rotateSession(name) !== undefined,
        closeTunnels: (name, host) => {
          this.closeTunnels(name, host);
          elsewhere?.closeTunnels?.(name, host);
        },
      },
      bus,
      clock,
      deadlines: this.#deadlines,
      limits: this.#limits,
      sourceNames: () => this.#context.sourceNames,
      ...(shares && { sharedLimit: shares.sharing.connectionLimit(shares.id) }),
    });
    return { settings, listener, access };
  }

  async #lastUse(name: ClientName): Promise<ClientUse | undefined> {
    const { pool, elsewhere } = this.#options;
    const { session } = name;
    const [uses = []] = await Promise.all([
      elsewhere?.lastUses?.(name),
      session === undefined ? undefined : elsewhere?.findSession(session),
    ]);
    return pool.leases.latest(name, [pool.leases.lastUse(name), ...uses]);
  }
}

/**
 * Stops listening, except on an inherited socket: noria could not open that socket again, and no other listener needs
 * its address.
 */
function stop({ settings, listener }: OpenedListener): void {
  if (settings.address.kind !== 'fd') listener.stop();
}

function prepareCertificate({ settings, existing }: RequiredListener): (() => void)[] {
  const { tls } = settings;
  if (tls === undefined || existing === undefined || isSame(existing.settings.tls, tls)) return [];
  const swap = existing.listener.prepareTls({ cert: tls.cert, key: tls.key.reveal() });
  return [
    () => {
      swap();
      existing.settings = settings;
    },
  ];
}

export function bindAddress({ address, shared }: ListenerSettings): ListenAddress {
  const port = shared?.port;
  return address.kind === 'fd' || port === undefined ? address : { ...address, port, lastPort: port };
}

/** A certificate can change while a listener is open. Switching TLS on or off needs a new listener. */
export function isSameButCertificate(one: ListenerSettings, other: ListenerSettings): boolean {
  const { tls: oneTls, ...oneRest } = one;
  const { tls: otherTls, ...otherRest } = other;
  return (oneTls === undefined) === (otherTls === undefined) && isSame(oneRest, otherRest);
}
