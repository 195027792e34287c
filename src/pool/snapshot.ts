/**
 * The members as plain JSON, which survives a restart. Its moments are epoch ms, because monotonic time ends with the process.
 * Sessions have a journal (sessions.ts).
 */
import type { Clock } from '../core/clock.ts';
import { WEEK_MS } from '../core/duration.ts';
import type { Member } from './member.ts';
import type { Members } from './members.ts';
import type { PoolSnapshot } from './stored-state.ts';

/** Limits the effect of a damaged file. */
const MAX_LIFE_MS = WEEK_MS;

/** Without draining members, whose tunnels end with the process, and without members with a password. */
export function takeSnapshot(clock: Clock, members: Members): PoolSnapshot {
  const at = clock.now();
  const now = clock.monotonic();
  const wall = (monotonicAt: number) => Math.round(at + monotonicAt - now);
  const staying = [...members.all()].filter(
    ({ phase, login }) => phase.name !== 'draining' && login === undefined,
  );
  return {
    version: 1,
    at,
    members: staying.map((member) => memberRecord(member, wall)),
    remembered: [...members.departed.entries(now)].map(([key, { health, untilAt, barred }]) => ({
      key,
      health,
      untilAt: wall(untilAt),
      barred,
    })),
    bans: [...members.sites.bans()].map((ban) => ({
      ...ban,
      sinceAt: wall(ban.sinceAt),
      untilAt: wall(ban.untilAt),
    })),
  };
}

/** Omits what has expired in the meantime (`passedMs`) and what has no source any more. */
export function restoreSnapshot(
  members: Members,
  snapshot: PoolSnapshot,
  passedMs: number,
  now: number,
): void {
  const monotonic = (wallAt: number) => now + Math.min(wallAt - snapshot.at, MAX_LIFE_MS) - passedMs;
  for (const { key, ...departed } of snapshot.remembered) {
    members.departed.add(key, { ...departed, untilAt: monotonic(departed.untilAt) }, now);
  }
  for (const ban of snapshot.bans) {
    const untilAt = monotonic(ban.untilAt);
    if (untilAt > now) members.sites.adopt({ ...ban, sinceAt: monotonic(ban.sinceAt), untilAt });
  }
  for (const stored of snapshot.members) {
    const source = members.sources.get(stored.source);
    if (source === undefined) continue;
    const rest = stored.rest && { ...stored.rest, untilAt: monotonic(stored.rest.untilAt) };
    const [joinedAt, endsAt] = [monotonic(stored.joinedAt), monotonic(stored.endsAt)];
    members.restore(source, { ...stored, joinedAt, endsAt, rest }, now);
  }
}

function memberRecord(
  member: Member,
  wall: (monotonicAt: number) => number,
): PoolSnapshot['members'][number] {
  const { phase, location } = member;
  return {
    id: member.id,
    source: member.source.name,
    protocol: member.protocol,
    host: member.host,
    port: member.port,
    joinedAt: wall(member.joinedAt),
    endsAt: wall(member.endsAt),
    assumed: member.endIsAssumed,
    unproven: phase.name === 'joining',
    uses: member.uses,
    health: member.health.snapshot(),
    exitIp: member.exitIp,
    location: location.text === '' ? undefined : location.text,
    facts: member.facts,
    drawnBy: member.drawnBy,
    latencyMs: member.latencyMs,
    rest:
      phase.name === 'quarantined'
        ? { untilAt: wall(phase.untilAt), fault: phase.fault, replaced: phase.replaced }
        : undefined,
  };
}
