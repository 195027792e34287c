/**
 * Copies of the pool's state: frozen ones with the names of the admin API and durations in seconds, and the members as plain JSON, which
 * survives a restart. Its moments are epoch ms, because monotonic time ends with the process. Sessions have a journal (sessions.ts).
 */
import type { Clock } from '../core/clock.ts';
import { WEEK_MS } from '../core/duration.ts';
import type { Member, MemberPhaseName, PoolSource } from './member.ts';
import type { Members } from './members.ts';
import type { Session } from './sessions.ts';
import type { PoolSnapshot } from './stored-state.ts';

export type MemberView = NonNullable<ReturnType<typeof memberView>>;

export interface SourceCounts extends Record<Exclude<MemberPhaseName, 'left'>, number> {
  readonly source: string;
  readonly size: number;
  readonly openTunnels: number;
  readonly used: number;
  readonly blocked: string | null;
}

export function memberView(member: Member, now: number, bannedBy: readonly string[] = []) {
  const state = member.phase.name;
  if (state === 'left') return undefined;
  return Object.freeze({
    id: member.id,
    source: member.source.name,
    protocol: member.protocol,
    host: member.host,
    port: member.port,
    location: member.location.text === '' ? null : member.location.text,
    exitIp: member.exitIp ?? null,
    state,
    remainingSeconds: member.endIsAssumed ? null : tenths((member.endsAt - now) / 1000),
    openTunnels: member.openLeases,
    uses: member.uses,
    faults: member.health.score,
    latencyMs: member.latencyMs === undefined ? null : Math.round(member.latencyMs),
    bannedBy,
    facts: member.facts ?? {},
  });
}

export function assignedMember(member: Member, now: number) {
  return Object.freeze({
    id: member.id,
    source: member.source.name,
    protocol: member.protocol,
    location: member.location.text,
    uses: member.uses,
    faults: member.health.score,
    remainingMs: member.endIsAssumed ? undefined : member.endsAt - now,
    /** Before its first success: since it joined. */
    sinceSuccessMs: now - (member.lastSuccessAt ?? member.joinedAt),
  });
}

export function sessionView(session: Session, member: string | undefined, now: number) {
  const idleMs = session.openLeases > 0 ? 0 : now - session.usedAt;
  return Object.freeze({
    id: session.name,
    member: member ?? null,
    idleSeconds: tenths(idleMs / 1000),
    expiresInSeconds: tenths((session.ttlMs - idleMs) / 1000),
    uses: session.uses,
  });
}

export function sourceCounts(source: PoolSource): SourceCounts {
  const { left: _, ...counts } = source.counts;
  return {
    source: source.name,
    size: source.options.size,
    ...counts,
    openTunnels: source.openLeases,
    used: [...source.members].filter(({ uses, drawnBy }) => uses > 0 && drawnBy === undefined).length,
    blocked: source.blockedReason ?? null,
  };
}

function tenths(seconds: number): number {
  return Math.max(0, Math.round(seconds * 10) / 10);
}

/** Limits the effect of a damaged file. */
const MAX_LIFE_MS = WEEK_MS;

/** Without draining members, whose tunnels end with the process, and without members with a password. */
export function takeSnapshot(clock: Clock, members: Members): PoolSnapshot {
  const at = clock.now();
  const now = clock.monotonic();
  const wall = (monotonicAt: number) => Math.round(at + monotonicAt - now);
  const staying = [...members.byId.values()].filter(
    ({ phase, login }) => phase.name !== 'draining' && login === undefined,
  );
  return {
    version: 1,
    at,
    members: staying.map((member) => memberRecord(member, wall)),
    remembered: [...members.departed]
      .filter(([, { untilAt }]) => untilAt > now)
      .map(([key, { health, untilAt, barred }]) => ({ key, health, untilAt: wall(untilAt), barred })),
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
    members.rememberDeparted(key, { ...departed, untilAt: monotonic(departed.untilAt) }, now);
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
