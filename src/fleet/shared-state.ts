/**
 * Computes the shared state from the facts in the log. It is the reference for every implementation of `SharedPool`. It
 * has no timer: after every ADDITIONS_PER_SWEEP added members and sessions, it removes those that have ended.
 */
import { replacesEnd } from '../pool/member.ts';
import { banKey, SAME_MOMENT_MS } from './records.ts';
import type {
  FactOf,
  LoggedFact,
  MemberActivity,
  MemberRecord,
  Restriction,
  SessionActivity,
  SharedBan,
  SharedMember,
  SharedSession,
  SharedState,
  SourceCommand,
  SourceReport,
} from './schemas.ts';

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

const ADDITIONS_PER_SWEEP = 1_000;

export class SharedPoolState {
  readonly #members = new Map<string, Mutable<MemberRecord>>();
  readonly #bans = new Map<string, SharedBan>();
  readonly #sessions = new Map<string, SharedSession>();
  readonly #commands = new Map<string, 'pause' | 'resume'>();
  readonly #reports = new Map<string, SourceReport>();
  /**
   * The latest `Restriction` of each source, by source name. A restriction of the kind `evictions.frozen` concerns the
   * network of the machine and no single source: the latest one has the key ''.
   */
  readonly #restrictions = new Map<string, Restriction>();
  #additions = 0;

  load(part: Partial<SharedState>): void {
    const { members = [], bans = [], sessions = [], paused = [], resumed = [], reports = [] } = part;
    for (const ban of bans) this.#bans.set(banKey(ban), ban);
    for (const record of members) this.#members.set(record.member.id, { ...record });
    for (const session of sessions) this.#sessions.set(session.name, session);
    for (const source of paused) this.#commands.set(source, 'pause');
    for (const source of resumed) this.#commands.set(source, 'resume');
    for (const report of reports) this.#reports.set(report.source, report);
  }

  apply({ by, fact }: LoggedFact, now: number): void {
    switch (fact.kind) {
      case 'member.joined':
        this.#join(fact.member, by, now);
        break;
      case 'member.quarantined': {
        const state = this.#present(fact.member);
        if (state !== undefined) state.quarantine = fact.quarantine;
        break;
      }
      case 'member.restored':
        this.#restore(fact.member);
        break;
      case 'member.left':
        this.#leave(fact, by);
        break;
      case 'site.banned':
        this.#ban(fact, now);
        break;
      case 'session.moved':
        this.#addSession(fact.session, now);
        break;
      case 'session.ended':
        this.#sessions.delete(fact.name);
        break;
      case 'source.restricted':
        this.#restrictions.set(fact.source, fact);
        break;
      case 'evictions.frozen':
        this.#restrictions.set('', fact); // no source has the name ''
        break;
      case 'member.suspected':
        break; // not part of the state: a suspicion matters only when a replica receives it
      case 'source.commanded':
        if (fact.command !== 'refill') this.#commands.set(fact.source, fact.command);
        break;
      case 'source.reported':
        this.#reports.set(fact.source, fact);
        break;
    }
  }

  addUse({ member, uses, endsAt }: MemberActivity): number | undefined {
    const state = this.#members.get(member);
    if (state === undefined) return undefined;
    state.uses += uses;
    if (endsAt !== undefined) state.member = withEnd(state.member, { endsAt, endIsAssumed: true });
    return state.uses;
  }

  /** Sets what all replicas together report. @returns the record; undefined if there is no such member. */
  setUses(member: string, uses: number, endsAt: number): MemberRecord | undefined {
    const state = this.#members.get(member);
    if (state === undefined) return undefined;
    state.member = withEnd(state.member, { endsAt, endIsAssumed: true });
    state.uses = Math.max(state.uses, uses);
    return state;
  }

