/**
 * The shared pool of a fleet, in Valkey or Redis. Every replica computes the state from the same log (shared-state.ts).
 * All moments in the state are by the store's clock. Only `bindSession` delays a client's request; its deadline is
 * short.
 *
 * While the store is unavailable, this replica drops its facts and merges its beats. After each reconnect, it loads the
 * state again, publishes what it knows and the state lacks, for example its members, and sends the merged beat.
 */
import { randomUUID } from 'node:crypto';
import { type Clock, pause } from '../../core/clock.ts';
import { NoriaError } from '../../core/faults.ts';
import type { SharedSession } from '../../pool/shared-member.ts';
import type { Timekeeper } from '../../state/moment.ts';
import type { FleetPool, ReplicaStatus, SourceRefusal } from '../fleet-pool.ts';
import { shiftBeat, shiftFact, shiftState } from '../moments.ts';
import type { Beat, Fact, FactFollower } from '../shared-pool.ts';
import { SharedPoolState } from '../shared-state.ts';
import { type BeatAnswer, BeatExchange } from './beat-exchange.ts';
import { DayCounts } from './day-counts.ts';
import { readEvictionWarning } from './evictions.ts';
import { LEAVE, SNAPSHOT } from './fleet-log.ts';
import { FleetStore, type FleetStoreOptions } from './fleet-store.ts';
import { fieldsOfUses, isDeletableAfter, type LogEntry, loadState, readLog } from './log-reader.ts';
import { LogWriter } from './log-writer.ts';
import { type ClaimOutcome, RedisPaceStore } from './redis-pace-store.ts';
import type { StoreClient } from './store-client.ts';

export interface RedisSharedPoolOptions extends Omit<FleetStoreOptions, 'follow' | 'onConnected' | 'onLost'> {
  readonly clock: Clock;
  readonly timekeeper: Timekeeper;
  readonly replica: string;
  readonly version: string;
  readonly clients: () => number;
  readonly refusals: () => readonly SourceRefusal[];
  readonly callTimeoutMs: () => number;
  /** Only for tests, like the next two options. */
  readonly bindDeadlineMs?: number;
  readonly beatEveryMs?: number;
  /**
   * The minimum number of log entries between two snapshots. If the state has more members and sessions than this
   * number, noria uses the number of members and sessions instead.
   */
  readonly minEntries?: number;
  readonly observer?: FleetObserver;
}

/** Receives the events of the connection to the store. The daemon turns them into logs and metrics. */
export interface FleetObserver {
  connected(): void;
  lost(error: NoriaError): void;
  claimed(outcome: ClaimOutcome): void;
  /** This replica received a log entry `ms` after another replica appended it. */
  lagged(ms: number): void;
  nameTaken(): void;
  /** The store has a setting that may destroy data of the fleet. */
  warned(message: string): void;
}

const BIND_DEADLINE_MS = 30;
const BEAT_EVERY_MS = 1_000;
const MIN_ENTRIES = 500;
/**
 * Replica n of the list, counted from 0, writes a snapshot after (1 + n × TURN_SHARE) times the minimum number of log
 * entries. So usually only the first replica writes one.
 */
const TURN_SHARE = 0.25;

export class RedisSharedPool implements FleetPool {
  readonly pace: RedisPaceStore;
  readonly dayCounts: DayCounts;
  readonly #options: RedisSharedPoolOptions;
  readonly #store: FleetStore;
  readonly #writer: LogWriter;
  readonly #beats: BeatExchange;
  readonly #started = Promise.withResolvers<void>();
  #follower: FactFollower | undefined;
  #state = new SharedPoolState();
  /** The number of the last log entry that this replica has applied. */
  #applied = 0;
  /**
   * The known fields of the store's hash of uses (see `FleetKeys.uses`). When this replica writes a snapshot, it
   * deletes the fields that the snapshot makes unnecessary (`isDeletableAfter`).
   */
  #usesFields = new Set<string>();
  #waiters: { readonly number: number; readonly resolve: () => void }[] = [];
  #lostAt: number | undefined;
  /** `reload` ends the connection with this error. Such an end is not reported as a loss of the store. */
  #reloading: NoriaError | undefined;
  #isClosed = false;
  /** The last reported warning that the store deletes data when its memory is full. */
  #evictionWarning: string | undefined;
  /** Distinguishes this process from any other process that uses the same replica name. */
  readonly #process = randomUUID();

