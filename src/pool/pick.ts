/**
 * Chooses the member for a request. One mutable object serves all picks of a pool, to save allocations; after a pick, it contains what the
 * pick found out.
 *
 * A session leaves its member when that is not usable for its request (see `whyUnusable`), or expires soon while a member with more life left
 * is free. If it is only full, the request waits. A session that leaves its member preferably gets one without sessions.
 */
import type { CandidateCheck, Candidates } from './candidates.ts';
import { PASSING_REASONS, whyUnusable } from './filter.ts';
import type { LeaseRequest, RoutingOptions } from './lease.ts';
import type { Candidate, Member } from './member.ts';
import type { Members } from './members.ts';
import { type ProcessPart, partOfProcess } from './options.ts';
import { FITS, type Fit, SECOND_CHOICE, UNFIT } from './rotations.ts';
import type { Session, Sessions } from './sessions.ts';
import { freeAt, pairAt, type Site } from './sites.ts';

export interface SessionRotation {
  readonly from: string | undefined;
  /** The id of the new member. Undefined if no other member was free: the session then gets a member at its next use. */
  readonly to: string | undefined;
}

/** For a session whose client has not connected yet. Grants no lease. */
export interface AssignmentRequest {
  readonly session: string;
  readonly routing: RoutingOptions;
  readonly taken: ReadonlyMap<string, unknown>;
  /**
   * `keep`: only the session's own member. `fill`: also another, if its own no longer works, expires soon or is in `taken`. `move`: also if
   * the session has no open lease and its own member cannot serve it now.
   */
  readonly mode: 'keep' | 'fill' | 'move';
}

export class MemberPick implements CandidateCheck {
  now = 0;
  /** Undefined for an assignment, which is for no site. */
  #site: Site | undefined;
  #spacingMs = 0;
  #maxTunnels = 0;
  #user: string | undefined;
  /** Whether the site's exits take turns. The other strategies choose by chance or by a rank. */
  #spreads = false;
  #avoid: readonly string[] = [];
  #minEndsAt = Number.NEGATIVE_INFINITY;
  /** The pick prefers a member with another exit address than the previous pick. */
  #lastExit = '';
  #isForSession = false;
  /** A session that gets a member prefers those that live at least until then: the longer-lived half. */
  #preferredEndsAt = Number.NEGATIVE_INFINITY;
  #session: Session | undefined;
  #isHedge = false;
  /** The exits that somebody uses, if the pick is for an exclusive session. */
  #exitsInUse: Set<string> | undefined;

  /**
   * Result: when the first rejected member may be used, as its ban, its spacing or the slot of another process ends. Infinity: none.
   */
  retryAt = Number.POSITIVE_INFINITY;
  /** Result: true if the pick rejected a member that other requests with the same filter may still get. */
  rejectedForRequest = false;
  /** Result: why the request's `fixed` session has ended, for this target or for good; a text for the client. */
  ended: string | undefined;
  /** Result: whether the pick searched a tier that no request had searched for longer than QUIET_MS. */
  endedQuiet = false;

  readonly #members: Members;
  readonly #sessions: Sessions;

  constructor(members: Members, sessions: Sessions) {
    this.#members = members;
    this.#sessions = sessions;
  }

