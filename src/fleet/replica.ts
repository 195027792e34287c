/**
 * Keeps a pool and its shared pool in step: publishes the changes of the pool as facts, and applies the facts of other replicas.
 * It also grants the leases of the pool. For a session that this replica does not know, it first opens the session in the shared
 * pool, so that all replicas choose the same member.
 *
 * Facts are published at the end of the turn of the event loop in which they arose. A beat, the report of the pool's activity, is
 * published at most every `beatMs`, but at once if demand rises. For each subject, the last fact in the log decides. Until this
 * replica has received its own fact back from the log, it skips other replicas' facts about the same subject, because these facts
 * precede its own fact in the log.
 */
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { isSame } from '../core/is-same.ts';
import {
  isLease,
  type Lease,
  type LeaseProvider,
  type LeaseRefusal,
  type LeaseReport,
  type LeaseRequest,
  type UpcomingMember,
  type UpcomingQuery,
} from '../pool/lease.ts';
import type { LimitPart } from '../pool/options.ts';
import type { Pool } from '../pool/pool.ts';
import {
  type PoolChange,
  type SharedMember,
  type SharedSession,
  staysOnMachine,
} from '../pool/shared-member.ts';
import type { MemberChanges, PoolSharing } from '../pool/sharing.ts';
import type { InstanceReport } from '../refill/instance-report.ts';
import { EvictionVotes } from './eviction-votes.ts';
import { FactsInFlight } from './facts-in-flight.ts';
import { OtherReplicas } from './other-replicas.ts';
import type {
  Fact,
  FleetView,
  Follower,
  LoggedFact,
  MemberRecord,
  SharedPool,
  SharedState,
  SourceCommand,
  SourceReport,
} from './shared-pool.ts';
import { SharedSources } from './shared-sources.ts';
import type { UnpublishedFacts } from './unpublished-facts.ts';

type Answer = Lease | LeaseRefusal;

export interface ReplicaOptions {
  readonly name: string;
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly pool: Pool;
  readonly shared: SharedPool;
  /** Whether all replicas run on this machine. See `SharingOptions.sameMachine`. */
  readonly sameMachine: boolean;
  /** False if this replica serves no clients. Such a replica counts the open leases of the other replicas as its own leases. */
  readonly servesClients: boolean;
  /** How many replicas must report a member as failed before it is removed everywhere. */
  readonly evictionVotes: (replicas: number) => number;
  /** Returns the time in ms of a clock that all replicas share; absent without such a clock. See `PoolShare.clockAheadMs`. */
  readonly commonMs?: () => number;
  /** Minimum time between two beats. */
  readonly beatMs: number;
  /** Executes an operator's command that another replica received, or that was received before this replica started. */
  readonly onCommand?: (command: SourceCommand) => void;
  /** Called for an answer of the service that another replica got. */
  readonly onReport?: (report: SourceReport) => void;
}

/**
 * In members per second. If a beat reports that clients use up members at a higher rate, the replica sends the next beat even if
 * nothing else changes, so that the other replicas see when the rate falls.
 */
const QUIET_RATE = 0.001;

export class Replica implements LeaseProvider, Follower {
  readonly #options: ReplicaOptions;
  readonly #sharing: PoolSharing;
  readonly #subscriptions: readonly Disposable[];
  readonly #others: OtherReplicas;
  readonly #sources: SharedSources;
  readonly #votes = new EvictionVotes();
  readonly #inFlight = new FactsInFlight();
  /** The sessions that this replica is opening in the shared pool, by name. */
  readonly #opening = new Map<string, Promise<void>>();
  /** Ids of the members that this replica has published again. The first such fact in the log removes the id. */
  readonly #republished = new Set<string>();
  #replicas: readonly string[] = [];
  #machinePart: LimitPart | undefined;
  #receivePart: ((part: LimitPart) => void) | undefined;
  #outbox: Fact[] = [];
  #beatTimer: Disposable | undefined;
  #isBeatQueued = false;
  #isHearing = false;
  #closed = false;

