/**
 * The pool as plain JSON, and back: what a restart keeps.
 *
 * Moments are epoch ms here, for monotonic time does not outlive a process.
 */
import { z } from 'zod';
import type { Clock } from '../core/clock.ts';
import { FAULTS, type FaultCode } from '../core/faults.ts';
import { MEMBER_PROTOCOLS } from '../core/protocol.ts';
import type { Member } from './member.ts';
import type { Roster } from './members.ts';
import { Session, type Sessions } from './sessions.ts';

/** No lifetime of the service comes near it: what a damaged file says beyond that is not believed. */
const MAX_LIFE_MS = 7 * 24 * 3600 * 1000;

const address = {
  source: z.string(),
  protocol: z.enum(MEMBER_PROTOCOLS),
  host: z.string(),
  port: z.int().min(1).max(65_535),
};

const past = {
  bans: z.array(z.string()),
  health: z.object({ inRow: z.number(), halves: z.number(), rests: z.number() }),
};

const memberSchema = z.object({
  ...address,
  ...past,
  id: z.string(),
  joinedAt: z.number(),
  endsAt: z.number(),
  /** `endsAt` is the source's assumption. */
  assumed: z.boolean(),
  unproven: z.boolean(),
  exitIp: z.string().optional(),
  location: z.string().optional(),
  facts: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])).optional(),
  uses: z.number(),
  latencyMs: z.number().optional(),
  /** It was in quarantine until then, for this. */
  rest: z.object({ untilAt: z.number(), fault: z.custom<FaultCode>(isFaultCode) }).optional(),
});

const sessionSchema = z.object({
  name: z.string(),
  member: z.string().optional(),
  ttlMs: z.number(),
  usedAt: z.number(),
  uses: z.number(),
});

const memorySchema = z.object({ ...past, key: z.string(), untilAt: z.number(), barred: z.boolean() });

const snapshotSchema = z.object({
  version: z.literal(1),
  /** When it was taken. */
  at: z.number(),
  members: z.array(memberSchema),
  sessions: z.array(sessionSchema),
  remembered: z.array(memorySchema),
});

/** What a restart keeps of a pool. */
export type PoolSnapshot = z.infer<typeof snapshotSchema>;
type MemberSnapshot = z.infer<typeof memberSchema>;

/** What a pool is made of, as far as a snapshot goes. */
export interface Kept {
  readonly clock: Clock;
  readonly roster: Roster;
  readonly sessions: Sessions;
}

/** What came back of a snapshot. */
export interface Restored {
  readonly members: number;
  readonly sessions: number;
}

/** The snapshot in `value`, or undefined when it is none. */
export function decodeSnapshot(value: unknown): PoolSnapshot | undefined {
  const decoded = snapshotSchema.safeParse(value);
  return decoded.success ? decoded.data : undefined;
}

/** Members that drain are left out: nothing of theirs outlives the process. */
export function takeSnapshot({ clock, roster, sessions }: Kept): PoolSnapshot {
  const at = clock.now();
  const now = clock.monotonic();
  const wall = (monotonicAt: number) => Math.round(at + monotonicAt - now);
  const staying = [...roster.members()].filter(({ phase }) => phase.name !== 'draining');
  return {
    version: 1,
    at,
    members: staying.map((member) => memberSnapshot(member, wall)),
    sessions: [...sessions.all()].map(({ name, member, ttlMs, usedAt, open, uses }) => ({
      name,
      ...(member === undefined ? {} : { member }),
      ttlMs,
      usedAt: wall(open > 0 ? now : usedAt),
      uses,
    })),
    remembered: [...roster.remembered.entries(now)].map(([key, memory]) => ({
      ...memory,
      key,
      bans: [...memory.bans],
      untilAt: wall(memory.untilAt),
    })),
  };
}

/**
 * Brings back what has not expired meanwhile, of sources that still exist.
 *
 * @param passedMs - since it was taken; left out, what the wall clock says, and never less than none: a clock that was set
 * back gives nobody a longer life than it had.
 */
export function restoreSnapshot(
  { clock, roster, sessions }: Kept,
  snapshot: PoolSnapshot,
  passedMs = Math.max(0, clock.now() - snapshot.at),
): Restored {
  const now = clock.monotonic();
  const monotonic = (wallAt: number) => now + Math.min(wallAt - snapshot.at, MAX_LIFE_MS) - passedMs;
  for (const { key, ...memory } of snapshot.remembered) {
    roster.remembered.keep(key, { ...memory, untilAt: monotonic(memory.untilAt) }, now);
  }
  for (const member of snapshot.members) readmit(roster, member, { now, monotonic });
  for (const { name, member, ttlMs, usedAt, uses } of snapshot.sessions) {
    if (sessions.find(name) !== undefined || monotonic(usedAt) + ttlMs <= now) continue;
    const session = new Session(name, ttlMs, monotonic(usedAt));
    session.member = member;
    session.uses = uses;
    sessions.add(session);
  }
  return { members: roster.size, sessions: sessions.size };
}

function readmit(
  roster: Roster,
  entry: MemberSnapshot,
  time: { readonly now: number; readonly monotonic: (wallAt: number) => number },
): void {
  const source = roster.sources.get(entry.source);
  if (source === undefined) return;
  const { id, assumed, unproven, uses, latencyMs, bans, health, protocol, host, port } = entry;
  const offer = {
    protocol,
    host,
    port,
    unproven,
    endsAt: time.monotonic(entry.endsAt),
    ...(entry.exitIp === undefined ? {} : { exitIp: entry.exitIp }),
    ...(entry.location === undefined ? {} : { location: entry.location }),
    ...(entry.facts === undefined ? {} : { facts: entry.facts }),
  };
  const rest = entry.rest && { ...entry.rest, untilAt: time.monotonic(entry.rest.untilAt) };
  const joinedAt = time.monotonic(entry.joinedAt);
  roster.readmit(source, offer, { id, joinedAt, assumed, uses, latencyMs, bans, health, rest }, time.now);
}

function memberSnapshot(member: Member, wall: (monotonicAt: number) => number): MemberSnapshot {
  const { phase, exitIp, facts, latencyMs } = member;
  return {
    id: member.id,
    source: member.source.name,
    protocol: member.protocol,
    host: member.host,
    port: member.port,
    joinedAt: wall(member.joinedAt),
    endsAt: wall(member.endsAt),
    assumed: member.assumed,
    unproven: phase.name === 'joining',
    uses: member.uses,
    bans: [...(member.bans ?? [])],
    health: member.health.record(),
    ...(exitIp === undefined ? {} : { exitIp }),
    ...(member.place.text === '' ? {} : { location: member.place.text }),
    ...(facts === undefined ? {} : { facts }),
    ...(latencyMs === undefined ? {} : { latencyMs }),
    ...(phase.name === 'quarantined' ? { rest: { untilAt: wall(phase.untilAt), fault: phase.fault } } : {}),
  };
}

function isFaultCode(value: unknown): boolean {
  return typeof value === 'string' && Object.hasOwn(FAULTS, value);
}
