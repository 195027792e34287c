/**
 * The shared pool of a fleet, in Valkey or Redis. Every replica computes the state of each instance from the same log
 * (instance-log.ts). Only `bindSession` delays a client's request; its deadline is short.
 *
 * While the store is unavailable, this replica drops its facts and merges its beats. After each reconnect, it loads the
 * state again, publishes what it knows and the state lacks, for example its members, and sends the merged beat.
 */
import { randomUUID } from 'node:crypto';
import { type Clock, pause } from '../../core/clock.ts';
import { NoriaError } from '../../core/faults.ts';
import type { Timekeeper } from '../../state/moment.ts';
import { shiftMoments, sourceOf } from '../records.ts';
import type {
  Beat,
  Fact,
  FactOf,
  MemberRecord,
  ReplicaRecord,
  SharedSession,
  SharedState,
  SourceRefusal,
} from '../schemas.ts';
import type { FactFollower, FleetPool, ReplicaStatus } from '../shared-pool.ts';
import { type BeatAnswer, BeatExchange, LEAVE } from './beat-exchange.ts';
import { COMMAND_DEADLINE_MS, faultOf, lostStore, type StoreClient } from './connection.ts';
import { readStoreWarnings } from './inspect-store.ts';
import { BATCH_FACTS, InstanceLog } from './instance-log.ts';
import { type ClaimOutcome, DayCounts, RedisPaceStore } from './pace-store.ts';
import { peerWarnings } from './read-fleet.ts';
import type { FleetInstance } from './seal.ts';
import { SessionStore } from './session-store.ts';
import { FleetStore, type FleetStoreOptions, listOf } from './store.ts';

export interface RedisSharedPoolOptions
  extends Omit<FleetStoreOptions, 'join' | 'follow' | 'onConnected' | 'onLost'> {
  readonly clock: Clock;
  readonly timekeeper: Timekeeper;
  readonly replica: string;
  readonly version: string;
  readonly instances: () => readonly FleetInstance[];
  readonly refuses: (host: string, port: number) => string | undefined;
  readonly clients: () => number;
  readonly refusals: () => readonly SourceRefusal[];
  readonly callTimeoutMs: () => number;
  /** Only for tests, like the next two options. */
  readonly bindDeadlineMs?: number;
  readonly beatEveryMs?: number;
  /** The least log entries between two snapshots; if the state has more members, their number. */
  readonly minEntries?: number;
  readonly observer?: FleetObserver;
}

export interface FleetObserver {
  connected(): void;
  lost(error: NoriaError): void;
  claimed(outcome: ClaimOutcome): void;
  /** This replica received a log entry `ms` after another replica appended it. */
  lagged(ms: number): void;
  nameTaken(): void;
  /** A client got a session on which the replicas did not agree in time. */
  unagreed(): void;
  warned(message: string): void;
}

