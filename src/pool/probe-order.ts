/** Which members the prober tries, and in which order. */
import type { Member } from './member.ts';
import type { Members } from './members.ts';

/**
 * The members to probe, most urgent first: unproven ones, then those whose quarantine is over, then ready ones without
 * a success for `staleMs`. Leaves out members that a lease is trying already.
 */
export function* membersToProbe(members: Members, now: number, staleMs: number): Generator<Member> {
  for (const { counts, members: ofSource } of members.sources.values()) {
    if (counts.joining === 0) continue;
    for (const member of ofSource) {
      if (member.phase.name === 'joining' && member.trialLease === undefined) yield member;
    }
  }
  for (const { quarantined } of members.sources.values()) {
    for (const member of quarantined) {
      if (member.phase.name !== 'quarantined' || member.trialLease !== undefined) continue;
      if (member.phase.untilAt <= now) yield member;
    }
  }
  if (staleMs === Number.POSITIVE_INFINITY) return;
  for (const member of members.all()) {
    if (member.phase.name !== 'ready' || member.trialLease !== undefined) continue;
    if ((member.lastSuccessAt ?? member.joinedAt) <= now - staleMs) yield member;
  }
}
