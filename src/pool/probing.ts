/** Which members need a probe: see `Pool.acquireForProbe`. */
import type { Member } from './member.ts';
import type { Roster } from './members.ts';

/** The most urgent first; none that is being tried already. */
export function* toProbe(roster: Roster, now: number, staleMs: number): Generator<Member> {
  for (const { counts, members } of roster.sources.values()) {
    if (counts.joining === 0) continue;
    for (const member of members) {
      if (member.phase.name === 'joining' && member.trial === undefined) yield member;
    }
  }
  for (const { quarantined } of roster.sources.values()) {
    for (const member of quarantined) {
      if (member.phase.name !== 'quarantined' || member.trial !== undefined) continue;
      if (member.phase.untilAt <= now) yield member;
    }
  }
  if (staleMs === Number.POSITIVE_INFINITY) return;
  for (const member of roster.members()) {
    if (member.phase.name !== 'ready' || member.trial !== undefined) continue;
    if ((member.provenAt ?? member.joinedAt) <= now - staleMs) yield member;
  }
}
