/**
 * The daemon's listeners, through reloads: those that did not change keep their connections, changed ones give their address
 * to their successors and let their tunnels finish.
 */
import { overlap } from './config/address.ts';
import type { ListenerConfig } from './config/config.ts';
import { isSame } from './config/same.ts';
import { type Clock, pause } from './core/clock.ts';
import { Deadlines } from './core/deadlines.ts';
import type { EventBus } from './core/events.ts';
import { NoriaError } from './core/faults.ts';
import { listenerName } from './daemon-options.ts';
import type { Dialer } from './dialer/dial.ts';
import { type Access, createAccess } from './listener/access.ts';
import type { BoundAddress } from './listener/bind.ts';
import type { OwnAddress } from './listener/deny-targets.ts';
import { type Listener, openListener, type Room } from './listener/listener.ts';

export interface ListenerSetOptions {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly dialer: Dialer;
  /** Names of all sources, at this moment. */
  readonly sources: () => readonly string[];
  /** Where noria listens, at this moment: never a target. */
  readonly ownAddresses: () => readonly OwnAddress[];
  /** Descriptors of listening sockets that were handed over. Each can be opened once. */
  readonly handedOver: ReadonlySet<number>;
  /** Only where several processes open the same listeners. */
  readonly sharing?: Sharing;
}

/** A listener of the configuration; where several processes open it, with what they have to agree on. */
export interface PlacedListener extends ListenerConfig {
  readonly shared?: {
    /** The same in every process, and through reloads that leave the listener as it is. */
    readonly id: number;
    /** Bound instead of port 0, which would be another one in each. */
    readonly port: number | undefined;
  };
}

/** What one process has to tell the others, and to ask them, about a listener that they share. */
export interface Sharing {
  /** Who knows how many connections the limit leaves. */
  roomOf(listener: number): Room;
  /** Somebody gave wrong credentials here. */
  failed(listener: number, remoteAddress: string | undefined): void;
}

export interface OpenedListener {
  readonly config: PlacedListener;
  readonly listener: Listener;
  readonly access: Access;
}

/** How long a first head, a handshake and a half-closed tunnel may take: not worth a key of the configuration. */
const HEADER_TIMEOUT_MS = 15_000;
const HANDSHAKE_TIMEOUT_MS = 15_000;
const LINGER_MS = 60_000;
/** Coarse: what it ends has been silent for many times as long. */
const DEADLINE_TICK_MS = 250;

export class ListenerSet {
  readonly #options: ListenerSetOptions;
  readonly #deadlines: Deadlines;
  #opened: readonly OpenedListener[] = [];
  /** Listeners of an earlier configuration whose tunnels finish. */
  readonly #leaving = new Map<Listener, Promise<void>>();
  /** Of those handed over: their numbers may stand for something else once they have been closed. */
  readonly #usedFds = new Set<number>();

  constructor(options: ListenerSetOptions) {
    this.#options = options;
    this.#deadlines = new Deadlines(options.clock, DEADLINE_TICK_MS);
  }

  /** In the order of the configuration. */
  get opened(): readonly OpenedListener[] {
    return this.#opened;
  }

  /** What is really bound. */
  get addresses(): readonly BoundAddress[] {
    return this.#opened.flatMap(({ listener }) => listener.addresses);
  }

