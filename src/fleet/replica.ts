/**
 * Keeps a pool and its shared pool equal: publishes the changes of the pool as facts, and applies the facts of other
 * replicas. Opens sessions, and moves them to other members, in the shared pool before it grants the first lease on this
 * member, so that all replicas choose the same one. Gives all replicas the operator's last command and the service's last
 * answer for each source.
 *
 * Of all facts about one subject, such as a member or a session, the last one in the log decides. While this replica waits
 * for its own fact to come back from the log, it skips other replicas' facts about the same subject: those facts are
 * earlier in the log, so its own fact overrides them.
 */
import { BoundedMap } from '../core/bounded-map.ts';
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { isSame } from '../core/secret.ts';
import type { Demand } from '../pool/drawn-member.ts';
import { isLease, type Lease, type LeaseRefusal, type LeaseRequest } from '../pool/lease.ts';
import type { LimitPart } from '../pool/options.ts';
import type { Pool } from '../pool/pool.ts';
import type { InstanceReport } from '../refill/reaction.ts';
import { FactsInFlight } from './facts-in-flight.ts';
import { type MemberChanges, PoolSharing } from './pool-sharing.ts';
import { banKey, SAME_MOMENT_MS, staysOnMachine } from './records.ts';
import type {
  Fact,
  FactOf,
  LoggedFact,
  MemberRecord,
  SharedMember,
  SharedSession,
  SharedState,
  SourceCommand,
  SourceReport,
} from './schemas.ts';
import type { FactFollower, FleetActivity, SharedPool } from './shared-pool.ts';

type Answer = Lease | LeaseRefusal;

export interface ReplicaOptions {
  readonly name: string;
  readonly clock: Clock;
  readonly bus: EventBus;
  readonly pool: Pool;
  readonly shared: SharedPool;
  readonly sameMachine: boolean;
  /** If false, this replica serves no clients, and its pool counts the open leases of the other replicas as its own. */
  readonly servesClients: boolean;
  /** Given the number of replicas, returns how many of them must report a failed member before all remove it. */
  readonly evictionVotes: (replicas: number) => number;
  readonly beatMs: number;
  readonly onCommand?: (command: SourceCommand) => void;
  readonly onReport?: (report: SourceReport) => void;
}

/**
 * A rate in members per second. While clients use up members faster, or the demand has a rate of requests, the replica
 * sends beats even without other changes, so that the other replicas learn when the rate falls.
 */
const QUIET_RATE = 0.001;
/** Stands for all other replicas if the shared pool adds up their demand. No replica can have this name. */
const ALL_OTHERS = '*';
const MAX_VOTED_MEMBERS = 10_000;

export class Replica implements FactFollower {
  readonly #options: ReplicaOptions;
  readonly #sharing: PoolSharing;
  readonly #subscriptions: readonly Disposable[];
  readonly #votes = new BoundedMap<string, Set<string>>(MAX_VOTED_MEMBERS);
  #inFlight = new FactsInFlight();
  /**
   * Ids of the members that this replica has published again. An id is removed when the log delivers a fact that adds
   * the member, no matter which replica published this fact.
   */
  readonly #republished = new Set<string>();
  readonly #proposed = new Map<string, Promise<void>>();
  readonly #commands = new Map<string, SourceCommand>();
  readonly #reports = new Map<string, SourceReport>();
  #replicas: readonly string[] = [];
  #machinePart: LimitPart | undefined;
  #receivePart: ((part: LimitPart) => void) | undefined;
  #outbox: Fact[] = [];
  #beatTimer: Disposable | undefined;
  #isBeatQueued = false;
  #isReceiving = false;
  #closed = false;