  constructor(options: ReplicaOptions) {
    const { pool, bus, sameMachine, servesClients } = options;
    this.#options = options;
    this.#sharing = pool.share({
      sameMachine,
      onChange: (change) => this.#changed(change),
      onUse: () => this.#beatLater(),
      onServed: () => this.#allServed(),
    });
    this.#others = new OtherReplicas(this.#sharing, { countsLeases: !servesClients });
    const { onCommand, onReport } = options;
    this.#sources = new SharedSources({ publish: (fact) => this.#publish(fact), onCommand, onReport });
    this.#subscriptions = [
      bus.on('demand.rose', () => this.#beatNow()),
      bus.on('client.waited', () => this.#allServed()),
    ];
  }

  /**
   * Loads the shared state and follows it.
   * @throws NoriaError like `SharedPool.follow`.
   */
  async open(): Promise<void> {
    await this.#options.shared.follow(this);
  }

  acquire(request: LeaseRequest): Answer | Promise<Answer> {
    const answer = this.#options.pool.acquire(request);
    if (request.routing.session === undefined || this.#closed) return answer;
    return answer instanceof Promise
      ? answer.then((late) => this.#inOpenSession(request, late))
      : this.#inOpenSession(request, answer);
  }

  cancel(requestId: number): void {
    this.#options.pool.cancel(requestId);
  }

  report(report: LeaseReport): void {
    this.#options.pool.report(report);
  }

  upcoming(query: UpcomingQuery): readonly UpcomingMember[] {
    return this.#options.pool.upcoming(query);
  }

  /** Opens a session for another process of this machine; see `SharedPool.bindSession`. */
  async bindSession(proposed: SharedSession): Promise<SharedSession> {
    const sharing = this.#sharing;
    const known = sharing.session(proposed.name);
    if (known?.member !== undefined) return known;
    const agreed = await this.#options.shared.bindSession(proposed);
    // Another process may have opened the session in the meantime. The first result counts for all processes of this machine. Without a
    // connection to the store, the results are only proposals, which may differ.
    if (sharing.session(proposed.name)?.member === undefined) sharing.confirm(agreed);
    return sharing.session(proposed.name) ?? agreed;
  }

  /**
   * From now on, passes this replica's part of the limits to `receive` instead of the pool. Used on a machine where other
   * processes serve the clients.
   */
  delegateLimits(receive: (part: LimitPart) => void): void {
    this.#receivePart = receive;
  }

  command(source: string, command: SourceCommand['command']): void {
    this.#sources.command(source, command);
  }

  reportSource(source: string, report: InstanceReport): void {
    this.#sources.report({ ...report, kind: 'source.reported', source });
  }

  loaded(state: SharedState): void {
    const sharing = this.#sharing;
    const here = new Map(sharing.members().map((changes) => [changes.member.id, changes]));
    const unpublished = this.#inFlight.takeAll();
    const sessions = state.sessions.filter(({ name }) => !unpublished.replacesSession(name));
    const movedSessions = sessions.filter((session) => this.#hasMoved(session)).length;
    this.#votes.clear();
    this.#republished.clear();
    sharing.apply(state.members.flatMap((record) => this.#changesOf(record, unpublished)));
    sharing.apply(sessions.map((session) => ({ kind: 'session.moved', session, reason: 'loaded' })));
    sharing.apply(state.restrictions ?? []);
    for (const { member, uses } of state.members) sharing.setUses(member.id, uses);
    this.#sources.loaded(state, (source) => unpublished.hasCommandFor(source));
    for (const { member } of state.members) here.delete(member.id);
    for (const changes of here.values()) this.#republishMember(changes);
    const known = new Set(sessions.map(({ name }) => name));
    for (const session of sharing.sessions()) {
      if (!known.has(session.name)) this.#publish({ kind: 'session.moved', session, reason: 'new' });
    }
    const hasSession = (name: string) => sharing.session(name) !== undefined;
    for (const fact of unpublished.missingIn(state, hasSession, this.#options.clock.monotonic()))
      this.#publish(fact);
    if (!this.#options.sameMachine) this.#options.bus.emit('fleet.loaded', { movedSessions });
  }

  followed(facts: readonly LoggedFact[]): void {
    const changes: PoolChange[] = [];
    for (const { by, fact } of facts) {
      const isOwn = by === this.#options.name;
      if (fact.kind === 'member.joined' && this.#republished.delete(fact.member.id) && isOwn)
        this.#sharing.reportUsesAgain(fact.member.id); // only the first replica reports, because the others would add the same uses again
      if (fact.kind === 'member.left') {
        if (isOwn) this.#inFlight.returned(fact);
        if (this.#votes.count(fact, by)) changes.push(fact);
      } else if (this.#inFlight.covers(fact)) {
        if (isOwn) this.#inFlight.returned(fact);
      } else if (isOwn && fact.kind !== 'session.moved')
        continue; // the pool already has this replica's own changes, except sessions that `bindSession` opened
      else if (fact.kind === 'source.commanded' || fact.kind === 'source.reported')
        this.#sources.followed(fact);
      else if (fact.kind === 'member.joined')
        changes.push({ ...fact, member: this.#withDrawnBy(fact.member, by) });
      else changes.push(fact);
    }
    this.#sharing.apply(this.#inOwnOrder(changes));
  }

  heard({ replicas, beats, uses, machine }: FleetView): void {
    if (replicas.join() !== this.#replicas.join() || !isSame(machine, this.#machinePart)) {
      this.#replicas = replicas;
      this.#machinePart = machine;
      this.#divideLimits();
    }
    this.#others.hear(beats);
    this.#others.keep(replicas);
    for (const [member, sum] of Object.entries(uses)) this.#sharing.setUses(member, sum);
    this.#isHearing = true; // while this flag is true, a rise of demand causes no beat: it is the demand of other replicas
    this.#others.reportDemand();
    this.#isHearing = false;
  }

  /** Stops following: the other replicas no longer see this replica. Idempotent. */
  async close(): Promise<void> {
    this.#closed = true;
    this.#beatTimer?.[Symbol.dispose]();
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    await this.#options.shared.close();
  }

  #divideLimits(): void {
    const { name, clock, commonMs } = this.#options;
    const index = this.#replicas.indexOf(name);
    const part = index < 0 ? { count: 1, index: 0 } : { count: this.#replicas.length, index };
    if (this.#receivePart !== undefined) {
      this.#receivePart(part);
      return;
    }
    const changedAt = clock.monotonic();
    const clockAheadMs = commonMs && changedAt - commonMs();
    this.#sharing.setShare({ ...part, machine: this.#machinePart, clockAheadMs, changedAt });
  }

  /** Grants the lease after all replicas have agreed on a member for its session. */
  #inOpenSession(request: LeaseRequest, answer: Answer): Answer | Promise<Answer> {
    if (!isLease(answer)) return answer;
    const { session, member } = answer;
    if (session === undefined || !this.#sharing.isUnconfirmed(session)) return answer;
    return this.#openSession(session).then(() => {
      const agreed = this.#sharing.session(session)?.member;
      if (agreed === undefined || agreed === member) return answer;
      this.#options.pool.report({ lease: answer.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
      return this.acquire(request);
    });
  }

  /** Opens the session in the shared pool for its first request. Other requests of the session wait for the result. */
  async #openSession(name: string): Promise<void> {
    const opening = this.#opening.get(name) ?? this.#bind(name);
    this.#opening.set(name, opening);
    await opening;
    this.#opening.delete(name);
  }

  async #bind(name: string): Promise<void> {
    const proposed = this.#sharing.session(name);
    if (proposed !== undefined) this.#sharing.confirm(await this.#options.shared.bindSession(proposed));
  }

  #changed(change: PoolChange): void {
    if (staysOnMachine(change) && !this.#options.sameMachine) return;
    if (change.kind !== 'member.left') this.#publish(change);
    else {
      const votesNeeded = change.reason === 'failed' ? this.#options.evictionVotes(this.#replicas.length) : 1;
      this.#publish({ ...change, votesNeeded });
    }
  }

  #publish(fact: Fact): void {
    if (this.#closed) return;
    this.#inFlight.add(fact);
    this.#outbox.push(fact);
    if (this.#outbox.length === 1) queueMicrotask(() => this.#flush());
  }

  #flush(): void {
    const facts = this.#outbox;
    this.#outbox = [];
    this.#options.shared.publish(facts);
  }

  /** Publishes a member that the shared state lacks. */
  #republishMember({ member, quarantine, bans }: MemberChanges): void {
    this.#republished.add(member.id);
    this.#changed({ kind: 'member.joined', member });
    if (quarantine !== undefined)
      this.#publish({ kind: 'member.quarantined', member: member.id, quarantine });
    for (const host of bans) this.#publish({ kind: 'member.banned', member: member.id, host, lifted: false });
  }

  /** Whether this replica has the session on a different member than the shared state. */
  #hasMoved({ name, member }: SharedSession): boolean {
    const known = this.#sharing.session(name)?.member;
    return known !== undefined && member !== undefined && known !== member;
  }

  /** Adds the name of the replica that drew the member, in case this replica has to put the member back into an emptied store. */
  #withDrawnBy(member: SharedMember, drawnBy: string): SharedMember {
    const { name, sameMachine } = this.#options;
    return sameMachine || drawnBy === name ? member : { drawnBy, ...member };
  }

  /**
   * Returns the changes that bring a member of the pool in line with its loaded record. If the record says that the member was removed,
   * also prevents the pool from adding the member again. Otherwise remembers the votes for its removal.
   */
  #changesOf(record: MemberRecord, unpublished: UnpublishedFacts): PoolChange[] {
    const { member, drawnBy, left, bans, votes } = record;
    const { id } = member;
    const now = this.#options.clock.monotonic();
    const quarantine = unpublished.replacesQuarantine(record, now) ? undefined : record.quarantine;
    if (left !== undefined) {
      this.#sharing.rememberRemoved(member);
      return [{ kind: 'member.left', member: id, ...left }];
    }
    this.#votes.load(id, votes);
    return [
      { kind: 'member.joined', member: this.#withDrawnBy(member, drawnBy) },
      ...(quarantine === undefined ? [] : [{ kind: 'member.quarantined', member: id, quarantine } as const]),
      ...bans.map((host) => ({ kind: 'member.banned', member: id, host, lifted: false }) as const),
    ];
  }

  /**
   * Puts the new members of a draw in a different order in each replica, so that the replicas' rotations start at different
   * members and use all of them evenly.
   */
  #inOwnOrder(changes: readonly PoolChange[]): readonly PoolChange[] {
    const joined = changes.filter(({ kind }) => kind === 'member.joined');
    const index = this.#replicas.indexOf(this.#options.name);
    if (joined.length < 2 || index < 1) return changes;
    const first = Math.floor(
      (joined.length * index) / (this.#replicas.length * (this.#machinePart?.count ?? 1)),
    );
    const others = changes.filter(({ kind }) => kind !== 'member.joined');
    return [...joined.slice(first), ...joined.slice(0, first), ...others];
  }

  /**
   * If no client waits any longer, reports it at once. Otherwise another replica could draw members for clients that no longer
   * need them.
   */
  #allServed(): void {
    if (this.#sharing.waiting === 0) this.#beatNow();
  }

  #beatLater(): void {
    if (this.#beatTimer !== undefined || this.#closed) return;
    this.#beatTimer = this.#options.clock.after(this.#options.beatMs, () => this.#beat());
  }

  #beatNow(): void {
    if (this.#isBeatQueued || this.#isHearing || this.#closed) return;
    this.#isBeatQueued = true;
    queueMicrotask(() => this.#beat());
  }

  #beat(): void {
    this.#isBeatQueued = false;
    this.#beatTimer?.[Symbol.dispose]();
    this.#beatTimer = undefined;
    if (this.#closed) return;
    const beat = this.#sharing.takeActivity();
    this.#options.shared.beat(beat);
    const isBusy =
      beat.waiting > 0 ||
      Object.values(beat.demand).some(({ usedUpPerSecond }) => usedUpPerSecond > QUIET_RATE);
    if (isBusy) this.#beatLater();
  }
}
