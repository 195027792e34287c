/** Observes the changes of members and sessions that other replicas have to know; see sharing.ts. */
import type { Departure, Member, PoolSource } from './member.ts';
import type { Session } from './session.ts';

export interface PoolObserver {
  /** The member joined, or a draw brought it again. */
  memberJoined(member: Member): void;
  memberQuarantined(member: Member): void;
  memberReady(member: Member): void;
  /** The member should be probed. */
  memberSuspected(member: Member): void;
  /** The member left, or drains and gets no new leases. */
  memberLeft(member: Member, departure: Departure): void;
  memberBanned(member: Member, host: string, lifted: boolean): void;
  /** Leases, uses, latency or assumed end of life of the member changed. Called for every request, so it must be cheap. */
  memberUsed(member: Member): void;
  /** A session that had no member got one. */
  sessionBound(session: Session, reason: string): void;
  sessionMoved(session: Session, reason: string): void;
  /** Leases of the session changed, or it is still in use. Called for every request, so it must be cheap. */
  sessionUsed(session: Session): void;
  sessionEnded(session: Session, reason: string): void;
  /** The block of the source, or its limit of open leases, changed. */
  sourceRestricted(source: PoolSource): void;
  evictionsFrozen(on: boolean): void;
}
