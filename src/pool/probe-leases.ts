/** Chooses and leases the members to probe. Also chooses the members with which the prober compares suspected members. */
import type { ProbeLease } from './lease.ts';
import type { Leases } from './leases.ts';
import type { Member, PoolSource } from './member.ts';
import type { Members } from './members.ts';

interface ProbeTerms {
  readonly now: number;
  readonly limit: number;
  /**
   * A ready member needs a probe if it had no success for this time. Undefined if no check (`health.check`) is
   * configured.
   */
  readonly staleMs: number | undefined;
}

export function leaseForProbes(
  members: Members,
  leases: Leases,
  { now, limit, staleMs }: ProbeTerms,
): readonly ProbeLease[] {
  const granted: ProbeLease[] = [];
  for (const member of membersToProbe(members, now, staleMs)) {
    if (granted.length >= limit) break;
    const isNew = member.phase.name === 'joining';
    member.source.suspected.delete(member);
    granted.push({ ...leases.grantProbe(member, now), isNew });
  }
  return granted;
}

/**
 * The members to probe, most urgent first: unproven members, suspected members and, if a check is configured, members
 * whose quarantine has ended and then ready members without a success for `staleMs`. Omits members that a lease already
 * tests.
 * @param staleMs - undefined if no check is configured.
 */
function* membersToProbe(members: Members, now: number, staleMs: number | undefined): Generator<Member> {
  for (const { counts, members: ofSource } of members.sources.values()) {
    if (counts.joining === 0) continue;
    for (const member of ofSource) {
      if (member.phase.name === 'joining' && member.trialLease === undefined) yield member;
    }
  }
  for (const { suspected } of members.sources.values()) {
    for (const member of suspected) if (member.trialLease === undefined) yield member;
  }
  if (staleMs === undefined) return;
  for (const { quarantined } of members.sources.values()) {
    for (const member of quarantined) {
      if (member.phase.name !== 'quarantined' || member.trialLease !== undefined) continue;
      if (member.phase.untilAt <= now) yield member;
    }
  }
  for (const member of members.all()) {
    if (member.phase.name !== 'ready' || member.trialLease !== undefined) continue;
    if ((member.lastSuccessAt ?? member.joinedAt) <= now - staleMs) yield member;
  }
}

/**
 * Among the source's ready members, the one with the latest success; undefined if this success was more than `withinMs`
 * ago. Omits members that a lease already tests.
 */
export function memberThatWorked(source: PoolSource, now: number, withinMs: number): Member | undefined {
  let found: Member | undefined;
  let foundAt = now - withinMs;
  for (const member of source.members) {
    const { phase, trialLease, lastSuccessAt = Number.NEGATIVE_INFINITY } = member;
    if (phase.name !== 'ready' || trialLease !== undefined || lastSuccessAt < foundAt) continue;
    found = member;
    foundAt = lastSuccessAt;
  }
  return found;
}
