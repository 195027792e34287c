/**
 * Which member a request gets: the next of its lane, or its session's own while that can be kept.
 *
 * A session leaves its member when that has left the rotation, rests, is banned for the target, does not meet the
 * wish, or is about to end while others are not. A new one is a member that no other session has, if one comes soon in
 * the rotation. It waits for one that is merely full. A member that has just failed
 * this very request is left only when another one is accepted: that is for whoever takes the reports.
 */
import type { Candidates } from './candidates.ts';
import type { LeaseRequest } from './lease.ts';
import type { Member } from './member.ts';
import { Query } from './member-check.ts';
import type { Roster } from './members.ts';
import { ENDING, LASTING, NOWHERE, RESTING } from './rotation/rotation.ts';
import type { Session, Sessions } from './sessions.ts';

/** A session that was moved by hand. */
export interface Rotated {
  readonly from: string | undefined;
  /** undefined: no other member was free; it gets one with its next use. */
  readonly to: string | undefined;
}

const NOBODY: readonly string[] = [];
const ANY_LIFE = Number.NEGATIVE_INFINITY;

/** Chooses members; gives none away, but binds sessions to those it chose for them. */
export class Picker {
  readonly #roster: Roster;
  readonly #sessions: Sessions;
  readonly #query = new Query();

  constructor(roster: Roster, sessions: Sessions) {
    this.#roster = roster;
    this.#sessions = sessions;
  }

  /** What the last pick found out, beside its member. */
  get found(): Pick<Query, 'freeAt' | 'choosy' | 'brokeQuiet'> {
    return this.#query;
  }

  /** The member for a request; it is not given away by this. */
  pick(
    request: LeaseRequest,
    ladder: Candidates,
    session: Session | undefined,
    now: number,
  ): Member | undefined {
    const { minLifeMs } = request.routing;
    const query = this.#query;
    query.restart();
    query.now = now;
    query.host = request.targetHost;
    query.avoid = request.avoid;
    query.leastEndsAt = minLifeMs === undefined ? ANY_LIFE : now + minLifeMs;
    if (session !== undefined) return this.#forSession(session, ladder);
    query.lastExit = ladder.lastExit;
    query.taken = undefined;
    const member = ladder.pick(query);
    if (member !== undefined) ladder.lastExit = member.exit;
    return member;
  }

  /** Moves a session to another member of the kind it last wished for, if one is free. */
  rotate(session: Session, now: number): Rotated {
    const query = this.#query;
    const from = session.member;
    const own = from === undefined ? undefined : this.#roster.find(from);
    query.restart();
    query.now = now;
    query.host = '';
    query.avoid = from === undefined ? NOBODY : [from];
    query.leastEndsAt = ANY_LIFE;
    query.lastExit = own?.exit ?? '';
    query.taken = this.#sessions.held;
    const to = this.#roster.ladder(session.kind, now).pick(query);
    if (to === undefined || to.berth === RESTING) {
      this.#sessions.unbind(session);
      return { from, to: undefined };
    }
    this.#sessions.bind(session, to.id, 'rotated', now);
    return { from, to: to.id };
  }

  #forSession(session: Session, ladder: Candidates): Member | undefined {
    const query = this.#query;
    query.lastExit = '';
    query.taken = this.#sessions.held;
    const own = session.member === undefined ? undefined : this.#roster.find(session.member);
    if (own === undefined) return this.#bind(session, ladder.pick(query), 'left');
    if (query.avoid.includes(own.id)) return ladder.pick(query);
    const reason = whyMove(own, ladder, query);
    if (reason !== undefined) return this.#bind(session, ladder.pick(query), reason);
    if (own.berth === NOWHERE || own.source.full) {
      query.choosy = true; // full for now: those that wait behind it may get another one
      return undefined;
    }
    if (own.berth !== ENDING) return own;
    const other = ladder.pick(query);
    return other?.berth === LASTING ? this.#bind(session, other, 'ending') : own;
  }

  #bind(session: Session, member: Member | undefined, reason: string): Member | undefined {
    if (member !== undefined) this.#sessions.bind(session, member.id, reason, this.#query.now);
    return member;
  }
}

/** Why a session may not stay with its member; undefined when it may, if perhaps not at this moment. */
function whyMove(own: Member, ladder: Candidates, query: Query): string | undefined {
  const { phase } = own;
  if (phase.name === 'draining') return phase.why.reason;
  if (phase.name !== 'ready') return phase.name;
  if (own.source.blocked !== undefined) return 'source-blocked';
  if (own.bans?.has(query.host) === true) return 'banned';
  return ladder.fits(own) && own.endsAt >= query.leastEndsAt ? undefined : 'wish';
}
