/** Describes members, sessions and sources for other replicas. */
import type { Member, PoolSource } from './member.ts';
import type { Departure } from './member-phase.ts';
import type { Session } from './session.ts';
import type {
  MemberQuarantine,
  PoolChange,
  Restriction,
  SharedMember,
  SharedSession,
} from './shared-member.ts';

export function describeMember(member: Member): SharedMember {
  const { id, source, protocol, host, port, location, joinedAt, endsAt, endIsAssumed, exitIp, login, facts } =
    member;
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
  };
}

export function quarantineOf({ phase, health }: Member): MemberQuarantine | undefined {
  if (phase.name !== 'quarantined') return undefined;
  const { untilAt, fault, replaced } = phase;
  return { untilAt, fault, replaced, health: health.record() };
}

/** @param unsharedUses - the leases that the next beat reports; the described `uses` exclude them. */
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
