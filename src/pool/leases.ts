/**
 * Leases: grants members to requests, and applies the reports on the granted leases to member, source and session.
 *
 * It owns the open leases and the counters that depend on them.
 */
import type { Lease, LeaseReport } from './lease.ts';
import type { Member } from './member.ts';
import type { Members } from './members.ts';
import type { Session } from './session.ts';
import type { Sessions } from './sessions.ts';

interface OpenLease {
  readonly id: number;
  readonly member: Member;
  readonly session: Session | undefined;
  readonly leasedAt: number;
  readonly isProbe: boolean;
  accepted: boolean;
}

/** What a lease is granted for. */
export interface Grant {
  readonly now: number;
  readonly waitedMs: number;
  readonly session: Session | undefined;
  /** A probe tests the member. It is no client's use and no demand. */
  readonly isProbe: boolean;
}

/** Names one session, or one member by id. */
export type LeaseHolder = { readonly session: string } | { readonly member: string };

/** All open leases. */
export class Leases {
  readonly #members: Members;
  readonly #sessions: Sessions;
  readonly #open = new Map<number, OpenLease>();
  #lastId = 0;

  constructor(members: Members, sessions: Sessions) {
    this.#members = members;
    this.#sessions = sessions;
  }

  grant(member: Member, { now, waitedMs, session, isProbe }: Grant): Lease {
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
    }
    this.#open.set(id, { id, member, session, leasedAt: now, isProbe, accepted: false });
    if (isProbe) this.#members.index.update(member, now);
    else this.#members.index.leased(member, now);
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
    if (!member.endIsAssumed) lease.remainingMs = member.endsAt - now;
    if (session !== undefined) lease.session = session.name;
    return lease;
  }

  /** @returns false when the lease is not open. */
  report(report: LeaseReport, now: number): boolean {
    const lease = this.#open.get(report.lease);
    if (lease === undefined) return false;
    if (report.kind !== 'accepted') this.#end(lease, report, now);
    else if (!lease.accepted) this.#accept(lease, report.latencyMs, now);
    return true;
  }

  /** Ids of the open leases of a session or a member. Walks through all open leases. */
  of(holder: LeaseHolder): number[] {
    const ids: number[] = [];
    for (const { id, member, session } of this.#open.values()) {
      if ('session' in holder ? session?.name === holder.session : member.id === holder.member) ids.push(id);
    }
    return ids;
  }

  #accept(lease: OpenLease, latencyMs: number | undefined, now: number): void {
    const { member, session, leasedAt, isProbe } = lease;
    lease.accepted = true;
    if (!isProbe) {
      member.pendingUses -= 1;
      member.uses += 1;
      const { maxUsesPerMember } = this.#members.settings.rotation;
      if (maxUsesPerMember > 0) member.source.usedUp.add(1 / maxUsesPerMember, now);
    }
    this.#members.recordSuccess(member, latencyMs, now);
    if (session === undefined) return;
    if (session.member === member.id) session.confirmedAt = now;
    // The session's member failed or was slower, and no other attempt has confirmed a member since this lease began.
    else if (session.confirmedAt <= leasedAt) this.#sessions.bind(session, member.id, 'failed-over', now);
  }

  #end(lease: OpenLease, report: Exclude<LeaseReport, { kind: 'accepted' }>, now: number): void {
    const { id, member, session, leasedAt, isProbe, accepted } = lease;
    this.#open.delete(id);
    member.openLeases -= 1;
    member.source.openLeases -= 1;
    if (!accepted && !isProbe) member.pendingUses -= 1;
    if (member.trialLease === id) member.trialLease = undefined;
    if (session !== undefined) {
      session.openLeases -= 1;
      session.usedAt = now;
    }
    if (report.kind === 'failed') {
      const { blame, fault } = report;
      const half = blame === 'half-member';
      if (half || blame === 'member') this.#members.recordFault(member, { half, fault, leasedAt }, now);
    } else if (report.cut) {
      this.#members.recordFault(member, { half: true, fault: 'member-cut', leasedAt }, now);
    } else if (accepted) member.health.completed();
    if (member.phase.name !== 'left') this.#members.leaseEnded(member, now);
  }
}
