/**
 * The shared pool of a fleet, in Valkey or Redis. Every replica computes the state from the same log (shared-state.ts),
 * in the store's time. Only `bindSession` delays a client's request; its deadline is short.
 *
 * While the store is unavailable, this replica drops its facts and merges its beats. After each reconnect, it loads the
 * state again, publishes what the state lacks, and sends the merged beat.
 */
import { randomUUID } from 'node:crypto';
import { type Clock, pause } from '../../core/clock.ts';
import { NoriaError } from '../../core/faults.ts';
import type { SharedSession } from '../../pool/shared-member.ts';
import type { Timekeeper } from '../../state/moment.ts';
import type { FleetPool, ReplicaStatus, SourceRefusal } from '../fleet-pool.ts';
import { type Shift, shiftBeat, shiftFact, shiftSession, shiftState } from '../moments.ts';
import type { Beat, Fact, Follower } from '../shared-pool.ts';
import { SharedPoolState } from '../shared-state.ts';
import { type BeatAnswer, BeatExchange } from './beat-exchange.ts';
import { DayCounts } from './day-counts.ts';
import { readEvictionWarning } from './evictions.ts';
import { BIND, LEAVE, PUBLISH, SNAPSHOT } from './fleet-log.ts';
import { FleetStore, type FleetStoreOptions } from './fleet-store.ts';
import { fieldsOfUses, isCoveredBy, type LogEntry, loadState, readLog } from './log-reader.ts';
import { type ClaimOutcome, RedisPaceStore } from './redis-pace-store.ts';
import { decodeSession } from './schemas.ts';
import { faultOf, type StoreClient } from './store-client.ts';

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
   * number, the minimum is their number.
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

