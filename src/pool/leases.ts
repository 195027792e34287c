/**
 * Grants leases on members to requests, and applies the reports on leases to the member, the source and the session.
 * `Leases` owns the open leases and their counters.
 */
import type { Blame } from '../core/events.ts';
import type { FaultCode } from '../core/faults.ts';
import type { Lease, LeaseReport, LeaseRequest } from './lease.ts';
import type { Member } from './member.ts';
import type { MemberFaults } from './member-faults.ts';
import type { Members } from './members.ts';
import type { Session } from './session.ts';
import type { Sessions } from './sessions.ts';

interface OpenLease {
  readonly id: number;
  readonly member: Member;
  readonly session: Session | undefined;
  /** Canonical host of the request's target; '' for a probe. */
  readonly targetHost: string;
  readonly client: string;
  readonly leasedAt: number;
  readonly isProbe: boolean;
  readonly isHedge: boolean;
  accepted: boolean;
}

interface Grant {
  readonly now: number;
  readonly waitedMs: number;
  readonly session: Session | undefined;
  /** The client's request; absent for a probe. A probe counts neither as a use nor as demand. */
  readonly request?: LeaseRequest;
}

export type LeaseHolder = { readonly session: string } | { readonly member: string };

export class Leases {
  readonly #members: Members;
  readonly #sessions: Sessions;
  readonly #faults: MemberFaults;
  readonly #open = new Map<number, OpenLease>();
  #lastId = 0;

  constructor(members: Members, sessions: Sessions, faults: MemberFaults) {
    this.#members = members;
    this.#sessions = sessions;
    this.#faults = faults;
  }

  grant(member: Member, { now, waitedMs, session, request }: Grant): Lease {
    const isProbe = request === undefined;
    this.#lastId += 1;
    const id = this.#lastId;
    member.openLeases += 1;
    member.source.openLeases += 1;
    if (!isProbe) member.pendingUses += 1;
    const isReady = member.phase.name === 'ready';
    if (!isReady || isProbe) member.trialLease = id;
    if (session !== undefined) {
      session.openLeases += 1;
      session.uses += 1;
      for (const observer of this.#sessions.observers) observer.sessionUsed(session, 1);
    }
    const targetHost = request?.targetHost ?? '';
    const client = request?.routing.client ?? '';
    const open: OpenLease = {
      id,
      member,
      session,
      targetHost,
      client,
      leasedAt: now,
      isProbe,
      isHedge: request?.hedge === true,
      accepted: false,
    };
    this.#open.set(id, open);
    if (isProbe) this.#members.index.update(member, now);
    else this.#members.index.leased(member, now);
    for (const observer of this.#members.observers) observer.memberUsed(member, 0);
    return describeLease(open, waitedMs, isReady);
  }

  grantProbe(member: Member, now: number): Lease {
    return this.grant(member, { now, waitedMs: 0, session: undefined });
  }

  /** @returns false when the lease is unknown or has ended. */
  report(report: LeaseReport, now: number): boolean {
    const lease = this.#open.get(report.lease);
    if (lease === undefined) return false;
    if (report.kind !== 'accepted') this.#end(lease, report, now);
    else if (!lease.accepted) this.#accept(lease, report.latencyMs, now);
    return true;
  }

  /** Ids of the open leases of a session or a member. Takes time in proportion to the number of all open leases. */
  of(holder: LeaseHolder): number[] {
    const ids: number[] = [];
    for (const { id, member, session } of this.#open.values()) {
      if ('session' in holder ? session?.name === holder.session : member.id === holder.member) ids.push(id);
    }
    return ids;
  }

  #accept(lease: OpenLease, latencyMs: number | undefined, now: number): void {
    const { member, isProbe } = lease;
    lease.accepted = true;
    if (!isProbe) {
      member.pendingUses -= 1;
      member.uses += 1;
      const { maxUsesPerMember } = this.#members.settings.rotation;
      if (maxUsesPerMember > 0) member.source.usedUp.add(1 / maxUsesPerMember, now);
    }
    this.#members.recordSuccess(member, latencyMs, now);
    for (const observer of this.#members.observers) observer.memberUsed(member, isProbe ? 0 : 1);
    if (lease.session !== undefined) this.#confirm(lease.session, lease, now);
  }

  /**
   * Records that the member of the lease accepted an attempt of the session. If the session has another member, it
   * moves to the member of the lease.
   *
   * Exception: the lease belongs to a hedge, and the session's own member has not failed. The session then does not
   * move, and stores the member of the lease as `fallback`.
   */
  #confirm(session: Session, { member, leasedAt, isHedge }: OpenLease, now: number): void {
    if (session.member === member.id) {
      session.confirmedAt = now;
      session.memberFailed = false;
    } else if (isHedge && !session.memberFailed) {
      session.fallback = member.id;
    } else if (session.confirmedAt <= leasedAt) {
      // since this lease began, the session's member has not changed and has accepted no attempt
      this.#sessions.bind(session, { member: member.id, reason: 'failed-over' }, now);
    }
  }

  /**
   * Records that an attempt through the session's own member failed. If a hedge has won through another member, the session moves
   * to that member.
   */
  #leaveFailed(session: Session, now: number): void {
    session.memberFailed = true;
    const fallback = this.#members.find(session.fallback);
    if (fallback !== undefined)
      this.#sessions.bind(session, { member: fallback.id, reason: 'failed-over' }, now);
  }

