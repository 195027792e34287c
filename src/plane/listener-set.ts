/**
 * The daemon's listeners, through reloads: those that did not change keep their connections, changed ones give their address
 * to their successors and let their tunnels finish.
 *
 * A reload may fail after the listeners have changed, so what it takes out of service keeps its connections as they are until
 * `settle`: an `update` back to what stood before takes it in again.
 */

import type { ListenerConfig } from '../config/config.ts';
import { type Clock, pause } from '../core/clock.ts';
import { Deadlines } from '../core/deadlines.ts';
import type { EventBus } from '../core/events.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { isSame } from '../core/is-same.ts';
import { formatListenAddress, overlap } from '../core/listen-address.ts';
import type { Dialer } from '../dialer/dial.ts';
import { Access } from '../listener/access.ts';
import type { BoundAddress } from '../listener/bind.ts';
import type { ConnectionLimit } from '../listener/connection-limit.ts';
import type { OwnAddress } from '../listener/deny-targets.ts';
import { type Listener, openListener } from '../listener/listener.ts';
import { InheritedSockets } from './inherited-sockets.ts';

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
  roomOf(listener: number): ConnectionLimit;
  /** Somebody gave wrong credentials here. */
  failed(listener: number, remoteAddress: string | undefined): void;
}

export interface OpenedListener {
  readonly config: PlacedListener;
  readonly listener: Listener;
  readonly access: Access;
}

/** What is to stand, and what is there for it: open, or out of service until the change is settled. */
interface Wanted {
  readonly config: PlacedListener;
  readonly known: OpenedListener | undefined;
}

/** How far an update has come. */
interface Change {
  /** Open now, and not to stand. */
  readonly going: readonly OpenedListener[];
  /** Of those: whose addresses were wanted. */
  readonly stopped: OpenedListener[];
  /** Opened, or taken in again. */
  readonly opened: OpenedListener[];
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
  /** While a change is not settled: what stood before it, and may be wanted back. */
  #before: { readonly opened: readonly OpenedListener[]; readonly drainTimeoutMs: number } | undefined;
  /** Listeners of an earlier configuration whose tunnels finish. */
  readonly #leaving = new Map<Listener, Promise<void>>();
  readonly #handedOver: InheritedSockets;

  constructor(options: ListenerSetOptions) {
    this.#options = options;
    this.#deadlines = new Deadlines(options.clock, DEADLINE_TICK_MS);
    this.#handedOver = new InheritedSockets(options.handedOver);
  }

  /** In the order of the configuration. */
  get opened(): readonly OpenedListener[] {
    return this.#opened;
  }

  /** What is really bound. */
  get addresses(): readonly BoundAddress[] {
    return this.#opened.flatMap(({ listener }) => listener.addresses);
  }

