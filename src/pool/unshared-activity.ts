/** Collects how this process used members and sessions since its last report to a group of replicas. */
import type { Member } from './member.ts';
import type { Session } from './session.ts';
import type { MemberActivity, PoolActivity, SessionActivity } from './shared-member.ts';

interface MemberNews {
  uses: number;
  /** The client that received the most recent answer of a target through the member. */
  answeredTo: string | undefined;
}

export class UnsharedActivity {
  readonly #members = new Map<Member, MemberNews>();
  /** Number of leases since the last report, by session. */
  readonly #sessions = new Map<Session, number>();

  memberUsed(member: Member, uses: number): void {
    const news = this.#members.get(member);
    if (news === undefined) this.#members.set(member, { uses, answeredTo: undefined });
    else news.uses += uses;
  }

  memberAnswered(member: Member, client: string): void {
    const news = this.#members.get(member);
    if (news === undefined) this.#members.set(member, { uses: 0, answeredTo: client });
    else news.answeredTo = client;
  }

  sessionUsed(session: Session, uses: number): void {
    this.#sessions.set(session, this.usesOf(session) + uses);
  }

  usesOf(session: Session): number {
    return this.#sessions.get(session) ?? 0;
  }

  /** Call it when the other replicas have lost their record of the uses of the member. The next report then contains all its uses. */
  memberLost(member: Member): void {
    this.#members.set(member, { uses: member.uses, answeredTo: this.#members.get(member)?.answeredTo });
  }

  take(now: number): Pick<PoolActivity, 'members' | 'sessions'> {
    const members = [...this.#members].map(([member, news]) => describeUse(member, news));
    const sessions = [...this.#sessions].map(([session, uses]) => describeSessionUse(session, uses, now));
    this.#members.clear();
    this.#sessions.clear();
    return { members, sessions };
  }
}

function describeUse(
  { id, openLeases, latencyMs, endIsAssumed, endsAt }: Member,
  { uses, answeredTo }: MemberNews,
): MemberActivity {
  return {
    member: id,
    uses,
    openLeases,
    ...(answeredTo !== undefined && { answeredTo }),
    ...(latencyMs !== undefined && { latencyMs }),
    ...(endIsAssumed && { endsAt }),
  };
}

function describeSessionUse(
  { name, openLeases, usedAt, ttlMs }: Session,
  uses: number,
  now: number,
): SessionActivity {
  return { session: name, uses, openLeases, usedAt: openLeases > 0 ? now : usedAt, ttlMs };
}