  #end(lease: OpenLease, report: Exclude<LeaseReport, { kind: 'accepted' }>, now: number): void {
    const { id, member, session, isProbe, accepted } = lease;
    this.#open.delete(id);
    member.openLeases -= 1;
    member.source.openLeases -= 1;
    if (!accepted && !isProbe) member.pendingUses -= 1;
    if (member.trialLease === id) member.trialLease = undefined;
    if (session !== undefined) {
      session.openLeases -= 1;
      session.usedAt = now;
      for (const observer of this.#sessions.observers) observer.sessionUsed(session, 0);
    }
    for (const observer of this.#members.observers) observer.memberUsed(member, 0);
    if (report.kind === 'failed') {
      this.#blame(lease, report, now);
      const isFault = report.blame === 'member' || report.blame === 'member-for-target';
      if (isFault && session?.member === member.id) this.#leaveFailed(session, now);
    } else {
      if (report.answered === true) {
        this.#members.recordAnswer(member, lease.client, now);
        for (const observer of this.#members.observers) observer.memberAnswered(member, lease.client);
      }
      if (report.cut !== false) this.#blame(lease, { blame: report.cut, fault: 'member-cut' }, now);
    }
    if (member.phase.name !== 'left') this.#members.leaseEnded(member, now);
  }

  #blame(
    { member, leasedAt, client, targetHost, isProbe }: OpenLease,
    { blame, fault }: { readonly blame: Blame; readonly fault: FaultCode },
    now: number,
  ): void {
    if (blame === 'member') this.#faults.recordFault(member, { fault, leasedAt }, now);
    if (blame !== 'member-for-target' && blame !== 'unclear') return;
    if (isProbe) {
      this.#faults.recordUndecidedProbe(member, { fault, leasedAt }, now);
      return;
    }
    const compared = blame === 'member-for-target';
    const cut = fault === 'member-cut';
    this.#faults.recordSuspicion(member, { fault, leasedAt, client, host: targetHost, compared, cut }, now);
  }
}

function describeLease(
  { id, member, session, leasedAt }: OpenLease,
  waitedMs: number,
  isReady: boolean,
): Lease {
  const lease: { -readonly [Key in keyof Lease]: Lease[Key] } = {
    id,
    member: member.id,
    source: member.source.name,
    protocol: member.protocol,
    host: member.host,
    port: member.port,
    waitedMs,
    doubtful: !isReady || member.lastSuccessAt === undefined,
  };
  if (member.exitIp !== undefined) lease.exitIp = member.exitIp;
  if (member.login !== undefined) lease.login = member.login;
  if (!member.endIsAssumed) lease.remainingMs = member.endsAt - leasedAt;
  if (session !== undefined) lease.session = session.name;
  return lease;
}
