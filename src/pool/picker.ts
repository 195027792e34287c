/**
 * Chooses the member for a request: the next candidate, or the member of the client's session. A session leaves its member when
 * the member drains, is quarantined, is banned for the target host or does not satisfy the routing options. A session also leaves
 * a member that expires soon, if a member with more life left is free. If the session's member is only full, the session keeps
 * it, and the request waits. A session that leaves its member preferably gets a member without sessions.
 */
import { type Candidates, MemberCheck } from './candidates.ts';
import { passesFilter } from './filter.ts';
import type { LeaseRequest, RoutingOptions } from './lease.ts';
import type { Member } from './member.ts';
import type { Members } from './members.ts';
import type { Session } from './session.ts';
import type { Sessions } from './sessions.ts';

/** The member ids before and after a session was moved at a client's or the operator's request. */
export interface SessionRotation {
  readonly from: string | undefined;
  /** The id of the new member. Undefined if no other member was free: the session then gets a member at its next use. */
  readonly to: string | undefined;
}

/** A request to assign a member to a session whose client has not connected yet. The assignment grants no lease. */
export interface AssignmentRequest {
  readonly session: string;
  /** The routing options that the session's requests will have. */
  readonly routing: RoutingOptions;
  /** The members that are assigned to other sessions, by member id. The session never moves to one of them. */
  readonly taken: ReadonlyMap<string, unknown>;
  /**
   * Which members may be assigned. `keep`: only the session's own member. `fill`: also another member, if the session's
   * own member no longer works, expires soon or is in `taken`. `move`: like `fill`, and also another member if the
   * session has no open lease and its own member cannot serve it now.
   */
  readonly mode: 'keep' | 'fill' | 'move';
}

export class Picker {
  /** All picks use this object. After a pick, it contains the results of that pick. */
  readonly check = new MemberCheck();
  readonly #members: Members;
  readonly #sessions: Sessions;

  constructor(members: Members, sessions: Sessions) {
    this.#members = members;
    this.#sessions = sessions;
  }

  pick(
    { targetHost, avoid, routing }: LeaseRequest,
    candidates: Candidates,
    session: Session | undefined,
    now: number,
  ): Member | undefined {
    this.#prepare(targetHost, avoid, now);
    if (routing.minLifeMs !== undefined) this.check.minEndsAt = now + routing.minLifeMs;
    if (session !== undefined) return this.#pickForSession(session, candidates);
    this.check.lastExit = candidates.lastExit;
    const member = candidates.pick(this.check);
    if (member !== undefined) candidates.lastExit = member.exit;
    return member;
  }

  /**
   * Moves a session to another member that passes the filter of its last request. If no such member is free, the session has no
   * member until its next use.
   */
  rotate(session: Session, now: number): SessionRotation {
    const from = session.member;
    const current = this.#members.find(from);
    this.#prepare('', from === undefined ? [] : [from], now);
    this.check.lastExit = current?.exit ?? '';
    this.check.heldBySessions = this.#sessions.countByMember;
    const next = this.#members.candidates(session.filter, now).pick(this.check);
    if (next === undefined || next.bucket === 'quarantined') {
      this.#sessions.unbind(session);
      return { from, to: undefined };
    }
    this.#sessions.bind(session, { member: next.id, reason: 'rotated' }, now);
    return { from, to: next.id };
  }

  /**
   * Gives a session a member that can serve it now. `mode` decides when the session may move. A session whose own
   * member can serve it moves only to a member that does not expire soon.
   */
  assign(
    { session: name, routing, taken, mode }: AssignmentRequest,
    candidates: Candidates,
    now: number,
  ): Member | undefined {
    const { check } = this;
    this.#prepare('', [], now);
    const session = this.#sessions.find(name);
    const current = this.#members.find(session?.member);
    const own = current !== undefined && servesNow(current, candidates, check) ? current : undefined;
    const isOwnBest = own?.bucket === 'fresh' && !taken.has(own.id);
    const mayLeave = mode === 'move' && session?.openLeases === 0;
    const staysBusy = own === undefined && works(current) && !mayLeave;
    if (mode === 'keep' || isOwnBest || staysBusy) return this.#keep(own, name, routing);
    check.heldBySessions = this.#sessions.countByMember;
    check.avoid = [...taken.keys()];
    const next = candidates.pickOfFirstTier(check);
    const isBetter = next !== undefined && (own === undefined || next.bucket === 'fresh');
    if (!isBetter) return this.#keep(own, name, routing);
    // with the reason `rotated`, the pool reports the session's new member to other replicas at once
    return this.#bind(this.#sessions.use(name, routing, now), next, 'rotated');
  }

