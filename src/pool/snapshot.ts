/**
 * Converts the members to plain JSON and back, so that they survive a restart. Sessions have a journal (session-journal.ts).
 *
 * Moments in a snapshot are epoch ms, because monotonic time ends with the process.
 */

import { z } from 'zod';
import type { Clock } from '../core/clock.ts';
import { WEEK_MS } from '../core/duration.ts';
import { FAULTS, type FaultCode } from '../core/faults.ts';
import { MEMBER_PROTOCOLS } from '../core/protocol.ts';
import type { Member } from './member.ts';
import type { MemberIntake } from './member-intake.ts';
import type { Members } from './members.ts';

/** Maximum remaining life of a restored member. Limits what a damaged file can claim. */
const MAX_LIFE_MS = WEEK_MS;

const moment = z.number();
const count = z.int().nonnegative();
const durationMs = z.number().nonnegative();

const history = {
  bans: z.array(z.string()),
  health: z.object({ inRow: z.number().nonnegative(), rests: count }),
};

const memberSchema = z.object({
  ...history,
  id: z.string().min(1),
  source: z.string(),
  protocol: z.enum(MEMBER_PROTOCOLS),
  host: z.string().min(1),
  port: z.int().min(1).max(65_535),
  joinedAt: moment,
  endsAt: moment,
  assumed: z.boolean(),
  unproven: z.boolean(),
  exitIp: z.string().optional(),
  location: z.string().optional(),
  facts: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])).optional(),
  uses: count,
  latencyMs: durationMs.optional(),
  rest: z
    .object({ untilAt: moment, fault: z.custom<FaultCode>(isFaultCode), replaced: z.boolean().default(true) })
    .optional(),
});

const departedSchema = z.object({ ...history, key: z.string(), untilAt: moment, barred: z.boolean() });

const snapshotSchema = z.object({
  version: z.literal(1),
  at: moment,
  members: z.array(memberSchema),
  remembered: z.array(departedSchema),
});

/** What a restart keeps of the members. */
export type PoolSnapshot = z.infer<typeof snapshotSchema>;

interface SnapshotParts {
  readonly clock: Clock;
  readonly members: Members;
}

/** Decodes a snapshot; undefined if `value` is not a valid one. */
export function decodeSnapshot(value: unknown): PoolSnapshot | undefined {
  const decoded = snapshotSchema.safeParse(value);
  return decoded.success ? decoded.data : undefined;
}

/**
 * Omits draining members, because their tunnels end with the process, and members with a password, because the file must not
 * contain a password.
 */
export function takeSnapshot({ clock, members }: SnapshotParts): PoolSnapshot {
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
    remembered: [...members.departed.entries(now)].map(([key, { bans, health, untilAt, barred }]) => ({
      key,
      bans: [...bans],
      health,
      untilAt: wall(untilAt),
      barred,
    })),
  };
}

/**
 * Restores the members and departed members that have not expired since, if their source is still configured.
 *
 * @param passedMs - time since the snapshot; by default, the wall clock measures it. The default is at least 0, so that a clock
 * that was set back does not prolong any life.
 */
export function restoreSnapshot(
  { clock, members, intake }: SnapshotParts & { readonly intake: MemberIntake },
  snapshot: PoolSnapshot,
  passedMs = Math.max(0, clock.now() - snapshot.at),
): void {
  const now = clock.monotonic();
  const monotonic = (wallAt: number) => now + Math.min(wallAt - snapshot.at, MAX_LIFE_MS) - passedMs;
  for (const { key, ...departed } of snapshot.remembered) {
    members.departed.add(key, { ...departed, untilAt: monotonic(departed.untilAt) }, now);
  }
  for (const { source: sourceName, assumed, rest, latencyMs, ...record } of snapshot.members) {
    const source = members.sources.get(sourceName);
    if (source === undefined) continue;
    const restored = {
      ...record,
      joinedAt: monotonic(record.joinedAt),
      endsAt: monotonic(record.endsAt),
      endIsAssumed: assumed,
      latencyMs,
      quarantine: rest && { ...rest, untilAt: monotonic(rest.untilAt) },
    };
    intake.restore(source, restored, now);
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
    bans: [...(member.bans?.keys() ?? [])],
    health: member.health.record(),
    exitIp: member.exitIp,
    location: location.text === '' ? undefined : location.text,
    facts: member.facts,
    latencyMs: member.latencyMs,
    rest:
      phase.name === 'quarantined'
        ? { untilAt: wall(phase.untilAt), fault: phase.fault, replaced: phase.replaced }
        : undefined,
  };
}

function isFaultCode(value: unknown): boolean {
  return typeof value === 'string' && Object.hasOwn(FAULTS, value);
}