const BIND_DEADLINE_MS = 30;
const BEAT_EVERY_MS = 1_000;
const MIN_ENTRIES = 500;
const BLOCK_MS = 5_000;
const ENTRIES_PER_READ = 500;
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
  #follower: FactFollower | undefined;
  #instances: readonly InstanceLog[] = [];
  #sessions: SessionStore;
  #unsent: Fact[] = [];
  /** Whether the state is loaded, so that facts are kept until the connection is open. */
  #isOpening = false;
  #publishing: Promise<void> | undefined;
  #waiters: { readonly instance: InstanceLog; readonly number: number; readonly resolve: () => void }[] = [];
  #lostAt: number | undefined;
  /** `reload` ends the connection with this error. Such an end is not reported as a loss of the store. */
  #reloading: NoriaError | undefined;
  #isClosed = false;
  readonly #warned = new Set<string>();
  /** Distinguishes this process from any other process that uses the same replica name. */
  readonly #process = randomUUID();

  constructor(options: RedisSharedPoolOptions) {
    const { clock, observer, replica } = options;
    this.#options = options;
    this.#lostAt = clock.monotonic();
    this.#store = new FleetStore({
      ...options,
      join: (client) => this.#beats.join(client),
      follow: { load: (client) => this.#load(client), read: (client) => this.#read(client) },
      onConnected: () => this.#connected(),
      onLost: (error) => this.#lost(error),
    });
    this.#sessions = this.#newSessions();
    this.#beats = new BeatExchange({
      store: this.#store,
      clock,
      everyMs: options.beatEveryMs ?? BEAT_EVERY_MS,
      replica,
      record: () => this.#record(),
      clients: options.clients,
      instances: () => this.#instances,
      sessions: () => this.#sessions,
      receive: (answer) => this.#receiveBeats(answer),
      nameTaken: () => observer?.nameTaken(),
      onList: (records) => {
        const others = [...records].flatMap(([name, record]) =>
          name === replica ? [] : [{ name, ...record }],
        );
        for (const warning of peerWarnings(options.instances(), others)) this.#warn(warning);
      },
    });
    this.dayCounts = new DayCounts(this.#store);
    this.pace = new RedisPaceStore({
      store: this.#store,
      clock,
      stopwatch: () => options.timekeeper.stopwatch(),
      callTimeoutMs: options.callTimeoutMs,
      log: {
        position: (key) => this.#instance(key)?.applied ?? 0,
        flushed: async () => this.#publishing,
        catchUp: (key, number) => this.#catchUp(key, number),
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
    return this.#beats.replicas;
  }

  drawnBy(member: string): string | undefined {
    return this.#instances.map(({ state }) => state.drawnBy(member)).find((name) => name !== undefined);
  }

  reload(): void {
    this.#reloading = new NoriaError('fleet-store-lost', 'noria loads the data of the store again');
    this.#store.connection.reset(this.#reloading);
  }

  async follow(follower: FactFollower): Promise<void> {
    this.#follower = follower;
    const { connection } = this.#store;
    connection.start();
    await Promise.race([connection.tried, this.#started.promise]);
    const { fault } = this;
    if (fault?.code === 'fleet-store-unusable') throw fault;
    if (fault === undefined) await this.#started.promise;
  }

  publish(facts: readonly Fact[]): void {
    if (this.#isClosed || facts.length === 0) return;
    const isOpen = this.fault === undefined;
    if (!isOpen && !this.#isOpening) return;
    for (const fact of facts) this.#unsent.push(fact); // may be 100,000, too many for arguments
    if (isOpen) this.#publishing ??= this.#publishAll();
  }

  beat(beat: Beat): void {
    if (!this.#isClosed) this.#beats.send(beat);
  }

  async bindSession(proposed: SharedSession, from: string | undefined): Promise<SharedSession | undefined> {
    if (this.#isClosed) return undefined;
    let isLate = false;
    const session = await this.#inTime(() =>
      this.#sessions.bind(proposed, from).then((bound) => {
        if (isLate)
          this.#follower?.receiveFacts([
            { by: '', fact: { kind: 'session.moved', session: bound, reason: 'bound' } },
          ]);
        return bound;
      }),
    );
    isLate = true;
    if (session === undefined) this.#options.observer?.unagreed();
    return session;
  }

  async findSession(name: string): Promise<SharedSession | undefined> {
    const found = await this.#inTime(() => this.#sessions.hold([name]));
    return shiftMoments(found?.[0], this.#store.toLocalTime);
  }

  async close(): Promise<void> {
    if (this.#isClosed) return;
    this.#isClosed = true;
    await this.#publishing;
    await this.#beats.close();
    const args = [this.#options.replica, this.#process];
    // ignored: without LEAVE, the other replicas drop this one when its beats stop
    if (this.fault === undefined) await this.#store.run(LEAVE, { args }).catch(() => {});
    await this.#store.close();
    this.#lostAt ??= this.#options.clock.monotonic();
    this.#resolveWaiters();
  }

  async #inTime<Value>(ask: () => Promise<Value>): Promise<Value | undefined> {
    if (this.fault !== undefined) return undefined;
    const { clock, bindDeadlineMs = BIND_DEADLINE_MS } = this.#options;
    const answered = new AbortController();
    const answer = ask().catch(() => undefined); // handled: without the store, this replica goes on alone
    const late = pause(clock, bindDeadlineMs, answered.signal).then(() => undefined);
    const value = await Promise.race([answer, late]);
    answered.abort();
    return value;
  }

  #record(): ReplicaRecord {
    const { version, refusals, instances } = this.#options;
    const refused = refusals();
    return {
      process: this.#process,
      version,
      instances: instances().map(({ key, settings }) => ({ source: key, ...settings })),
      ...(refused.length > 0 && { refusals: [...refused] }),
    };
  }

  #instance(key: string): InstanceLog | undefined {
    return this.#instances.find((instance) => instance.key === key);
  }

  #newSessions(): SessionStore {
    const { replica, instances } = this.#options;
    return new SessionStore(this.#store, replica, instances(), (facts) =>
      this.#follower?.receiveFacts(facts),
    );
  }

  async #load(client: StoreClient): Promise<void> {
    const { replica, refuses, instances } = this.#options;
    const isFirst = this.#instances.length === 0;
    const onUnreadable = (where: string, why: string) =>
      this.#warn(`noria ignores ${where} in the store of the fleet: ${why}`);
    const known = this.#reloading === undefined ? this.#instances : [];
    const loaded = instances().map(
      (instance) =>
        known.find((each) => each.isOf(instance)) ??
        new InstanceLog({ store: this.#store, replica, instance, refuses, onUnreadable }),
    );
    const early = isFirst ? (records: readonly MemberRecord[]) => this.#deliverEarly(records) : undefined;
    for (const instance of loaded) await instance.load(client, early);
    this.#sessions = this.#newSessions();
    const sessions = await this.#sessions.load(this.#follower?.heldSessions() ?? [], client);
    this.#instances = loaded;
    this.#reloading = undefined;
    this.#beats.start((id) => this.drawnBy(id) !== undefined);
    this.#isOpening = true;
    const states = loaded.map(({ state }) => state.read(this.#store.now));
    const merged: SharedState = {
      members: states.flatMap(({ members }) => members),
      bans: states.flatMap(({ bans }) => bans),
      sessions,
      paused: states.flatMap(({ paused }) => paused),
      resumed: states.flatMap(({ resumed }) => resumed),
      reports: states.flatMap(({ reports }) => reports),
      restrictions: [],
    };
    this.#follower?.receiveState(shiftMoments(merged, this.#store.toLocalTime));
  }

  /** Passes on the members of a page, so that this replica can serve clients before the last page has come. */
  #deliverEarly(records: readonly MemberRecord[]): void {
    const now = this.#store.now;
    const facts = records.flatMap(({ member, drawnBy, left, votes, quarantine }): Fact[] => {
      if (left !== undefined || votes.length > 0 || member.endsAt <= now) return [];
      const about = { source: member.source, member: member.id };
      return [
        { kind: 'member.joined', member: { drawnBy, ...member } },
        ...(quarantine ? [{ kind: 'member.quarantined', ...about, quarantine } as const] : []),
      ];
    });
    const local = shiftMoments(facts, this.#store.toLocalTime);
    this.#follower?.receiveFacts(local.map((fact) => ({ by: '', fact })));
    this.#started.resolve();
  }

  async #read(client: StoreClient): Promise<never> {
    for (;;) {
      const instances = this.#instances;
      const reply = await client.call(
        [
          ...['XREAD', 'BLOCK', String(BLOCK_MS), 'COUNT', String(ENTRIES_PER_READ), 'STREAMS'],
          ...[...instances.map(({ base }) => `${base}:log`), this.#sessions.news],
          ...[...instances.map(({ applied }) => `${applied}-0`), this.#sessions.lastNews],
        ],
        BLOCK_MS + COMMAND_DEADLINE_MS,
      );
      for (const stream of listOf(reply)) {
        const [name, entries] = listOf(stream);
        const instance = instances.find(({ base }) => `${base}:log` === name);
        for (const entry of listOf(entries)) {
          if (instance === undefined) this.#sessions.readNews(entry);
          else this.#apply(instance, entry, client);
        }
      }
    }
  }

  #apply(instance: InstanceLog, entry: Parameters<InstanceLog['apply']>[0], client: StoreClient): void {
    const applied = instance.apply(entry);
    if (applied === undefined) {
      const why = `entry ${instance.applied + 1} of a log is no longer in the store, so noria loads all data of the store again`;
      throw client.end(lostStore(client.address, why));
    }
    const local = shiftMoments(applied.facts, this.#store.toLocalTime);
    if (local.length > 0) this.#follower?.receiveFacts(local);
    this.#options.observer?.lagged(Math.max(0, this.#store.now - applied.at));
    this.#resolveWaiters();
  }

  #connected(): void {
    this.#lostAt = undefined;
    this.#isOpening = false;
    if (this.#unsent.length > 0) this.#publishing ??= this.#publishAll();
    this.#beats.connected();
    this.#options.observer?.connected();
    void readStoreWarnings(this.#store.connection).then((warnings) => {
      for (const warning of warnings) this.#warn(warning);
    });
  }

  #warn(message: string): void {
    if (this.#warned.has(message) || this.#warned.size > 1_000) return;
    this.#warned.add(message);
    this.#options.observer?.warned(message);
  }

  #lost(error: NoriaError): void {
    this.#lostAt ??= this.#options.clock.monotonic();
    this.#isOpening = false;
    this.#unsent = [];
    this.#beats.lost();
    this.#resolveWaiters();
    if (error !== this.#reloading) this.#options.observer?.lost(error);
  }

  async #publishAll(): Promise<void> {
    while (this.#unsent.length > 0) {
      const facts = this.#unsent;
      this.#unsent = [];
      try {
        await this.#publishInOrder(facts);
      } catch (error) {
        // handled: facts are lost, so this replica loads the state again
        this.#store.connection.reset(faultOf(error));
        this.#unsent = [];
      }
    }
    this.#publishing = undefined;
  }

  async #publishInOrder(facts: readonly Fact[]): Promise<void> {
    const byInstance = Map.groupBy(facts, (fact) => sourceOf(fact) ?? '');
    for (const [key, own] of byInstance) {
      await this.#instance(key)?.append(shiftMoments(own, this.#store.toStoreTime));
    }
    const bySession = new Map<string, Promise<void>>();
    for (const fact of facts) {
      if (fact.kind !== 'session.moved' && fact.kind !== 'session.ended') continue;
      const name = fact.kind === 'session.moved' ? fact.session.name : fact.name;
      const before = bySession.get(name) ?? Promise.resolve();
      bySession.set(
        name,
        before.then(() => (fact.kind === 'session.moved' ? this.#move(fact) : this.#end(fact))),
      );
      if (bySession.size < BATCH_FACTS) continue;
      await Promise.all(bySession.values());
      bySession.clear();
    }
    await Promise.all(bySession.values());
  }

  /** The follower receives its own fact, as from a log, and then the session of the store if it is another one. */
  async #move(fact: FactOf<'session.moved'>): Promise<void> {
    const session = await this.#sessions.bind(fact.session, fact.from);
    this.#follower?.receiveFacts([{ by: this.#options.replica, fact }]);
    if (session.member === fact.session.member) return;
    this.#follower?.receiveFacts([{ by: '', fact: { kind: 'session.moved', session, reason: 'bound' } }]);
  }

  async #end(fact: FactOf<'session.ended'>): Promise<void> {
    await this.#sessions.end(fact.name);
    this.#follower?.receiveFacts([{ by: this.#options.replica, fact }]);
  }

  #receiveBeats({ unsaved, ...activity }: BeatAnswer): void {
    this.#follower?.receiveActivity({ beats: [], ...activity });
    this.#started.resolve();
    this.dayCounts.refresh();
    const turn = 1 + TURN_SHARE * activity.replicas.indexOf(this.#options.replica);
    for (const { instance, entries } of unsaved) {
      const size = Math.max(this.#options.minEntries ?? MIN_ENTRIES, instance.state.size);
      // ignored: noria tries again after the next exchange of beats
      if (entries > turn * size) void instance.save().catch(() => {});
    }
  }

  /** Resolves when this replica has applied the log entry with this number, or when the connection is lost. */
  #catchUp(key: string, number: number): Promise<void> {
    const instance = this.#instance(key);
    if (this.fault !== undefined || instance === undefined || instance.applied >= number)
      return Promise.resolve();
    return new Promise((resolve) => this.#waiters.push({ instance, number, resolve }));
  }

  #resolveWaiters(): void {
    const isLost = this.fault !== undefined;
    const due = this.#waiters.filter(({ instance, number }) => isLost || number <= instance.applied);
    for (const { resolve } of due) resolve();
    this.#waiters = this.#waiters.filter((waiter) => !due.includes(waiter));
  }
}
