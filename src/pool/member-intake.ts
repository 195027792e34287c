/**
 * Adds proxies to the members: the proxies of a draw, of a snapshot, and of other replicas of the pool. Rejects proxies whose
 * remaining life is too short, and proxies that the pool has removed before.
 */
import type { FaultCode } from '../core/faults.ts';
import { type Random, randomBelow, shuffled } from '../core/random.ts';
import { forgetWaitingElsewhere } from './demand.ts';
import { type MemberHistory, memberKey } from './departed-members.ts';
import type { AddedMembers, DrawnMember } from './drawn-member.ts';
import { Member, type PoolSource } from './member.ts';
import type { Members } from './members.ts';
import type { SharedMember } from './shared-member.ts';

/** A member as a snapshot contains it, but with monotonic moments. */
interface RestoredMember extends DrawnMember, MemberHistory {
  readonly id: string;
  readonly joinedAt: number;
  readonly endsAt: number;
  readonly endIsAssumed: boolean;
  readonly uses: number;
  readonly latencyMs: number | undefined;
  readonly quarantine:
    | { readonly untilAt: number; readonly fault: FaultCode; readonly replaced: boolean }
    | undefined;
}

/** The identity of a member and its lifetime. Moments are monotonic. */
interface MemberLife {
  readonly id: string;
  readonly joinedAt: number;
  readonly endsAt: number;
}

/** Length of member ids: short enough to read aloud, long enough that ids cannot be guessed. */
const ID_RADIX = 36;
const ID_LENGTH = 8;
const ID_COUNT = ID_RADIX ** ID_LENGTH;

export class MemberIntake {
  readonly #members: Members;
  readonly #random: Random;

  constructor(members: Members, random: Random) {
    this.#members = members;
    this.#random = random;
  }

  addDraw(source: PoolSource, drawn: readonly DrawnMember[], now: number): AddedMembers {
    const added = { joined: 0, renewed: 0, rejected: 0 };
    for (const proxy of shuffled(this.#random, drawn)) added[this.#add(source, proxy, now)] += 1;
    if (added.joined > 0) forgetWaitingElsewhere(source);
    return added;
  }

  #add(source: PoolSource, drawn: DrawnMember, now: number): 'joined' | 'renewed' | 'rejected' {
    const endsAt = drawn.endsAt ?? now + source.options.unknownLifetimeMs;
    if (this.#isTooLate(endsAt, now)) return 'rejected';
    const known = this.#members.findByKey(memberKey(source.name, drawn));
    if (known !== undefined) {
      source.learn(drawn, endsAt - now);
      this.#members.renew(known, { drawn, endsAt }, now);
      return 'renewed';
    }
    const joins = this.#joinUnlessBarred(source, drawn, { id: this.#newId(), joinedAt: now, endsAt, now });
    return joins ? 'joined' : 'rejected';
  }

  /** Does nothing if the member has expired or is in the pool already. */
  restore(source: PoolSource, restored: RestoredMember, now: number): void {
    const { id, joinedAt, endsAt, quarantine } = restored;
    if (this.#isTooLate(endsAt, now)) return;
    const key = memberKey(source.name, restored);
    if (this.#members.findByKey(key) !== undefined || this.#members.find(id) !== undefined) return;
    source.learn(restored, endsAt - now);
    const member = this.#make(source, restored, { id, joinedAt, endsAt });
    member.endIsAssumed = restored.endIsAssumed;
    member.uses = restored.uses;
    member.latencyMs = restored.latencyMs;
    inherit(member, restored, now);
    this.#members.join(member, now);
    if (quarantine === undefined || member.phase.name !== 'ready') return;
    member.quarantine({ ...quarantine, sinceAt: now });
    source.quarantined.add(member);
    this.#members.index.update(member, now);
  }

  addShared(source: PoolSource, shared: SharedMember, now: number): void {
    const { id, joinedAt, endsAt, endIsAssumed, ...rest } = shared;
    const drawn = { ...rest, endsAt: endIsAssumed ? undefined : endsAt };
    if (this.#isTooLate(endsAt, now)) return;
    const known = this.#members.findByKey(memberKey(source.name, drawn)) ?? this.#members.find(id);
    if (known === undefined) {
      this.#joinUnlessBarred(source, drawn, { id, joinedAt, endsAt, now });
    } else if (endsAt > known.endsAt && known.phase.name !== 'draining') {
      this.#members.renew(known, { drawn, endsAt }, now);
    }
  }

  #isTooLate(endsAt: number, now: number): boolean {
    return endsAt - this.#members.settings.safetyMarginMs <= now;
  }

  /**
   * Adds the member, unless the proxy is barred (see `DepartedMembers`).
   * @returns whether the member joined.
   */
  #joinUnlessBarred(
    source: PoolSource,
    drawn: DrawnMember,
    { now, ...life }: MemberLife & { readonly now: number },
  ): boolean {
    const departed = this.#members.departed.find(memberKey(source.name, drawn), now);
    if (departed?.barred === true) return false;
    source.learn(drawn, life.endsAt - now);
    const member = this.#make(source, drawn, life);
    if (departed !== undefined) inherit(member, departed, now);
    this.#members.join(member, now);
    return true;
  }

  #make(source: PoolSource, drawn: DrawnMember, { id, joinedAt, endsAt }: MemberLife): Member {
    const { protocol, host, port, unproven, exitIp, login, facts, drawnBy } = drawn;
    const location = this.#members.locations.of(drawn.location);
    const member = new Member({ id, source, protocol, host, port, location }, unproven, joinedAt);
    member.endsAt = endsAt;
    member.endIsAssumed = drawn.endsAt === undefined;
    member.exitIp = exitIp;
    member.login = login;
    member.facts = facts;
    member.drawnBy = drawnBy;
    return member;
  }

  #newId(): string {
    let number = randomBelow(this.#random, ID_COUNT);
    for (;;) {
      const id = number.toString(ID_RADIX).padStart(ID_LENGTH, '0');
      if (this.#members.find(id) === undefined) return id;
      number = (number + 1) % ID_COUNT;
    }
  }
}

function inherit(member: Member, { bans, health }: MemberHistory, now: number): void {
  for (const host of bans) member.ban(host);
  member.health.inherit(health, now);
}