  constructor(options: RedisSharedPoolOptions) {
    const { clock, observer, replica } = options;
    this.#options = options;
    this.#lostAt = clock.monotonic();
    this.#store = new FleetStore({
      ...options,
      follow: { load: (client) => this.#load(client), read: (client) => this.#read(client) },
      onConnected: () => this.#connected(),
      onLost: (error) => this.#lost(error),
    });
    this.#writer = new LogWriter(this.#store, replica);
    this.#beats = new BeatExchange({
      store: this.#store,
      clock,
      everyMs: options.beatEveryMs ?? BEAT_EVERY_MS,
      replica,
      record: () => this.#record(),
      shift: (beat) => shiftBeat(beat, this.#store.toStoreTime),
      receive: (answer) => this.#receiveBeats(answer),
      nameTaken: () => observer?.nameTaken(),
    });
    this.dayCounts = new DayCounts(this.#store);
    this.pace = new RedisPaceStore({
      store: this.#store,
      clock,
      stopwatch: () => options.timekeeper.stopwatch(),
      callTimeoutMs: options.callTimeoutMs,
      log: {
        position: () => this.#applied,
        flushed: () => this.#writer.flushed(),
        catchUp: (number) => this.#catchUp(number),
      },
      onClaim: (outcome) => observer?.claimed(outcome),
    });
  }

  get fault(): NoriaError | undefined {
    return this.#store.connection.fault;
  }

  get epochId(): string {
    return this.#store.epochId;
  }

  get lostMs(): number {
    return this.#lostAt === undefined ? 0 : this.#options.clock.monotonic() - this.#lostAt;
  }

  get replicas(): readonly ReplicaStatus[] {
    return this.#beats.replicas();
  }

  drawnBy(member: string): string | undefined {
    return this.#state.drawnBy(member);
  }

  reload(): void {
    this.#reloading = new NoriaError('fleet-store-lost', 'noria loads the data of the store again');
    this.#store.connection.reset(this.#reloading);
  }

  /**
   * Starts to receive the log. If the first attempt to connect fails, resolves without a state; the follower's
   * `receiveState` is called after the first successful attempt.
   * @throws NoriaError fleet-store-unusable if the first attempt shows that only the operator can fix the problem.
   */
  async follow(follower: FactFollower): Promise<void> {
    this.#follower = follower;
    this.#store.connection.start();
    await this.#store.connection.tried;
    const { fault } = this;
    if (fault?.code === 'fleet-store-unusable') throw fault;
    if (fault === undefined) await this.#started.promise;
  }

  publish(facts: readonly Fact[]): void {
    if (!this.#isClosed) this.#writer.publish(facts);
  }

  beat(beat: Beat): void {
    if (!this.#isClosed) this.#beats.send(beat);
  }

  async bindSession(proposed: SharedSession): Promise<SharedSession> {
    if (this.fault !== undefined || this.#isClosed) return proposed;
    const { clock, bindDeadlineMs = BIND_DEADLINE_MS } = this.#options;
    const answered = new AbortController();
    // handled: if the store fails, only this replica uses the proposed session
    const bound = this.#writer.bindSession(proposed).catch(() => proposed);
    const session = await Promise.race([bound, pause(clock, bindDeadlineMs, answered.signal)]);
    answered.abort();
    return session ?? proposed;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#writer.flushed();
    await this.#beats.close();
    const args = [this.#options.replica, this.#process];
    // ignored: without LEAVE, the other replicas drop this one when its beats stop
    if (this.fault === undefined) await this.#store.run(LEAVE, { args }).catch(() => {});
    await this.#store.close();
    this.#lostAt ??= this.#options.clock.monotonic();
    this.#resolveWaiters();
  }

  #record(): string {
    const { version, clients, refusals } = this.#options;
    const refused = refusals();
    const record = { process: this.#process, version, clients: clients() };
    return JSON.stringify(refused.length === 0 ? record : { ...record, refusals: refused });
  }

  async #load(client: StoreClient): Promise<void> {
    const loaded = await loadState(this.#store, client);
    this.#state = loaded.state;
    this.#applied = loaded.lastNumber;
    this.#usesFields = new Set(loaded.fields);
    this.#beats.start(loaded.lastBeatId, (id) => loaded.state.drawnBy(id) !== undefined);
    this.#writer.keepUntilConnected();
    this.#follower?.receiveState(shiftState(loaded.state.read(this.#storeNow), this.#store.toLocalTime));
  }

  #read(client: StoreClient): Promise<never> {
    return readLog(this.#store, client, { after: this.#applied, apply: (entry) => this.#apply(entry) });
  }

  #apply({ number, at, facts }: LogEntry): void {
    const now = this.#storeNow;
    for (const fact of facts) this.#state.apply(fact, now);
    this.#applied = number;
    const local = facts.map(({ by, fact }) => ({ by, fact: shiftFact(fact, this.#store.toLocalTime) }));
    if (local.length > 0) this.#follower?.receiveFacts(local);
    this.#options.observer?.lagged(Math.max(0, now - at));
    this.#resolveWaiters();
  }

  get #storeNow(): number {
    return this.#store.clock.atMost() ?? 0;
  }

  #connected(): void {
    this.#lostAt = undefined;
    this.#writer.connected();
    this.#beats.connected();
    this.#options.observer?.connected();
    void this.#checkEvictions();
  }

  /** Warns if the store deletes data when its memory is full. Does not repeat the same warning. */
  async #checkEvictions(): Promise<void> {
    const found = await readEvictionWarning(this.#store.connection);
    if (found === undefined || found === this.#evictionWarning) return;
    this.#evictionWarning = found;
    this.#options.observer?.warned(found);
  }

  #lost(error: NoriaError): void {
    this.#lostAt ??= this.#options.clock.monotonic();
    this.#writer.lost();
    this.#beats.lost();
    this.#resolveWaiters();
    if (error !== this.#reloading) this.#options.observer?.lost(error);
  }

  #receiveBeats({ beats, members, sessions, lastNumber, snapshotNumber }: BeatAnswer): void {
    const sums: Record<string, number> = {};
    for (const field of fieldsOfUses({ members, sessions })) this.#usesFields.add(field);
    for (const use of sessions) this.#state.recordSessionUse(use);
    for (const use of members) {
      const sum = this.#state.addUse(use);
      if (sum !== undefined && use.uses > 0) sums[use.member] = sum;
    }
    const replicas = this.replicas.map(({ name }) => name);
    const shifted = beats.map(({ by, beat }) => ({ by, beat: shiftBeat(beat, this.#store.toLocalTime) }));
    this.#follower?.receiveActivity({ replicas, beats: shifted, uses: sums });
    this.#started.resolve();
    this.dayCounts.refresh();
    const turn = 1 + TURN_SHARE * replicas.indexOf(this.#options.replica);
    const size = Math.max(this.#options.minEntries ?? MIN_ENTRIES, this.#state.size);
    if (lastNumber - snapshotNumber > turn * size) void this.#saveSnapshot();
  }

  async #saveSnapshot(): Promise<void> {
    const state = this.#state.read(this.#storeNow);
    // The snapshot contains no uses of members, because the store counts them in the hash of uses.
    const members = state.members.map((record) => ({ ...record, uses: 0 }));
    const covered = [...this.#usesFields].filter(isDeletableAfter(state));
    for (const field of covered) this.#usesFields.delete(field);
    const text = JSON.stringify({ ...state, members });
    const args = [this.#store.epochId, this.#applied, text, ...covered];
    // ignored: noria tries again after the next exchange of beats
    await this.#store.run(SNAPSHOT, { args }).catch(() => {});
  }

  /** Resolves when this replica has applied the log entry with this number, or when the connection is lost. */
  #catchUp(number: number): Promise<void> {
    if (this.fault !== undefined || this.#applied >= number) return Promise.resolve();
    return new Promise((resolve) => this.#waiters.push({ number, resolve }));
  }

  #resolveWaiters(): void {
    const isLost = this.fault !== undefined;
    const isDue = ({ number }: { readonly number: number }) => isLost || number <= this.#applied;
    for (const { resolve } of this.#waiters.filter(isDue)) resolve();
    this.#waiters = this.#waiters.filter((waiter) => !isDue(waiter));
  }
}