/** What a fact changes in the store's hash of a session. */
interface SessionChange {
  readonly name: string;
  /** The session as JSON; empty if the session has ended. */
  readonly text: string;
  readonly member: string;
  readonly leftMs: number;
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
  readonly #beats: BeatExchange;
  readonly #started = Promise.withResolvers<void>();
  #follower: Follower | undefined;
  #state = new SharedPoolState();
  /** The number of the last log entry that this replica has applied. */
  #applied = 0;
  /** The fields in the hash of uses that this replica knows (see `FleetKeys.uses`). */
  #usesFields = new Set<string>();
  #waiters: { readonly number: number; readonly resolve: () => void }[] = [];
  #unsent: Fact[] = [];
  /**
   * True from the load of the state until the connection opens. During this time, `publish` keeps facts until the
   * connection is open.
   */
  #isOpening = false;
  #publishing: Promise<void> | undefined;
  #lostAt: number | undefined;
  /** `reload` ends the connection with this error. Such an end is not reported as a loss of the store. */
  #reloading: NoriaError | undefined;
  #isClosed = false;
  /** The last reported warning that the store deletes data when its memory is full. */
  #evictionWarning: string | undefined;
  /** Tells this process from another process with the same replica name. */
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
    this.#beats = new BeatExchange({
      store: this.#store,
      clock,
      everyMs: options.beatEveryMs ?? BEAT_EVERY_MS,
      replica,
      record: () => this.#record(),
      shift: (beat) => shiftBeat(beat, this.#toStore),
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
        flushed: () => this.#flushed(),
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
   * Starts to follow. If the first attempt to connect fails, resolves without a state; the follower's `receiveState` is
   * called after the first successful attempt.
   * @throws NoriaError fleet-store-unusable if the first attempt shows that only the operator can fix the problem.
   */
  async follow(follower: Follower): Promise<void> {
    this.#follower = follower;
    this.#store.connection.start();
    await this.#store.connection.tried;
    const { fault } = this;
    if (fault?.code === 'fleet-store-unusable') throw fault;
    if (fault === undefined) await this.#started.promise;
  }

  publish(facts: readonly Fact[]): void {
    const isOpen = this.fault === undefined;
    if (this.#isClosed || facts.length === 0 || !(isOpen || this.#isOpening)) return;
    this.#unsent.push(...facts);
    if (isOpen) this.#publishing ??= this.#publishAll();
  }

  beat(beat: Beat): void {
    if (!this.#isClosed) this.#beats.send(beat);
  }

  async bindSession(proposed: SharedSession): Promise<SharedSession> {
    if (this.fault !== undefined || this.#isClosed) return proposed;
    const { clock, bindDeadlineMs = BIND_DEADLINE_MS } = this.#options;
    const answered = new AbortController();
    const bound = this.#bind(proposed).catch(() => proposed); // handled: only this replica then uses the proposal
    const session = await Promise.race([bound, pause(clock, bindDeadlineMs, answered.signal)]);
    answered.abort();
    return session ?? proposed;
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#flushed();
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

  /**
   * Converts a moment from this replica's clock to the store's clock. The result may be too early, but never too late.
   */
  readonly #toStore: Shift = (moment) =>
    Math.floor((this.#store.clock.atLeast() ?? 0) + moment - this.#options.clock.monotonic());

  /**
   * Converts a moment from the store's clock to this replica's clock. The result may be too early, but never too late.
   */
  readonly #toLocal: Shift = (moment) =>
    this.#options.clock.monotonic() + moment - (this.#store.clock.atMost() ?? 0);

  async #load(client: StoreClient): Promise<void> {
    const loaded = await loadState(this.#store, client);
    this.#state = loaded.state;
    this.#applied = loaded.lastNumber;
    this.#usesFields = new Set(loaded.fields);
    this.#beats.start(loaded.lastBeatId, (id) => loaded.state.drawnBy(id) !== undefined);
    this.#isOpening = true;
    this.#follower?.receiveState(shiftState(loaded.state.read(this.#storeNow), this.#toLocal));
  }

  #read(client: StoreClient): Promise<never> {
    return readLog(this.#store, client, { after: this.#applied, apply: (entry) => this.#apply(entry) });
  }

  #apply({ number, at, facts }: LogEntry): void {
    const now = this.#storeNow;
    for (const fact of facts) this.#state.apply(fact, now);
    this.#applied = number;
    const local = facts.map(({ by, fact }) => ({ by, fact: shiftFact(fact, this.#toLocal) }));
    if (local.length > 0) this.#follower?.receiveFacts(local);
    this.#options.observer?.lagged(Math.max(0, now - at));
    this.#resolveWaiters();
  }

  get #storeNow(): number {
    return this.#store.clock.atMost() ?? 0;
  }

  #connected(): void {
    this.#lostAt = undefined;
    this.#isOpening = false;
    if (this.#unsent.length > 0) this.#publishing ??= this.#publishAll();
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
    this.#isOpening = false;
    this.#unsent = [];
    this.#beats.lost();
    this.#resolveWaiters();
    if (error !== this.#reloading) this.#options.observer?.lost(error);
  }

  /**
   * Publishes one batch of facts after the other, to keep their order. If the store lacks the script, noria sends it
   * again; without waiting, a later batch could be appended first.
   */
  async #publishAll(): Promise<void> {
    while (this.#unsent.length > 0) {
      const facts = this.#unsent;
      this.#unsent = [];
      try {
        await this.#publish(facts);
      } catch (error) {
        // handled: facts are lost, so this replica loads the state again
        this.#store.connection.reset(faultOf(error));
        this.#unsent = [];
      }
    }
    this.#publishing = undefined;
  }

  async #publish(facts: readonly Fact[]): Promise<void> {
    const shifted = facts.map((fact) => shiftFact(fact, this.#toStore));
    const changes = shifted.flatMap((fact) => this.#sessionChange(fact));
    await this.#store.run(PUBLISH, {
      keys: changes.map(({ name }) => this.#store.keys.session(name)),
      args: [
        ...[this.#options.replica, JSON.stringify(shifted)],
        ...changes.flatMap(({ name, text, member, leftMs }) => [name, text, member, leftMs]),
      ],
    });
  }

  /** Returns what a fact changes in the store's hash of a session. The moments of the fact are by the store's clock. */
  #sessionChange(fact: Fact): SessionChange[] {
    if (fact.kind === 'session.ended') return [{ name: fact.name, text: '', member: '', leftMs: 0 }];
    if (fact.kind !== 'session.moved') return [];
    const { name, member = '' } = fact.session;
    const leftMs = this.#leftMs(fact.session);
    return [{ name, text: leftMs > 0 ? JSON.stringify(fact.session) : '', member, leftMs }];
  }

  #leftMs({ usedAt, ttlMs }: SharedSession): number {
    return Math.ceil(usedAt + ttlMs - (this.#store.clock.atLeast() ?? 0));
  }

  async #bind(proposed: SharedSession): Promise<SharedSession> {
    const session = shiftSession(proposed, this.#toStore);
    const { name, member = '' } = session;
    const facts: Fact[] = [{ kind: 'session.moved', session, reason: 'new' }];
    const { values } = await this.#store.run(BIND, {
      keys: [this.#store.keys.session(name)],
      args: [
        ...[this.#options.replica, JSON.stringify(facts), name, JSON.stringify(session)],
        ...[member, Math.max(1, this.#leftMs(session))],
      ],
    });
    const [text = '', uses = '', used = ''] = values.map(String);
    const found = decodeSession(text);
    if (found === undefined) return proposed;
    const [usedAt = 0, ttlMs = found.ttlMs] = used === '' ? [] : used.split(' ').map(Number);
    const latest = { usedAt: Math.max(found.usedAt, usedAt), uses: found.uses + Number(uses), ttlMs };
    return shiftSession({ ...found, ...latest }, this.#toLocal);
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
    const shifted = beats.map(({ by, beat }) => ({ by, beat: shiftBeat(beat, this.#toLocal) }));
    this.#follower?.receiveActivity({ replicas, beats: shifted, uses: sums });
    this.#started.resolve();
    this.dayCounts.refresh();
    const turn = 1 + TURN_SHARE * replicas.indexOf(this.#options.replica);
    const size = Math.max(this.#options.minEntries ?? MIN_ENTRIES, this.#state.size);
    if (lastNumber - snapshotNumber > turn * size) void this.#saveSnapshot();
  }

  async #saveSnapshot(): Promise<void> {
    const state = this.#state.read(this.#storeNow);
    // the store counts uses in the hash of uses, so the snapshot contains 0 uses
    const members = state.members.map((record) => ({ ...record, uses: 0 }));
    const covered = [...this.#usesFields].filter(isCoveredBy(state));
    for (const field of covered) this.#usesFields.delete(field);
    const text = JSON.stringify({ ...state, members });
    const args = [this.#store.epochId, this.#applied, text, ...covered];
    // ignored: noria tries again after the next exchange of beats
    await this.#store.run(SNAPSHOT, { args }).catch(() => {});
  }

  async #flushed(): Promise<void> {
    await this.#publishing;
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