  recordSessionUse({ session: name, uses, usedAt, ttlMs }: SessionActivity): void {
    const session = this.#sessions.get(name);
    if (session === undefined) return;
    const latest = Math.max(session.usedAt, usedAt);
    this.#sessions.set(name, { ...session, ttlMs, uses: session.uses + uses, usedAt: latest });
  }

  drawnBy(member: string): string | undefined {
    return this.#members.get(member)?.drawnBy;
  }

  /** The number of members, bans and sessions, including some that have ended. */
  get size(): number {
    return this.#members.size + this.#bans.size + this.#sessions.size;
  }

  session(name: string, now: number): SharedSession | undefined {
    const session = this.#sessions.get(name);
    return session === undefined || session.usedAt + session.ttlMs <= now ? undefined : session;
  }

  read(now: number): SharedState {
    const sourcesWith = (command: SourceCommand['command']) =>
      [...this.#commands].flatMap(([source, last]) => (last === command ? [source] : []));
    return {
      members: [...this.#members.values()]
        .filter(({ member }) => member.endsAt > now)
        .map((state) => ({ ...state })),
      bans: [...this.#bans.values()].filter(({ untilAt }) => untilAt > now),
      sessions: [...this.#sessions.values()].filter(({ usedAt, ttlMs }) => usedAt + ttlMs > now),
      paused: sourcesWith('pause'),
      resumed: sourcesWith('resume'),
      reports: [...this.#reports.values()],
      restrictions: [...this.#restrictions.values()],
    };
  }

  #join(member: SharedMember, by: string, now: number): void {
    const known = this.#members.get(member.id);
    if (known !== undefined) {
      const { exitIp = known.member.exitIp, facts = known.member.facts } = member;
      known.member = withEnd({ ...known.member, exitIp, facts }, member);
      return;
    }
    this.#sweepSometimes(now);
    this.#members.set(member.id, { member, drawnBy: member.drawnBy ?? by, uses: 0, votes: [] });
  }

  #present(id: string): Mutable<MemberRecord> | undefined {
    const state = this.#members.get(id);
    return state?.left === undefined ? state : undefined;
  }

  #restore(id: string): void {
    const state = this.#present(id);
    if (state === undefined) return;
    delete state.quarantine;
    state.member = { ...state.member, unproven: false };
  }

  /** Whoever loads the state decides how many votes remove a member (`Replica`). */
  #leave({ member: id, reason, fault }: FactOf<'member.left'>, by: string): void {
    const state = this.#present(id);
    if (state === undefined) return;
    if (reason !== 'failed') state.left = { reason, fault };
    else if (!state.votes.includes(by)) Object.assign(state, { votes: [...state.votes, by], fault });
  }

  #ban(ban: SharedBan, now: number): void {
    const key = banKey(ban);
    const known = this.#bans.get(key);
    if (known !== undefined && known.sinceAt > ban.sinceAt + SAME_MOMENT_MS) return;
    if (known === undefined) this.#sweepSometimes(now);
    this.#bans.set(key, ban);
  }

  #addSession(session: SharedSession, now: number): void {
    if (!this.#sessions.has(session.name)) this.#sweepSometimes(now);
    this.#sessions.set(session.name, session);
  }

  #sweepSometimes(now: number): void {
    this.#additions += 1;
    if (this.#additions % ADDITIONS_PER_SWEEP !== 0) return;
    for (const [id, { member }] of this.#members) if (member.endsAt <= now) this.#members.delete(id);
    for (const [key, { untilAt }] of this.#bans) if (untilAt <= now) this.#bans.delete(key);
    for (const name of this.#sessions.keys()) {
      if (this.session(name, now) === undefined) this.#sessions.delete(name);
    }
  }
}

function withEnd(member: SharedMember, end: Pick<SharedMember, 'endsAt' | 'endIsAssumed'>): SharedMember {
  const { endsAt, endIsAssumed } = end;
  return replacesEnd(member, end) ? { ...member, endsAt, endIsAssumed } : member;
}
