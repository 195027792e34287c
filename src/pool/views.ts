/** The pool as others may see it: frozen copies in the words of the admin API. Durations are in seconds here. */
import type { MemberProtocol } from '../core/protocol.ts';
import type { Facts } from './drawn-member.ts';
import type { Member } from './member.ts';
import type { Session } from './sessions.ts';
import type { PoolSource } from './source.ts';

/** The phases of members that are there. */
export type MemberState = 'joining' | 'ready' | 'quarantined' | 'draining';

/** One member, as `/api/members` shows it. */
export interface MemberView {
  readonly id: string;
  readonly source: string;
  readonly protocol: MemberProtocol;
  readonly host: string;
  readonly port: number;
  readonly location: string | null;
  readonly exitIp: string | null;
  readonly state: MemberState;
  /** null when nobody knows. */
  readonly remainingSeconds: number | null;
  readonly openTunnels: number;
  readonly uses: number;
  /** In a row; a tunnel cut before its first byte counts half. */
  readonly faults: number;
  readonly latencyMs: number | null;
  readonly facts: Facts;
}

/** One session, as `/api/sessions` shows it. */
export interface SessionView {
  readonly id: string;
  /** null when it had to be left and no client has come since. */
  readonly member: string | null;
  readonly idleSeconds: number;
  readonly expiresInSeconds: number;
  readonly uses: number;
}

/** One source's members, counted. */
export interface SourceCounts extends Record<MemberState, number> {
  readonly source: string;
  /** Members wanted. */
  readonly size: number;
  readonly openTunnels: number;
  /** Of all these, members that have carried something. */
  readonly used: number;
  /** Why none of them may be used now; null when they may. */
  readonly blocked: string | null;
}

/** The member at monotonic `now`; undefined when it is gone. */
export function memberView(member: Member, now: number): MemberView | undefined {
  const state = member.phase.name;
  if (state === 'gone') return undefined;
  return Object.freeze({
    id: member.id,
    source: member.source.name,
    protocol: member.protocol,
    host: member.host,
    port: member.port,
    location: member.place.text === '' ? null : member.place.text,
    exitIp: member.exitIp ?? null,
    state,
    remainingSeconds: member.assumed ? null : tenths((member.endsAt - now) / 1000),
    openTunnels: member.open,
    uses: member.uses,
    faults: member.health.score,
    latencyMs: member.latencyMs === undefined ? null : Math.round(member.latencyMs),
    facts: member.facts ?? {},
  });
}

/** @param held - whether its member is still in the pool. */
export function sessionView(session: Session, held: boolean, now: number): SessionView {
  const idleMs = session.open > 0 ? 0 : now - session.usedAt;
  return Object.freeze({
    id: session.name,
    member: held ? (session.member ?? null) : null,
    idleSeconds: tenths(idleMs / 1000),
    expiresInSeconds: tenths((session.ttlMs - idleMs) / 1000),
    uses: session.uses,
  });
}

/** One walk over the members of the source. */
export function countsOf({ name, options, counts, members, open, blocked }: PoolSource): SourceCounts {
  const { joining, ready, quarantined, draining } = counts;
  const size = options.size;
  let used = 0;
  for (const member of members) if (member.uses > 0) used += 1;
  return {
    source: name,
    size,
    joining,
    ready,
    quarantined,
    draining,
    openTunnels: open,
    used,
    blocked: blocked ?? null,
  };
}

function tenths(seconds: number): number {
  return Math.max(0, Math.round(seconds * 10) / 10);
}
