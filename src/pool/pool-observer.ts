/** Sees the changes of members and sessions that other replicas of the pool have to know: see sharing.ts. */
import type { Departure, Member, PoolSource } from './member.ts';
import type { Session } from './session.ts';

export interface PoolObserver {
  /** It joined, or a draw brought it again. */
  memberJoined(member: Member): void;
  memberQuarantined(member: Member): void;
  memberReady(member: Member): void;
  /** It is to be probed. */
  memberSuspected(member: Member): void;
  /** It gets no new work. */
  memberLeft(member: Member, departure: Departure): void;
  memberBanned(member: Member, host: string, lifted: boolean): void;
  /** Its leases, uses, latency or assumed end of life changed. On the path of every request. */
  memberUsed(member: Member): void;
  /** A session without a member got one. */
  sessionBound(session: Session, reason: string): void;
  sessionMoved(session: Session, reason: string): void;
  /** Its leases changed, or it is still in use. On the path of every request. */
  sessionUsed(session: Session): void;
  sessionEnded(session: Session, reason: string): void;
  /** Its block or its limit on leases changed. */
  sourceRestricted(source: PoolSource): void;
  evictionsFrozen(on: boolean): void;
}
