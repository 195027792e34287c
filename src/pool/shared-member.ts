/**
 * Members, sessions and changes in the form in which the replicas of one pool exchange them: plain data that can be sent as JSON.
 * A key with the value `undefined` may be absent. Moments are monotonic ms of the process that holds the data; the transport
 * between processes converts them.
 */
import type { FaultCode } from '../core/faults.ts';
import type { Demand, DrawnMember } from './drawn-member.ts';
import type { HealthSnapshot } from './health.ts';
import type { SessionOwner } from './lease.ts';
import type { Departure, LeaveReason, Member, PoolSource } from './member.ts';
import type { Session } from './session.ts';

/** The properties of a member that are the same in every replica. Its login is a secret. */
export interface SharedMember extends Omit<DrawnMember, 'endsAt'> {
  /** The id, assigned by the replica that drew the member. It is the same in every replica. */
  readonly id: string;
  readonly source: string;
  readonly joinedAt: number;
  readonly endsAt: number;
  /** True if the service reported no end of life. `endsAt` is then an assumption, and each success renews it. */
  readonly endIsAssumed: boolean;
}

export interface MemberQuarantine {
  readonly untilAt: number;
  readonly fault: FaultCode;
  /**
   * Whether a draw replaces the quarantined member. False if the member failed for only one client. If absent, a draw
   * replaces the member.
   */
  readonly replaced?: boolean | undefined;
  /** The counts of the member's faults so far. */
  readonly health: HealthSnapshot;
}

export interface SharedSession {
  readonly name: string;
  readonly owner: SessionOwner;
  /** The id of the session's member. If absent, the session gets a member at its next use. */
  readonly member?: string | undefined;
  readonly ttlMs: number;
  /** Moment of the last known use. The session ends `ttlMs` later. */
  readonly usedAt: number;
  readonly uses: number;
}

/** A change of the pool that all replicas apply. Idempotent. */
export type PoolChange =
  /**
   * A draw brought the member, for the first time or again. If two draws give different ends of life, the later end
   * applies. The change has no effect if the member was removed.
   */
  | { readonly kind: 'member.joined'; readonly member: SharedMember }
  | { readonly kind: 'member.quarantined'; readonly member: string; readonly quarantine: MemberQuarantine }
  /**
   * The member accepted an attempt, for the first time or after a quarantine. With `elsewhere`, the attempt was on another
   * machine, and the faults on this machine still count.
   */
  | {
      readonly kind: 'member.restored';
      readonly member: string;
      readonly elsewhere?: boolean | undefined;
    }
  /**
   * The member was removed before its end of life. Members that expire, or whose source was removed from the configuration, cause
   * no change.
   */
  | {
      readonly kind: 'member.left';
      readonly member: string;
      readonly reason: Exclude<LeaveReason, 'expired' | 'removed'>;
      readonly fault?: FaultCode | undefined;
      /** The member's uses in all replicas, as far as this replica knows. See `Member.uses`. */
      readonly uses?: number | undefined;
    }
  /** A client reported that the host bans the member or, with `lifted`, no longer bans it. */
  | {
      readonly kind: 'member.banned';
      readonly member: string;
      readonly host: string;
      readonly lifted: boolean;
    }
  /** The session got this member. A replica without the session creates it. */
  | { readonly kind: 'session.moved'; readonly session: SharedSession; readonly reason: string }
  /** A client, the operator or a limit ended the session. Sessions that end because they were idle cause no change. */
  | { readonly kind: 'session.ended'; readonly name: string }
  | MachineChange;

/** Changes that only replicas on the same machine exchange. */
type MachineChange =
  | Restriction
  /** The replica that probes members must probe this member. */
  | { readonly kind: 'member.suspected'; readonly member: string };