  /** Client connections open at this moment, those of listeners included that had the name before and go. */
  connectionsOf({ listener }: OpenedListener): number {
    const going = [...this.#outOfService.map((opened) => opened.listener), ...this.#leaving.keys()];
    const sameName = going.filter(({ name }) => name === listener.name);
    return [listener, ...sameName].reduce((sum, { connectionCount }) => sum + connectionCount, 0);
  }

  /**
   * Makes the set what `configs` says, until `settle` in a way that an `update` to what was before undoes. When one cannot be
   * opened, those before stand again, with their connections, and the reason is thrown.
   *
   * @param drainTimeoutMs - how long tunnels of listeners that go may take to finish.
   * @throws NoriaError listen-failed, bad-config
   */
  async update(configs: readonly PlacedListener[], drainTimeoutMs: number): Promise<void> {
    const opened = this.#opened;
    const wanted = this.#match(configs);
    const certificates = wanted.flatMap(prepareCertificate);
    const change: Change = {
      going: opened.filter(({ listener }) => !wanted.some(({ known }) => known?.listener === listener)),
      stopped: [],
      opened: [],
    };
    const next: OpenedListener[] = [];
    try {
      for (const each of wanted) next.push(await this.#bringIn(each, change));
    } catch (error) {
      await this.#undo(change, error, drainTimeoutMs);
      throw error;
    }
    for (const exchange of certificates) exchange();
    this.#opened = next;
    const before = this.#before?.opened ?? opened;
    if (before.length > 0) this.#before = { opened: before, drainTimeoutMs };
    for (const each of change.going) {
      stop(each);
      // What came and went with a change that never was settled is wanted back by nobody.
      if (!has(before, each.listener)) this.#leave(each.listener, drainTimeoutMs);
    }
  }

  /** The change stands: what it took out of service lets its clients finish, then closes. */
  settle(): void {
    const { drainTimeoutMs = 0 } = this.#before ?? {};
    for (const { listener } of this.#outOfService) this.#leave(listener, drainTimeoutMs);
    this.#before = undefined;
  }

  /** Somebody gave wrong credentials to another process that shares this listener. */
  failedElsewhere(listener: number, remoteAddress: string | undefined): void {
    const opened = this.#opened.find(({ config }) => config.shared?.id === listener);
    opened?.access.countFailure(remoteAddress);
  }

  /** Takes no new clients; resolves when all connections with something under way have ended. */
  async drain(): Promise<void> {
    const listeners = [...this.#opened, ...this.#outOfService].map(({ listener }) => listener);
    await Promise.all([...listeners.map((listener) => listener.drain()), ...this.#leaving.values()]);
  }

  /** Ends everything now. */
  async close(): Promise<void> {
    const listeners = [...this.#opened, ...this.#outOfService].map(({ listener }) => listener);
    await Promise.all([...listeners, ...this.#leaving.keys()].map((listener) => listener.close()));
    this.#deadlines.clearAll();
  }

  /** What stood before a change that is not settled, and does not stand now. */
  get #outOfService(): readonly OpenedListener[] {
    return (this.#before?.opened ?? []).filter(({ listener }) => !has(this.#opened, listener));
  }

  #match(configs: readonly PlacedListener[]): Wanted[] {
    const known = [...this.#opened, ...this.#outOfService];
    return configs.map((config) => {
      const at = known.findIndex((opened) => isSameButTls(opened.config, config));
      return { config, known: at < 0 ? undefined : known.splice(at, 1)[0] };
    });
  }

  async #bringIn({ config, known }: Wanted, change: Change): Promise<OpenedListener> {
    if (known !== undefined && has(this.#opened, known.listener)) return { ...known, config };
    if (known === undefined) this.#handedOver.claim(config.address);
    for (const each of change.going) {
      if (change.stopped.includes(each) || !overlap(boundTo(each.config), boundTo(config))) continue;
      change.stopped.push(each);
      stop(each);
    }
    await known?.listener.listen();
    const opened = known === undefined ? await this.#open(config) : { ...known, config };
    change.opened.push(opened);
    return opened;
  }

  /**
   * @throws NoriaError listen-failed when another program was quick enough to take an address that was free for a moment:
   *   then its listener is gone, and opened by the next reload that wants it.
   */
  async #undo({ stopped, opened }: Change, reason: unknown, drainTimeoutMs: number): Promise<void> {
    for (const each of opened) {
      if (has(this.#outOfService, each.listener)) stop(each);
      else await each.listener.close();
    }
    const lost: string[] = [];
    for (const { listener } of stopped) {
      try {
        await listener.listen();
      } catch (error) {
        lost.push(describeError(error)); // handled: told below, once the others have been taken back
        this.#opened = this.#opened.filter((each) => each.listener !== listener);
        this.#leave(listener, drainTimeoutMs);
      }
    }
    if (lost.length === 0) return;
    const why = `${describeError(reason)}; and what stood before is lost: ${lost.join('; ')}`;
    throw new NoriaError('listen-failed', why, { cause: reason });
  }

  /** Lets a listener finish what it has, then closes it. Its address is free at once. */
  #leave(listener: Listener, drainTimeoutMs: number): void {
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

  async #open(config: PlacedListener): Promise<OpenedListener> {
    const { clock, bus, dialer, sources, ownAddresses, sharing } = this.#options;
    const { users, allow, denyTargets, tls, source, shared } = config;
    const access = new Access({
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
      allowNonLoopback: users.length > 0,
      ...(sharing === undefined || shared === undefined ? {} : { sharedLimit: sharing.roomOf(shared.id) }),
    });
    return { config, listener, access };
  }
}

function has(set: readonly OpenedListener[], listener: Listener): boolean {
  return set.some((opened) => opened.listener === listener);
}

/** A socket that was handed over cannot be opened anew, and is in nobody's way: it is kept until its listener leaves. */
function stop({ config, listener }: OpenedListener): void {
  if (config.address.kind !== 'fd') listener.stop();
}

/** Exchanges the certificate of a listener that keeps all else, once the result is called. */
function prepareCertificate({ config: { tls }, known }: Wanted): (() => void)[] {
  if (tls === undefined || known === undefined || isSame(known.config.tls, tls)) return [];
  return [known.listener.prepareTls({ cert: tls.cert, key: tls.key.reveal() })];
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

/** A listener's name in events and metrics: its address as it is configured. */
export function listenerName({ address }: Pick<ListenerConfig, 'address'>): string {
  return formatListenAddress(address);
}
