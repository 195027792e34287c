/**
 * The data plane as the daemon steers it: listeners and what dials for them, wherever they run. Here: in this process.
 *
 * It borrows members from a pool, tells what happens on the bus, and knows nothing of sources, admin or state.
 */
import type { ListenerConfig } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import type { SourceFault } from '../dialer/credentials.ts';
import { type DialerSettings, MemberDialer } from '../dialer/dialer.ts';
import type { BoundAddress } from '../listener/bind.ts';
import type { OwnAddress } from '../listener/deny-targets.ts';
import type { LeaseProvider } from '../pool/lease.ts';
import { ListenerSet, listenerName, type PlacedListener, type Sharing } from './listener-set.ts';
import type { Surroundings } from './workers/messages.ts';

export interface DataPlane extends Pick<MemberDialer, 'attempt' | 'closeConnections' | 'resetRefusals'> {
  /** In the order of the configuration. */
  readonly listeners: readonly PlaneListener[];
  /** Processes that serve clients, and how many are to. */
  readonly workers: { readonly wanted: number; readonly running: number };
  /**
   * Makes the listeners what `configs` says. When one cannot be opened, those before stand again and the reason is thrown.
   * Until `configure` an update to what was before takes everything back, connections included.
   *
   * @param drainTimeoutMs - how long tunnels of listeners that go may take to finish.
   * @throws NoriaError listen-failed, bad-config
   */
  update(configs: readonly ListenerConfig[], drainTimeoutMs: number): Promise<void>;
  /**
   * Ends a reload that nothing can make fail any more: members are dialed by these settings from now on, and listeners that
   * `update` took out of service let their clients finish.
   */
  configure(settings: DialerSettings): void;
  /** What listeners have to know of the rest of noria from now on. */
  surround(surroundings: Surroundings): void;
  /** noria is to close: an `update` that is under way, or comes yet, ends soon, whatever it waits for. */
  hurry(): void;
  /** Takes no new clients; resolves when all connections with something under way have ended. */
  drain(): Promise<void>;
  /** Ends everything now. */
  close(): Promise<void>;
}

/** What is told about an open listener. */
export interface PlaneListener {
  /** As in events and metrics: its address as configured. */
  readonly name: string;
  readonly protocols: ListenerConfig['protocols'];
  readonly addresses: readonly BoundAddress[];
  /** Client connections open at this moment, those included that began before a reload changed the listener. */
  readonly connections: number;
}

export interface LocalPlaneOptions {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly pool: LeaseProvider;
  readonly dialer: DialerSettings;
  readonly surroundings: Surroundings;
  /** Descriptors of listening sockets that were handed over. */
  readonly handedOver: ReadonlySet<number>;
  readonly sharing?: Sharing;
  readonly onSourceFault: (fault: SourceFault) => void;
  readonly onNetwork: (down: boolean) => void;
}

interface OwnAddresses {
  readonly opened: ListenerSet['opened'];
  readonly around: Surroundings;
  readonly addresses: readonly OwnAddress[];
}

/** The data plane in this process. */
export class LocalPlane implements DataPlane {
  readonly workers = { wanted: 1, running: 1 };
  readonly #dialer: MemberDialer;
  readonly #listeners: ListenerSet;
  #surroundings: Surroundings;
  /** What the addresses were made of, and they. */
  #own: OwnAddresses | undefined;

  constructor(options: LocalPlaneOptions) {
    const { clock, bus, pool, handedOver, sharing, onSourceFault, onNetwork } = options;
    this.#surroundings = options.surroundings;
    this.#dialer = new MemberDialer({ ...options.dialer, clock, bus, pool, onSourceFault, onNetwork });
    this.#listeners = new ListenerSet({
      clock,
      bus,
      dialer: this.#dialer,
      sources: () => this.#surroundings.sources,
      ownAddresses: () => this.#ownAddresses(),
      handedOver,
      ...(sharing === undefined ? {} : { sharing }),
    });
  }

  get listeners(): readonly PlaneListener[] {
    return this.#listeners.opened.map((opened) => ({
      name: listenerName(opened.config),
      protocols: opened.config.protocols,
      addresses: opened.listener.addresses,
      connections: this.#listeners.connectionsOf(opened),
    }));
  }

  update(configs: readonly PlacedListener[], drainTimeoutMs: number): Promise<void> {
    return this.#listeners.update(configs, drainTimeoutMs);
  }

  surround(surroundings: Surroundings): void {
    this.#surroundings = surroundings;
  }

  configure(settings: DialerSettings): void {
    this.#listeners.settle();
    this.#dialer.configure(settings);
  }

  resetRefusals(source: string): void {
    this.#dialer.resetRefusals(source);
  }

  closeConnections(leases: readonly number[]): void {
    this.#dialer.closeConnections(leases);
  }

  attempt(task: Parameters<MemberDialer['attempt']>[0]): ReturnType<MemberDialer['attempt']> {
    return this.#dialer.attempt(task);
  }

  /** Somebody out there answered another process. */
  answeredElsewhere(): void {
    this.#dialer.answeredElsewhere();
  }

  /** Somebody gave wrong credentials to another process that shares this listener. */
  failedElsewhere(listener: number, remoteAddress: string | undefined): void {
    this.#listeners.failedElsewhere(listener, remoteAddress);
  }

  /** Nothing to do: an update waits for nobody here. */
  hurry(): void {}

  drain(): Promise<void> {
    return this.#listeners.drain();
  }

  /** Asked for with every request: made anew only when the listeners or the surroundings have changed. */
  #ownAddresses(): readonly OwnAddress[] {
    const { opened } = this.#listeners;
    const around = this.#surroundings;
    if (this.#own?.opened !== opened || this.#own.around !== around) {
      const addresses = [...this.#listeners.addresses.map(asOwn), ...around.own];
      this.#own = { opened, around, addresses };
    }
    return this.#own.addresses;
  }

  async close(): Promise<void> {
    await this.#listeners.close();
    await this.#dialer.close();
  }
}

/** A bound address as the rules for targets know it. */
export function asOwn({ host, port }: BoundAddress): OwnAddress {
  return { address: host, port };
}