/** Tells the other replicas on a machine that a source is restricted, or whether the network of the machine is down. */
export type Restriction =
  /** Why clients may not use the members of a source, and the limit of open leases on all its members. */
  | {
      readonly kind: 'source.restricted';
      readonly source: string;
      readonly blockedReason?: string | undefined;
      readonly leaseLimit?: number | undefined;
    }
  /** Whether the network of the machine is down. While the network is down, faults of members do not count. */
  | { readonly kind: 'evictions.frozen'; readonly on: boolean };

export interface MemberActivity {
  readonly member: string;
  /** Number of client leases for which the member accepted an attempt since the last report. */
  readonly uses: number;
  readonly openLeases: number;
  /**
   * The client that received the most recent answer of a target through the member. Absent if no target answered since
   * the last report.
   */
  readonly answeredTo?: string | undefined;
  readonly latencyMs?: number | undefined;
  /**
   * The end of life that this replica estimates from the member's last success. Absent if the service gave an expiry.
   * Every replica uses the latest estimate of all replicas.
   */
  readonly endsAt?: number | undefined;
}

export interface SessionActivity {
  readonly session: string;
  /** Number of leases of the session since the last report. */
  readonly uses: number;
  readonly openLeases: number;
  /**
   * The moment of the session's last use, or the current moment while the session has an open lease. Every replica applies the
   * latest use.
   */
  readonly usedAt: number;
  readonly ttlMs: number;
}

export interface PoolActivity {
  /** Number of clients that wait for a member in this replica. */
  readonly waiting: number;
  /** Demand by source name. Omits sources without any demand so far, so every `lastWantedAt` is finite. */
  readonly demand: Readonly<Record<string, Demand>>;
  /** Members whose uses, open leases or latency changed since the last report. */
  readonly members: readonly MemberActivity[];
  /** Sessions used since the last report. A session with open leases is reported again from time to time. */
  readonly sessions: readonly SessionActivity[];
}

/**
 * Whether the change must stay on this machine, because it describes what only this machine has observed, or because it
 * contains the login of a member.
 */
export function staysOnMachine(change: PoolChange): boolean {
  switch (change.kind) {
    case 'source.restricted':
    case 'evictions.frozen':
    case 'member.suspected':
      return true;
    case 'member.joined':
      return change.member.login !== undefined;
    default:
      return false;
  }
}

export function describeMember(member: Member): SharedMember {
  const { id, source, protocol, host, port, location, joinedAt, endsAt, endIsAssumed } = member;
  const { exitIp, login, facts, drawnBy } = member;
  return {
    id,
    source: source.name,
    protocol,
    host,
    port,
    joinedAt,
    endsAt,
    endIsAssumed,
    unproven: member.phase.name === 'joining',
    ...(location.text !== '' && { location: location.text }),
    ...(exitIp !== undefined && { exitIp }),
    ...(login !== undefined && { login }),
    ...(facts !== undefined && { facts }),
    ...(drawnBy !== undefined && { drawnBy }),
  };
}

export function quarantineOf({ phase, health }: Member): MemberQuarantine | undefined {
  if (phase.name !== 'quarantined') return undefined;
  const { untilAt, fault, replaced } = phase;
  return { untilAt, fault, replaced, health: health.snapshot() };
}

/** @param unsharedUses - number of uses that this replica has not reported yet. `uses` of the result excludes them. */
export function describeSession(session: Session, unsharedUses: number): SharedSession {
  const { name, owner, member, ttlMs, usedAt, uses } = session;
  return { name, owner, ...(member !== undefined && { member }), ttlMs, usedAt, uses: uses - unsharedUses };
}

export function restrictionOf({ name, blockedReason, leaseLimit }: PoolSource): Restriction {
  return {
    kind: 'source.restricted',
    source: name,
    ...(blockedReason !== undefined && { blockedReason }),
    ...(leaseLimit !== Number.POSITIVE_INFINITY && { leaseLimit }),
  };
}

export function departureOf({ reason, fault }: Extract<PoolChange, { kind: 'member.left' }>): Departure {
  return { reason, ...(fault !== undefined && { fault }) };
}