  member(
    { avoid, routing, hedge }: LeaseRequest,
    candidates: Candidates,
    { session, site }: { readonly session: Session | undefined; readonly site: Site },
    now: number,
  ): Member | undefined {
    this.#begin(avoid, now);
    this.#site = site;
    this.#spacingMs = this.#members.sites.spacingOf(site, now);
    this.#user = routing.user;
    const { tunnelsPerMember } = site.rule;
    if (tunnelsPerMember > 0) this.#maxTunnels = partOfProcess(tunnelsPerMember, this.#members.index.part);
    if (routing.minLifeMs !== undefined) this.#minEndsAt = now + routing.minLifeMs;
    this.#isHedge = hedge === true;
    if (session?.isFixed === true && session.member !== undefined)
      return this.#isHedge ? undefined : this.#forFixed(session, candidates);
    if (session !== undefined) return this.#forSession(session, candidates);
    this.#lastExit = candidates.lastExit;
    this.#spreads = this.#members.settings.rotation.strategy === 'round-robin';
    if (this.#spreads) this.#members.sites.endRound(site);
    const member = candidates.pick(this);
    if (member !== undefined) candidates.lastExit = member.exit;
    return member;
  }

  /** The pick finds no member, because the site's `rate` allows the next request only at this moment. */
  waitFor(at: number): void {
    this.#begin([], at);
    this.#unfitUntil(at);
  }

  /** If no other member that passes the filter of its last request is free, the session has none until its next use. */
  rotate(session: Session, now: number): SessionRotation {
    const from = session.member;
    this.#begin([from ?? ''], now);
    this.#lastExit = this.#members.find(from)?.exit ?? '';
    this.#isForSession = true;
    this.#session = session;
    const next = this.#members.index.find(session.filter, now).pick(this);
    if (next === undefined || next.bucket === 'quarantined') {
      this.#sessions.unbind(session);
      return { from, to: undefined };
    }
    this.#bind(session, next, 'rotated');
    return { from, to: next.id };
  }

  /** `mode` decides when the session may move; from a member that can serve it only to one that does not expire soon. */
  assign(request: AssignmentRequest, candidates: Candidates, now: number): Member | undefined {
    const { session: name, routing, taken, mode } = request;
    this.#begin([], now);
    const session = this.#sessions.byName.get(name);
    const current = this.#members.find(session?.member);
    const own = current !== undefined && this.#servesNow(current, candidates) ? current : undefined;
    const isOwnBest = own?.bucket === 'fresh' && !taken.has(own.id);
    const works = current?.phase.name === 'ready' && current.source.blockedReason === undefined;
    const isBusy = own === undefined && works && !(mode === 'move' && session?.openLeases === 0);
    if (mode !== 'keep' && !isOwnBest && !isBusy) {
      this.#isForSession = true;
      this.#avoid = [...taken.keys()];
      const next = candidates.pickOfFirstTier(this);
      // with the reason `rotated`, the pool reports the session's new member to other replicas at once
      if (next !== undefined && (own === undefined || next.bucket === 'fresh'))
        return this.#bind(this.#sessions.use(name, routing, now), next, 'rotated');
    }
    if (own !== undefined) this.#sessions.use(name, routing, now);
    return own;
  }

  fit({ member }: Candidate): Fit {
    if (member.source.isFull) return UNFIT;
    if (member.endsAt < this.#minEndsAt || this.#avoid.includes(member.id)) {
      this.rejectedForRequest = true;
      return UNFIT;
    }
    if (
      (this.#sessions.reserved.size > 0 && this.#isReserved(member)) ||
      (this.#session?.isExclusive === true && this.#isInUse(member.exit))
    ) {
      this.rejectedForRequest = true;
      return UNFIT;
    }
    const site = this.#site;
    if (site !== undefined) {
      const fit = this.#fitAt(site, member);
      if (fit !== FITS) return fit;
    }
    if (member.exit === this.#lastExit || member.endsAt < this.#preferredEndsAt) return SECOND_CHOICE;
    return this.#isForSession && this.#sessions.countByMember.has(member.id) ? SECOND_CHOICE : FITS;
  }

  #fitAt(site: Site, member: Member): Fit {
    const { sites, index } = this.#members;
    if (index.part.count > 1) {
      const slotAt = this.#slotAt(member, site.name);
      if (slotAt > this.now) return this.#unfitUntil(slotAt);
    }
    if (site.usersBans !== undefined) {
      const untilAt = site.bannedForUser(member.exit, this.#user);
      if (untilAt > this.now) return this.#unfitUntil(untilAt);
    }
    const pair = pairAt(site, member);
    if (pair !== undefined) {
      if (pair.untilAt > this.now) return this.#unfitUntil(pair.untilAt);
      if (this.#spacingMs > 0 && pair.usedAt >= 0 && pair.usedAt + this.#spacingMs > this.now)
        return this.#unfitUntil(pair.usedAt + this.#spacingMs);
      if (this.#maxTunnels > 0 && pair.openLeases >= this.#maxTunnels) {
        this.rejectedForRequest = true;
        return UNFIT;
      }
      if (this.#spreads && pair.round === site.round) return SECOND_CHOICE;
    }
    return sites.waiting.size > 0 && this.#isWantedElsewhere(member) ? SECOND_CHOICE : FITS;
  }

  /** When this process may use the member at the site, if several processes keep a limit on uses together. */
  #slotAt({ id, exit }: Member, site: string): number {
    const { index, settings } = this.#members;
    const isPerMember = settings.rotation.maxUsesPerMember > 0; // this limit counts the uses of sessions, too
    const waitMs = Math.max(this.#spacingMs, isPerMember ? USES_KNOWN_MS : 0);
    if (waitMs === 0 || !index.part.sharesClock) return this.now;
    return timeSlotAt(index.part, isPerMember ? id : `${exit} ${site}`, waitMs, this.now);
  }

  /** Exits that are worth less to the sites for which clients wait are used first. */
  #isWantedElsewhere({ exit }: Member): boolean {
    for (const other of this.#members.sites.waiting) {
      if (other !== this.#site && (other.pairs.get(exit)?.untilAt ?? 0) <= this.now) return true;
    }
    return false;
  }

  #isBanned(member: Member): boolean {
    return this.#site !== undefined && freeAt(this.#site, member, 0, this.#user) > this.now;
  }

  #begin(avoid: readonly string[], now: number): void {
    this.now = now;
    this.#site = undefined;
    this.#spacingMs = 0;
    this.#maxTunnels = 0;
    this.#user = undefined;
    this.#spreads = false;
    this.#avoid = avoid;
    this.#minEndsAt = Number.NEGATIVE_INFINITY;
    this.#lastExit = '';
    this.#isForSession = false;
    this.#preferredEndsAt = Number.NEGATIVE_INFINITY;
    this.#session = undefined;
    this.#exitsInUse = undefined;
    this.ended = undefined;
    this.retryAt = Number.POSITIVE_INFINITY;
    this.rejectedForRequest = false;
    this.endedQuiet = false;
  }

  #unfitUntil(at: number): Fit {
    this.rejectedForRequest = true;
    if (at < this.retryAt) this.retryAt = at;
    return UNFIT;
  }

  #isReserved({ id, exit }: Member): boolean {
    const { reserved } = this.#sessions;
    const holder = reserved.get(exit) ?? reserved.get(id);
    return holder !== undefined && holder !== this.#session;
  }

  /** The request waits while the member is quarantined or full. It may be tried again through the same member only. */
  #forFixed(session: Session, { filter }: Candidates): Member | undefined {
    const member = this.#members.find(session.member);
    const reason = member === undefined ? 'left' : whyUnusable(member, filter, this.#isBanned(member));
    if (member === undefined || !PASSING_REASONS.has(reason)) {
      this.ended = whyEnded(reason);
      return undefined;
    }
    if (member.bucket === undefined || member.bucket === 'quarantined' || member.source.isFull) {
      this.rejectedForRequest = true;
      return undefined;
    }
    return member;
  }

  /** Whether a session or an open lease uses the exit. Only the rare pick for an exclusive session looks at all members. */
  #isInUse(exit: string): boolean {
    if (this.#exitsInUse === undefined) {
      this.#exitsInUse = new Set();
      for (const member of this.#members.byId.values())
        if (member.openLeases > 0 || this.#sessions.countByMember.has(member.id))
          this.#exitsInUse.add(member.exit);
    }
    return this.#exitsInUse.has(exit);
  }

  #forSession(session: Session, candidates: Candidates): Member | undefined {
    this.#isForSession = true;
    this.#session = session;
    const current = this.#members.find(session.member);
    if (current === undefined) return this.#bind(session, this.#nextFor(session, candidates), 'left');
    // The request has tried the session's own member, which failed or is slow. The session moves only when another
    // member accepts an attempt; see `Leases`.
    if (this.#avoid.includes(current.id)) {
      if (!session.isExclusive) return this.#nextFor(session, candidates);
      // The next member must be reserved at once, and a hedge would reserve one that the session may not need.
      return this.#isHedge
        ? undefined
        : this.#bind(session, this.#nextFor(session, candidates), 'failed-over');
    }
    const reason = whyUnusable(current, candidates.filter, this.#isBanned(current));
    if (reason !== undefined) return this.#bind(session, this.#nextFor(session, candidates), reason);
    if (!this.#isOwnSlot(current)) return undefined;
    if (current.bucket === undefined || current.source.isFull) {
      this.rejectedForRequest = true; // the clients that wait behind this client may still get another member
      return undefined;
    }
    if (current.bucket !== 'expiring') return current;
    const other = candidates.pick(this);
    return other?.bucket === 'fresh' ? this.#bind(session, other, 'ending') : current;
  }

  /** Sessions wait for the slots of their member only if `maxUsesPerMember` is set: the spacing of a site does not apply to them. */
  #isOwnSlot(member: Member): boolean {
    if (this.#members.index.part.count === 1 || this.#members.settings.rotation.maxUsesPerMember === 0)
      return true;
    const slotAt = this.#slotAt(member, '');
    if (slotAt > this.now) this.#unfitUntil(slotAt);
    return slotAt <= this.now;
  }

  /** The member through which a hedge last won, if it can still serve; else the next candidate. */
  #nextFor(session: Session, candidates: Candidates): Member | undefined {
    const fallback = this.#members.find(session.fallback);
    const serves =
      fallback?.bucket === 'fresh' &&
      fallback.endsAt >= this.#minEndsAt &&
      !this.#avoid.includes(fallback.id) &&
      this.#servesNow(fallback, candidates);
    if (serves) return fallback;
    // the session moves again `minRemainingMs` before the end of its member, which is within the life that it asks for
    const livesUntil = this.#minEndsAt + this.#members.settings.minRemainingMs;
    this.#preferredEndsAt = Math.max(medianEnd(candidates), livesUntil);
    return candidates.pick(this);
  }

  #servesNow(member: Member, { filter }: Candidates): boolean {
    if (member.bucket !== 'fresh' && member.bucket !== 'expiring') return false;
    return !member.source.isFull && whyUnusable(member, filter, this.#isBanned(member)) === undefined;
  }

  #bind(session: Session, member: Member | undefined, reason: string): Member | undefined {
    if (member === undefined) return undefined;
    this.#sessions.bind(session, { member: member.id, reason }, this.now);
    session.memberIsNew = true;
    if (session.isExclusive) this.#sessions.reserve(session, member);
    return member;
  }
}

/** How many members of a source a new session looks at, to find the longer-lived half. */
const MAX_SAMPLE = 128;

function medianEnd({ tiers }: Candidates): number {
  const ends: number[] = [];
  for (const { sources } of tiers.slice(0, 1)) {
    for (const source of sources) {
      let count = 0;
      for (const member of source.members) {
        if (member.bucket === 'fresh') ends.push(member.endsAt);
        count += 1;
        if (count === MAX_SAMPLE) break;
      }
    }
  }
  ends.sort((one, other) => one - other);
  return ends[Math.floor(ends.length / 2)] ?? Number.NEGATIVE_INFINITY;
}

function whyEnded(reason: string | undefined): string {
  if (reason === 'banned') return 'The target has banned the exit of this fixed session.';
  if (reason === 'routing-options')
    return 'The member of this fixed session does not fit the routing options.';
  return 'The member of this fixed session has ended.';
}

const USES_KNOWN_MS = 750;
/** Longer slots waste less time on waits, shorter ones share members more evenly. */
const WAITS_PER_SLOT = 4;
/** Among so many, one is almost certainly its own. */
const MAX_SLOTS = 64;

/**
 * Which of several processes with one pool may use a member or an exit now. Each time slot of it belongs to one process, which a hash
 * selects, so the processes agree without messages. At the start of its slot, a process waits until it knows all uses by the previous one
 * (`maxUsesPerMember`), or until the spacing of the site has passed.
 */
export function timeSlotAt(
  { count, index, changedAt }: ProcessPart,
  key: string,
  waitMs: number,
  now: number,
): number {
  const isOwn = (slot: number) => hash(`${key} ${slot}`) % count === index;
  const lengthMs = waitMs * WAITS_PER_SLOT;
  const current = Math.floor(now / lengthMs);
  for (let slot = current; slot < current + MAX_SLOTS; slot += 1) {
    if (isOwn(slot)) return Math.max(slot * lengthMs + (isOwn(slot - 1) ? 0 : waitMs), changedAt + waitMs);
  }
  return now + MAX_SLOTS * lengthMs;
}

/** FNV-1a with a final mix: gives the same result in every process. */
function hash(text: string): number {
  let value = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) value = Math.imul(value ^ text.charCodeAt(at), 0x01000193);
  value = Math.imul(value ^ (value >>> 15), 0x2c1b3c6d);
  return (value ^ (value >>> 13)) >>> 0;
}