  constructor(options: ReplicaOptions) {
    const { pool, bus, sameMachine, servesClients } = options;
    this.#options = options;
    this.#sharing = new PoolSharing(pool.parts, {
      sameMachine,
      countsLeases: !servesClients,
      onChange: (change) => this.#changed(change),
      onUse: () => this.#beatLater(),
      onServed: () => this.#allServed(),
    });
    this.#subscriptions = [
      bus.on('demand.rose', () => this.#beatNow()),
      bus.on('client.waited', () => this.#allServed()),
    ];
  }

  async open(): Promise<void> {
    await this.#options.shared.follow(this);
  }

  /**
   * Passes this replica's part of the limits to `receive`, and no longer to the pool. Used if other processes of the
   * machine serve the clients.
   */
  delegateLimits(receive: (part: LimitPart) => void): void {
    this.#receivePart = receive;
  }

  /** Like `LeaseProvider.acquire`. Grants the lease after all replicas have agreed on a member for its session. */
  acquire(request: LeaseRequest): Answer | Promise<Answer> {
    const answer = this.#options.pool.acquire(request);
    if (request.routing.session === undefined || this.#closed) return answer;
    return answer instanceof Promise
      ? answer.then((late) => this.#agreed(request, late))
      : this.#agreed(request, answer);
  }

  /** Opens or moves a session for another process of this machine; see `SharedPool.bindSession`. */
  async bindSession(proposed: SharedSession, from: string | undefined): Promise<SharedSession> {
    const known = this.#sharing.session(proposed.name);
    if (known?.member !== undefined && known.member !== from) return known;
    const agreed = await this.#options.shared.bindSession(proposed, from);
    // Another process of this machine may have proposed a member during this call. The whole machine uses the answer that
    // arrived first. The answers differ only if the store is unavailable.
    const member = this.#sharing.session(proposed.name)?.member;
    if (member === undefined || member === from) this.#sharing.confirm(agreed ?? proposed);
    return this.#sharing.session(proposed.name) ?? agreed ?? proposed;
  }

  /** Returns a session of any replica, which this replica knows from then on. */
  async findSession(name: string): Promise<SharedSession | undefined> {
    const known = this.#sharing.session(name);
    if (known !== undefined || this.#closed) return known;
    const found = await this.#options.shared.findSession(name);
    if (found !== undefined && this.#sharing.session(name) === undefined) this.#sharing.confirm(found);
    return this.#sharing.session(name);
  }

  commandSource(source: string, command: SourceCommand['command']): void {
    const fact: SourceCommand = { kind: 'source.commanded', source, command };
    if (command !== 'refill') this.#commands.set(source, fact);
    this.#publish(fact);
  }

  reportSource(source: string, report: InstanceReport): void {
    const fact: SourceReport = { ...report, quota: { ...report.quota }, kind: 'source.reported', source };
    this.#reports.set(source, fact);
    this.#publish(fact);
  }

  /** Applies the state, except where a fact in flight replaces it. Then publishes what the state lacks. */
  receiveState(state: SharedState): void {
    const before = this.#sharing.members();
    const inFlight = this.#inFlight;
    this.#inFlight = new FactsInFlight();
    const sessions = state.sessions.filter(({ name }) => !inFlight.replacesSession(name));
    const movedSessions = sessions.filter((session) => this.#hasMoved(session)).length;
    this.#applyState({ ...state, sessions }, inFlight);
    this.#publishMissing(state, sessions, before);
    const hasSession = (name: string) => this.#sharing.session(name) !== undefined;
    for (const fact of inFlight.missingIn(state, hasSession, this.#options.clock.monotonic()))
      this.#publish(fact);
    if (!this.#options.sameMachine) this.#options.bus.emit('fleet.loaded', { movedSessions });
  }

  receiveFacts(facts: readonly LoggedFact[]): void {
    const changes: Fact[] = [];
    for (const { by, fact } of facts) {
      const isOwn = by === this.#options.name;
      if (fact.kind === 'member.joined' && this.#republished.delete(fact.member.id) && isOwn)
        // If the state lacks a member, several replicas may publish it again. Only the replica whose fact comes first
        // in the log reports the member's uses again: otherwise these uses would count several times.
        this.#sharing.reportUsesAgain(fact.member.id);
      if (fact.kind === 'member.left') {
        if (isOwn) this.#inFlight.returned(fact);
        if (this.#isVotedOut(fact, by)) changes.push(fact);
      } else if (this.#inFlight.covers(fact)) {
        if (isOwn) this.#inFlight.returned(fact);
      } else if (isOwn && fact.kind !== 'session.moved')
        continue; // the pool already contains its own changes, except sessions that `bindSession` opened
      else if (fact.kind === 'source.commanded' || fact.kind === 'source.reported')
        this.#receiveSourceFact(fact);
      else if (fact.kind === 'member.joined')
        changes.push({ ...fact, member: this.#withDrawnBy(fact.member, by) });
      else changes.push(fact);
    }
    this.#sharing.apply(this.#inOwnOrder(changes));
  }

  heldSessions(): string[] {
    return [...new Set([...this.#sharing.sessions().map(({ name }) => name), ...this.#inFlight.sessions()])];
  }

  receiveActivity({ replicas, beats, demand, uses, ends = {}, machine }: FleetActivity): void {
    if (replicas.join() !== this.#replicas.join() || !isSame(machine, this.#machinePart)) {
      this.#replicas = replicas;
      this.#machinePart = machine;
      this.#divideLimits();
    }
    const sharing = this.#sharing;
    for (const { by, beat } of beats) sharing.record(by, beat);
    if (demand !== undefined) {
      const waiting = Math.max(0, ...Object.values(demand).map((each) => each.waiting));
      sharing.record(ALL_OTHERS, { waiting, demand, members: [], sessions: [] });
    }
    sharing.retain(demand === undefined ? replicas : [...replicas, ALL_OTHERS]);
    for (const [member, sum] of Object.entries(uses)) sharing.setUses(member, sum);
    for (const [member, endsAt] of Object.entries(ends)) sharing.renew(member, endsAt);
    this.#isReceiving = true; // only the demand of other replicas changes, so this replica sends no beat
    sharing.applyDemand();
    this.#isReceiving = false;
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#beatTimer?.[Symbol.dispose]();
    for (const subscription of this.#subscriptions) subscription[Symbol.dispose]();
    await this.#options.shared.close();
  }

  #divideLimits(): void {
    const { name, clock, sameMachine } = this.#options;
    const index = this.#replicas.indexOf(name);
    const part = index < 0 ? { count: 1, index: 0 } : { count: this.#replicas.length, index };
    if (this.#receivePart !== undefined) {
      this.#receivePart(part);
      return;
    }
    const changedAt = clock.monotonic();
    this.#sharing.setPart({ ...part, machine: this.#machinePart, sharesClock: sameMachine, changedAt });
  }

  #applyState(state: SharedState, inFlight: FactsInFlight): void {
    const { members, bans, sessions, restrictions } = state;
    const sharing = this.#sharing;
    this.#votes.clear();
    this.#republished.clear();
    sharing.apply(members.flatMap((record) => this.#changesOf(record, inFlight)));
    sharing.apply(sessions.map((session) => ({ kind: 'session.moved', session, reason: 'loaded' })));
    sharing.apply(bans);
    sharing.apply(restrictions);
    for (const { member, uses } of members) sharing.setUses(member.id, uses);
    this.#applyCommands(state, inFlight);
    this.#applyReports(state.reports);
  }

  #applyCommands({ paused, resumed }: SharedState, inFlight: FactsInFlight): void {
    const loaded = new Map<string, SourceCommand['command']>([
      ...resumed.map((source) => [source, 'resume'] as const),
      ...paused.map((source) => [source, 'pause'] as const),
    ]);
    for (const own of this.#commands.values()) {
      if (inFlight.hasCommandFor(own.source) || !loaded.has(own.source)) this.#publish(own);
    }
    for (const [source, command] of loaded) {
      const known = this.#commands.get(source)?.command ?? 'resume';
      if (inFlight.hasCommandFor(source) || command === known) continue;
      this.#receiveSourceFact({ kind: 'source.commanded', source, command });
    }
  }

  #applyReports(reports: readonly SourceReport[]): void {
    const loaded = new Set(reports.map(({ source }) => source));
    for (const own of this.#reports.values()) if (!loaded.has(own.source)) this.#publish(own);
    for (const report of reports) {
      if (!isSameReport(report, this.#reports.get(report.source))) this.#receiveSourceFact(report);
    }
  }

  #receiveSourceFact(fact: SourceCommand | SourceReport): void {
    const { onCommand, onReport } = this.#options;
    if (fact.kind === 'source.reported') {
      this.#reports.set(fact.source, fact);
      onReport?.(fact);
      return;
    }
    if (fact.command !== 'refill') this.#commands.set(fact.source, fact);
    onCommand?.(fact);
  }

  #agreed(request: LeaseRequest, answer: Answer): Answer | Promise<Answer> {
    if (!isLease(answer) || answer.session === undefined) return answer;
    const { session, member } = answer;
    this.#sharing.failOver(session, member);
    if (!this.#sharing.isUnconfirmed(session) && !this.#proposed.has(session)) return answer;
    return this.#propose(session).then(() => {
      const agreed = this.#sharing.session(session)?.member;
      if (agreed === undefined || agreed === member) return answer;
      this.#options.pool.report({ lease: answer.id, kind: 'failed', blame: 'nobody', fault: 'client-gone' });
      return this.acquire(request);
    });
  }

  /** Concurrent requests of the session wait for the same result. */
  #propose(name: string): Promise<void> {
    const proposed = this.#proposed.get(name) ?? this.#proposeOnce(name);
    this.#proposed.set(name, proposed);
    return proposed;
  }

  async #proposeOnce(name: string): Promise<void> {
    const proposal = this.#sharing.propose(name);
    const agreed = proposal && (await this.#options.shared.bindSession(proposal.session, proposal.from));
    this.#proposed.delete(name);
    // without an answer in time, the session keeps what it has: the proposal, or what other replicas have said meanwhile
    if (agreed !== undefined) this.#sharing.confirm(agreed);
  }

  #publishMissing(
    { members, sessions, bans }: SharedState,
    applied: readonly SharedSession[],
    before: readonly MemberChanges[],
  ): void {
    const knownMembers = new Set(members.map(({ member }) => member.id));
    for (const changes of before) if (!knownMembers.has(changes.member.id)) this.#republishMember(changes);
    const knownBans = new Map(bans.map((ban) => [banKey(ban), ban.sinceAt]));
    for (const ban of this.#sharing.bans()) {
      const knownAt = knownBans.get(banKey(ban));
      if (knownAt === undefined || ban.sinceAt > knownAt + SAME_MOMENT_MS) this.#publish(ban);
    }
    const found = new Map(sessions.map(({ name, member }) => [name, member]));
    const knownSessions = new Set(applied.map(({ name }) => name));
    for (const session of this.#sharing.sessions()) {
      if (knownSessions.has(session.name)) continue;
      this.#publish({ kind: 'session.moved', session, from: found.get(session.name), reason: 'new' });
    }
  }

  #isVotedOut({ member, reason }: FactOf<'member.left'>, by: string): boolean {
    if (reason !== 'failed') return true;
    const votes = this.#votes.get(member) ?? new Set();
    votes.add(by);
    this.#votes.set(member, votes);
    return votes.size >= this.#votesNeeded;
  }

  get #votesNeeded(): number {
    // before the first list of replicas, the votes of a loaded state count as in a large fleet
    return this.#options.evictionVotes(this.#replicas.length || Number.POSITIVE_INFINITY);
  }

  #changed(change: Fact): void {
    if (this.#options.sameMachine || !staysOnMachine(change)) this.#publish(change);
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

  #republishMember({ member, quarantine }: MemberChanges): void {
    this.#republished.add(member.id);
    this.#changed({ kind: 'member.joined', member });
    const about = { source: member.source, member: member.id };
    if (quarantine !== undefined) this.#publish({ kind: 'member.quarantined', ...about, quarantine });
  }

  #hasMoved({ name, member }: SharedSession): boolean {
    const known = this.#sharing.session(name)?.member;
    return known !== undefined && member !== undefined && known !== member;
  }

  /**
   * Adds the name of the replica that drew the member. This replica needs the name if it has to publish the member
   * again after the store was emptied.
   */
  #withDrawnBy(member: SharedMember, drawnBy: string): SharedMember {
    const { name, sameMachine } = this.#options;
    return sameMachine || drawnBy === name ? member : { drawnBy, ...member };
  }

  /**
   * Returns the changes that make the pool's member equal to the loaded one, and remembers the votes to remove the
   * member. A member that the replicas have removed cannot join the pool again.
   */
  #changesOf(record: MemberRecord, inFlight: FactsInFlight): Fact[] {
    const { member, drawnBy, votes, fault } = record;
    const isFailed = votes.length >= this.#votesNeeded;
    const left = record.left ?? (isFailed ? { reason: 'failed' as const, fault } : undefined);
    const about = { source: member.source, member: member.id };
    const now = this.#options.clock.monotonic();
    const quarantine = inFlight.replacesQuarantine(record, now) ? undefined : record.quarantine;
    if (left !== undefined) {
      this.#sharing.rememberRemoved(member);
      return [{ kind: 'member.left', ...about, ...left }];
    }
    if (votes.length > 0) this.#votes.set(member.id, new Set(votes));
    return [
      { kind: 'member.joined', member: this.#withDrawnBy(member, drawnBy) },
      ...(quarantine === undefined ? [] : [{ kind: 'member.quarantined', ...about, quarantine } as const]),
    ];
  }

  /**
   * Reorders the new members of a draw, so that each replica adds them in a different order. The rotations of the
   * replicas then start at different members, and the members are used evenly.
   */
  #inOwnOrder(changes: readonly Fact[]): readonly Fact[] {
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
   * Sends a beat at once if no client waits any longer, so that the other replicas draw no members for clients that are
   * already served.
   */
  #allServed(): void {
    if (this.#sharing.waiting === 0) this.#beatNow();
  }

  #beatLater(): void {
    if (this.#beatTimer !== undefined || this.#closed) return;
    this.#beatTimer = this.#options.clock.after(this.#options.beatMs, () => this.#beat());
  }

  #beatNow(): void {
    if (this.#isBeatQueued || this.#isReceiving || this.#closed) return;
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
    const willFall = ({ usedUpPerSecond, perSecond, held }: Demand) =>
      usedUpPerSecond > QUIET_RATE || perSecond > 0 || held > 0;
    if (beat.waiting > 0 || Object.values(beat.demand).some(willFall)) this.#beatLater();
  }
}

function isSameReport({ suspension }: SourceReport, known: SourceReport | undefined): boolean {
  if (known === undefined) return false;
  const [until = Infinity, knownUntil = Infinity] = [suspension?.untilAt, known.suspension?.untilAt];
  const isSameEnd = until === knownUntil || Math.abs(until - knownUntil) < SAME_MOMENT_MS;
  return suspension?.code === known.suspension?.code && isSameEnd;
}
