/** The open leases: what each holds of its member, source and session, from the moment it is granted until it ends. */
import type { Lease } from './lease.ts';
import type { Member } from './member.ts';
import type { Session } from './sessions.ts';

/** One open lease, from the pool's side. */
export interface OpenLease {
  readonly id: number;
  readonly member: Member;
  readonly session: Session | undefined;
  readonly takenAt: number;
  /** To find out whether the member works: no client's use. */
  readonly probe: boolean;
  accepted: boolean;
}

/** What a lease is granted for. */
export interface Grant {
  readonly now: number;
  readonly waitedMs: number;
  readonly session: Session | undefined;
  readonly probe: boolean;
}

/** Names one session or one member. */
export type Holder = { readonly session: string } | { readonly member: string };

/** All leases that have been given and not ended. */
export class OpenLeases {
  readonly #loans = new Map<number, OpenLease>();
  #lastId = 0;

  find(id: number): OpenLease | undefined {
    return this.#loans.get(id);
  }

  /** Lends the member. Whoever calls this puts the member into its new berth. */
  grant(member: Member, { now, waitedMs, session, probe }: Grant): Lease {
    this.#lastId += 1;
    const id = this.#lastId;
    member.open += 1;
    member.source.open += 1;
    if (!probe) member.pending += 1;
    const certain = member.phase.name === 'ready';
    if (!certain || probe) member.trial = id;
    if (session !== undefined) {
      session.open += 1;
      session.uses += 1;
    }
    this.#loans.set(id, { id, member, session, takenAt: now, probe, accepted: false });
    const lease: { -readonly [Key in keyof Lease]: Lease[Key] } = {
      id,
      member: member.id,
      source: member.source.name,
      protocol: member.protocol,
      host: member.host,
      port: member.port,
      waitedMs,
      doubtful: !certain || member.provenAt === undefined,
    };
    if (member.exitIp !== undefined) lease.exitIp = member.exitIp;
    if (!member.assumed) lease.remainingMs = member.endsAt - now;
    if (session !== undefined) lease.session = session.name;
    return lease;
  }

  /** Its attempt was accepted: it counts as a use of the member from now on. */
  accept(loan: OpenLease): void {
    loan.accepted = true;
    if (loan.probe) return;
    loan.member.pending -= 1;
    loan.member.uses += 1;
  }

  end(loan: OpenLease, now: number): void {
    const { member, session } = loan;
    this.#loans.delete(loan.id);
    member.open -= 1;
    member.source.open -= 1;
    if (!loan.accepted && !loan.probe) member.pending -= 1;
    if (member.trial === loan.id) member.trial = undefined;
    if (session === undefined) return;
    session.open -= 1;
    session.usedAt = now;
  }

  /** Ids of the leases that a session or a member has open. Walks all of them. */
  of(holder: Holder): number[] {
    const ids: number[] = [];
    for (const { id, member, session } of this.#loans.values()) {
      if ('session' in holder ? session?.name === holder.session : member.id === holder.member) ids.push(id);
    }
    return ids;
  }
}
