/** Frozen copies of the pool's state, with the names of the admin API. Durations are in seconds. */
import type { Member, MemberPhaseName, PoolSource } from './member.ts';
import type { Session } from './sessions.ts';

export type MemberView = NonNullable<ReturnType<typeof memberView>>;

export interface SourceCounts extends Record<Exclude<MemberPhaseName, 'left'>, number> {
  readonly source: string;
  readonly size: number;
  readonly openTunnels: number;
  readonly used: number;
  readonly blocked: string | null;
}

/** Undefined when it has left. */
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

/** @param member - if it is still in the pool. */
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