  /**
   * Makes the set what `configs` says. When one cannot be opened, those before stand again and the reason is thrown.
   *
   * @param drainTimeoutMs - how long tunnels of listeners that go may take to finish.
   * @throws NoriaError listen-failed, bad-config
   */
  async update(configs: readonly PlacedListener[], drainTimeoutMs: number): Promise<void> {
    const before = this.#opened;
    const next: OpenedListener[] = [];
    const freed: OpenedListener[] = [];
    try {
      for (const config of configs) {
        const kept = before.find((opened) => isSameButTls(opened.config, config));
        if (kept !== undefined) {
          if (config.tls !== undefined && !isSame(kept.config.tls, config.tls)) {
            kept.listener.reloadTls({ cert: config.tls.cert, key: config.tls.key.reveal() });
          }
          next.push({ ...kept, config });
          continue;
        }
        this.#claim(config);
        const inTheWay = before.filter(
          (opened) => !freed.includes(opened) && overlap(boundTo(opened.config), boundTo(config)),
        );
        for (const opened of inTheWay) {
          freed.push(opened);
          this.#leave(opened.listener, drainTimeoutMs);
        }
        next.push(await this.#open(config));
      }
    } catch (error) {
      await this.#rollBack(before, next, freed);
      throw error;
    }
    this.#opened = next;
    for (const { listener } of before) {
      if (!next.some((opened) => opened.listener === listener)) this.#leave(listener, drainTimeoutMs);
    }
  }

  /** Somebody gave wrong credentials to another process that shares this listener. */
  failedElsewhere(listener: number, remoteAddress: string | undefined): void {
    const opened = this.#opened.find(({ config }) => config.shared?.id === listener);
    opened?.access.failedElsewhere(remoteAddress);
  }

  /** Takes no new clients; resolves when all connections with something under way have ended. */
  async drain(): Promise<void> {
    await Promise.all([...this.#opened.map(({ listener }) => listener.drain()), ...this.#leaving.values()]);
  }

  /** Ends everything now. */
  async close(): Promise<void> {
    const listeners = [...this.#opened.map(({ listener }) => listener), ...this.#leaving.keys()];
    await Promise.all(listeners.map((listener) => listener.close()));
    this.#deadlines.clearAll();
  }

  /** Lets a listener finish what it has, then closes it. Its address is free at once. */
  #leave(listener: Listener, drainTimeoutMs: number): void {
    if (this.#leaving.has(listener)) return;
    const patience = new AbortController();
    const leaving = Promise.race([
      listener.drain(),
      pause(this.#options.clock, drainTimeoutMs, patience.signal),
    ])
      .then(() => listener.close())
      .finally(() => {
        patience.abort();
        this.#leaving.delete(listener);
      });
    this.#leaving.set(listener, leaving);
  }

  /**
   * Takes the descriptor of a listener that names one.
   *
   * @throws NoriaError listen-failed when it was not handed over, or was opened before: it cannot be opened anew, so what a
   *   reload changes on such a listener waits for a restart, in which the service manager keeps the socket.
   */
  #claim({ address }: ListenerConfig): void {
    if (address.kind !== 'fd') return;
    const { fd } = address;
    if (!this.#options.handedOver.has(fd)) {
      const why =
        'no such socket was handed over; start noria by a systemd socket unit, or listen on host:port';
      throw new NoriaError('listen-failed', `cannot listen on fd:${fd}: ${why}`);
    }
    if (this.#usedFds.has(fd)) {
      const why = 'a socket that was handed over can be opened once; restart noria to change this listener';
      throw new NoriaError('listen-failed', `cannot listen on fd:${fd}: ${why}`);
    }
    this.#usedFds.add(fd);
  }

  async #rollBack(
    before: readonly OpenedListener[],
    next: readonly OpenedListener[],
    freed: readonly OpenedListener[],
  ): Promise<void> {
    const fresh = next.filter(({ listener }) => !before.some((opened) => opened.listener === listener));
    await Promise.all(fresh.map(({ listener }) => listener.close()));
    const stands: OpenedListener[] = [];
    for (const opened of before) {
      stands.push(freed.includes(opened) ? await this.#open(opened.config) : opened);
    }
    this.#opened = stands;
  }

  async #open(config: PlacedListener): Promise<OpenedListener> {
    const { clock, bus, dialer, sources, ownAddresses, sharing } = this.#options;
    const { users, allow, denyTargets, tls, source, shared } = config;
    const access = createAccess({
      users,
      allow,
      denyTargets,
      ownAddresses,
      clock,
      ...(sharing === undefined || shared === undefined
        ? {}
        : { onFailure: (remoteAddress) => sharing.failed(shared.id, remoteAddress) }),
    });
    const listener = await openListener({
      name: listenerName(config),
      access,
      dialer,
      bus,
      clock,
      deadlines: this.#deadlines,
      sessionMode: config.session,
      ...(source === undefined ? {} : { source }),
      get sources() {
        return sources(); // a reload may change them while the listener stays
      },
      idleTimeoutMs: config.idleTimeoutMs,
      lingerMs: LINGER_MS,
      headerTimeoutMs: HEADER_TIMEOUT_MS,
      handshakeTimeoutMs: HANDSHAKE_TIMEOUT_MS,
      addresses: [boundTo(config)],
      protocols: config.protocols,
      ...(tls === undefined ? {} : { tls: { cert: tls.cert, key: tls.key.reveal() } }),
      maxConnections: config.maxConnections,
      mayFaceNetwork: users.length > 0,
      ...(sharing === undefined || shared === undefined ? {} : { room: sharing.roomOf(shared.id) }),
    });
    return { config, listener, access };
  }
}

/** Where it is really to listen. */
export function boundTo({ address, shared }: PlacedListener): ListenerConfig['address'] {
  const port = shared?.port;
  return address.kind === 'fd' || port === undefined ? address : { ...address, port, lastPort: port };
}

/** A certificate can be exchanged under an open listener; going from TLS to none, or back, cannot. */
export function isSameButTls(one: PlacedListener, other: PlacedListener): boolean {
  const { tls: oneTls, ...oneRest } = one;
  const { tls: otherTls, ...otherRest } = other;
  return (oneTls === undefined) === (otherTls === undefined) && isSame(oneRest, otherRest);
}