  /** Keeps the session on its own member, and counts this pick as a use of the session. No-op if `own` is undefined. */
  #keep(own: Member | undefined, name: string, routing: RoutingOptions): Member | undefined {
    if (own !== undefined) this.#sessions.use(name, routing, this.check.now);
    return own;
  }

  #prepare(host: string, avoid: readonly string[], now: number): void {
    const { check } = this;
    check.clearResults();
    check.now = now;
    check.host = host;
    check.avoid = avoid;
    check.minEndsAt = Number.NEGATIVE_INFINITY;
    check.lastExit = '';
    check.heldBySessions = undefined;
    check.slots = this.#members.slots;
  }

  #pickForSession(session: Session, candidates: Candidates): Member | undefined {
    const { check } = this;
    check.heldBySessions = this.#sessions.countByMember;
    const current = this.#members.find(session.member);
    if (current === undefined) return this.#bind(session, this.#pickNext(session, candidates), 'left');
    // The request has tried the session's own member, which failed or is slow. The session moves only when another
    // member accepts an attempt; see `Leases`.
    if (check.avoid.includes(current.id)) return this.#pickNext(session, candidates);
    const reason = whyMove(current, candidates, check);
    if (reason !== undefined) return this.#bind(session, this.#pickNext(session, candidates), reason);
    const { slots } = check;
    if (slots?.applyToSessions === true && !check.isOwnSlot(current, slots)) return undefined;
    if (current.bucket === undefined || current.source.isFull) {
      check.rejectedForRequest = true; // the clients that wait behind this client may still get another member
      return undefined;
    }
    if (current.bucket !== 'expiring') return current;
    const other = candidates.pick(check);
    return other?.bucket === 'fresh' ? this.#bind(session, other, 'ending') : current;
  }

  /**
   * Returns the member to which the session moves. That is the member through which a hedge last won, if this member can still
   * serve. If not, it is the next candidate.
   */
  #pickNext(session: Session, candidates: Candidates): Member | undefined {
    const { check } = this;
    const fallback = this.#members.find(session.fallback);
    const serves =
      fallback?.bucket === 'fresh' &&
      !fallback.source.isFull &&
      !check.avoid.includes(fallback.id) &&
      whyMove(fallback, candidates, check) === undefined;
    return serves ? fallback : candidates.pick(check);
  }

  #bind(session: Session, member: Member | undefined, reason: string): Member | undefined {
    if (member !== undefined) this.#sessions.bind(session, { member: member.id, reason }, this.check.now);
    return member;
  }
}

/** Whether a request of the session would get the member now. */
function servesNow(member: Member, candidates: Candidates, check: MemberCheck): boolean {
  if (member.bucket !== 'fresh' && member.bucket !== 'expiring') return false;
  return !member.source.isFull && whyMove(member, candidates, check) === undefined;
}

/** Whether the member is ready and its source is not blocked. The member may still be full, or not fit this client. */
function works(member: Member | undefined): boolean {
  return member?.phase.name === 'ready' && member.source.blockedReason === undefined;
}

/** Why the session must leave its member; undefined if it may stay. A full member is no reason to leave. */
function whyMove(
  member: Member,
  { filter }: Candidates,
  { host, minEndsAt }: MemberCheck,
): string | undefined {
  const { phase, source, bans } = member;
  if (phase.name === 'draining') return phase.departure.reason;
  if (phase.name !== 'ready') return phase.name;
  if (source.blockedReason !== undefined) return 'source-blocked';
  if (bans?.has(host) === true) return 'banned';
  return passesFilter(member, filter) && member.endsAt >= minEndsAt ? undefined : 'routing-options';
}
