/** Receives the changes of members and sessions that other replicas have to know. */
import type { Departure, Member, PoolSource } from './member.ts';
import type { Session } from './session.ts';
import type { SiteBan } from './sites.ts';

export interface PoolObserver {
  memberJoined(member: Member): void;
  memberQuarantined(member: Member): void;
  memberReady(member: Member): void;
  memberSuspected(member: Member): void;
  /** The member left the pool, or it drains and gets no new leases. */
  memberLeft(member: Member, departure: Departure): void;
  siteBanned(ban: SiteBan): void;
  /**
   * Leases, uses, latency or an assumed end of life changed. Called for every request, so it must be cheap.
   * @param uses - client leases for which the member has just accepted an attempt.
   */
  memberUsed(member: Member, uses: number): void;
  memberAnswered(member: Member, client: string): void;
  sessionBound(session: Session, reason: string): void;
  sessionMoved(session: Session, reason: string, from: string | undefined): void;
  /** Leases changed, or the session is still in use. Called for every request, so it must be cheap. @param uses - new leases. */
  sessionUsed(session: Session, uses: number): void;
  sessionEnded(session: Session, reason: string): void;
  sourceRestricted(source: PoolSource): void;
  evictionsFrozen(on: boolean): void;
}
