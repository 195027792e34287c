/**
 * The dialer: one way to one target through whichever member accepts first, and what that teaches about members,
 * targets, credentials and our own network.
 *
 * Owns every connection to a member until the listener takes it over, the idle ones, and all deadlines of dialling.
 * Never connects to anything but a member, and resolves no name.
 */
import type { Clock } from '../core/clock.ts';
import { Deadlines } from '../core/deadlines.ts';
import type { EventBus } from '../core/events.ts';
import { LiveList } from '../core/live-list.ts';
import type { LeaseProvider } from '../pool/lease.ts';
import type { AttemptTask } from './attempt.ts';
import type { SourceFault } from './credentials.ts';
import type { Dialer, Dialing, DialRequest, DialResult } from './dial.ts';
import { HedgeBudget } from './hedging.ts';
import { IdleConnections } from './idle-connections.ts';
import type { LeasedConnection } from './leased-connection.ts';
import { memberSockets, type OpenSocket } from './member-socket.ts';
import { NetworkWatch } from './network-watch.ts';
import { OverdueAttempts } from './overdue-attempts.ts';
import { Reachability } from './reachability.ts';
import { type DialParts, type DialSettings, RunningDial } from './running-dial.ts';
import { type PendingAttempt, SingleAttempt } from './single-attempt.ts';
import { SourceMemory, type SourceSettings } from './source-memory.ts';

/** What may change while the dialer runs. */
export interface DialerSettings extends DialSettings {
  /** By name. Members of a source that is not here are spoken to without credentials. */
  readonly sources: ReadonlyMap<string, SourceSettings>;
}

export interface DialerOptions extends DialerSettings {
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly pool: LeaseProvider;
  /** The credentials of a source are refused by several of its members, or accepted again. Told once each. */
  readonly onSourceFault: (fault: SourceFault) => void;
  /** Our own network was judged to be down, or is up again: nobody is evicted meanwhile. */
  readonly onNetwork: (down: boolean) => void;
  /** How connections to members are opened; the real way when absent. */
  readonly openSocket?: OpenSocket;
}

/** Fine enough for the shortest hedge, coarse enough to cost nothing. */
const TICK_MS = 10;
const UNKNOWN_SOURCE: SourceSettings = {
  auth: 'none',
  instance: '',
  neverInstance: true,
  forwardMode: 'direct',
};

export class MemberDialer implements Dialer, AsyncDisposable {
  readonly #options: DialerOptions;
  readonly #parts: DialParts;
  readonly #deadlines: Deadlines;
  readonly #idle: IdleConnections;
  readonly #races = new LiveList<RunningDial>();
  readonly #solos = new Set<SingleAttempt>();
  readonly #standing = new LiveList<LeasedConnection>();
  readonly #openSocket: OpenSocket;
  readonly #drawing: Disposable;
  #settings: DialerSettings;
  #memories = new Map<string, SourceMemory>();
  #lastRequestId = 0;
  #closed = false;

  constructor(options: DialerOptions) {
    const { clock, bus, pool } = options;
    this.#options = options;
    this.#settings = options;
    this.#openSocket = options.openSocket ?? memberSockets();
    this.#deadlines = new Deadlines(clock, TICK_MS);
    this.#idle = new IdleConnections(clock, this.#deadlines);
    this.#parts = {
      clock,
      bus,
      pool,
      deadlines: this.#deadlines,
      idle: this.#idle,
      openConnections: this.#standing,
      overdueAttempts: new OverdueAttempts(),
      budget: new HedgeBudget(),
      witnesses: new Reachability(clock),
      network: new NetworkWatch(clock, (down) => {
        options.onNetwork(down);
        bus.emit('network.judged', { down });
      }),
      memoryOf: (source) => this.#memoryOf(source),
      nextRequestId: () => ++this.#lastRequestId,
      dialFinished: (race) => this.#races.delete(race),
    };
    // The service answers: whoever does not, it is not our network.
    this.#drawing = bus.on('draw.done', ({ code }) => {
      if (code !== 'transport') this.#parts.network.answered();
    });
  }

  get openCount(): number {
    return this.#races.size + this.#solos.size + this.#idle.size;
  }

  dial(request: DialRequest, done: (result: DialResult) => void): Dialing {
    const race = new RunningDial(this.#parts, this.#settings, request, done);
    if (this.#closed) {
      race.close();
    } else {
      this.#races.add(race);
      race.start();
    }
    return race;
  }

  attempt(task: Omit<AttemptTask, 'hedge'>): PendingAttempt {
    const memory = this.#memoryOf(task.lease.source);
    const solo = new SingleAttempt(memory, this.#parts.network, task, () => this.#solos.delete(solo));
    if (this.#closed) {
      solo.cancel();
    } else {
      this.#solos.add(solo);
      solo.start();
    }
    return solo;
  }

  configure(settings: DialerSettings): void {
    this.#settings = settings;
    const before = this.#memories;
    this.#memories = new Map();
    for (const [source, memory] of before) {
      const now = settings.sources.get(source);
      if (now !== undefined && memory.isFor(now)) this.#memories.set(source, memory);
    }
  }

  resetRefusals(source: string): void {
    this.#memories.get(source)?.credentials.resetRefusals();
  }

  answeredElsewhere(): void {
    this.#parts.network.answered();
  }

  closeConnections(leases: readonly number[]): void {
    const ended = new Set(leases);
    for (const way of this.#standing.all()) if (ended.has(way.lease)) way.socket.destroy();
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#drawing[Symbol.dispose]();
    for (const race of this.#races.all()) race.close();
    for (const solo of [...this.#solos]) solo.cancel();
    this.#idle.close();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  #memoryOf(source: string): SourceMemory {
    const known = this.#memories.get(source);
    if (known !== undefined) return known;
    const { clock, onSourceFault } = this.#options;
    const settings = this.#settings.sources.get(source) ?? UNKNOWN_SOURCE;
    const parts = { clock, deadlines: this.#deadlines, openSocket: this.#openSocket, onSourceFault };
    const memory = new SourceMemory(source, settings, parts);
    this.#memories.set(source, memory);
    return memory;
  }
}
