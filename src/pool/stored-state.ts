/**
 * Decodes the members and sessions in the files of the last run. Workers do not import this module, so that they do not load zod.
 */
import { z } from 'zod';
import { HOUR_MS, WEEK_MS } from '../core/duration.ts';
import { FAULTS, type FaultCode } from '../core/faults.ts';
import { MEMBER_PROTOCOLS } from '../core/protocol.ts';

/** Limits the effect of a damaged file. */
const MAX_TTL_MS = WEEK_MS;

/** The longest host name, and an exit with room for a made name. */
const MAX_NAME = 300;

const moment = z.number();
const count = z.int().nonnegative();
const durationMs = z.number().nonnegative();

const health = z.object({ inRow: z.number().nonnegative(), rests: count });

const memberSchema = z.object({
  health,
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
  drawnBy: z.string().optional(),
  uses: count,
  latencyMs: durationMs.optional(),
  rest: z
    .object({ untilAt: moment, fault: z.custom<FaultCode>(isFaultCode), replaced: z.boolean().default(true) })
    .optional(),
});

const departedSchema = z.object({ health, key: z.string(), untilAt: moment, barred: z.boolean() });

const banSchema = z.object({
  site: z.string().max(MAX_NAME),
  exit: z.string().max(MAX_NAME),
  source: z.string(),
  user: z.string().optional(),
  sinceAt: moment,
  untilAt: moment,
  forMs: durationMs.max(MAX_TTL_MS),
  spacingMs: durationMs.max(HOUR_MS),
});

const snapshotSchema = z.object({
  version: z.literal(1),
  at: moment,
  members: z.array(memberSchema),
  remembered: z.array(departedSchema),
  bans: z.array(banSchema).default([]),
});

export type PoolSnapshot = z.infer<typeof snapshotSchema>;

const sessionSchema = z.object({
  user: z.string(),
  address: z.string(),
  member: z.string().optional(),
  ttlMs: durationMs.max(MAX_TTL_MS),
  idleMs: durationMs,
  uses: z.int().nonnegative(),
});

export type SessionRecord = z.infer<typeof sessionSchema>;

export interface StoredSession {
  readonly record: SessionRecord;
  readonly ageMs: number;
}

export function decodeSnapshot(value: unknown): PoolSnapshot | undefined {
  const decoded = snapshotSchema.safeParse(value);
  return decoded.success ? decoded.data : undefined;
}

export function* decodeSessions(
  found: Iterable<readonly [name: string, { readonly value: unknown; readonly ageMs: number }]>,
): Generator<readonly [name: string, StoredSession]> {
  for (const [name, { value, ageMs }] of found) {
    const { success, data } = sessionSchema.safeParse(value);
    if (success) yield [name, { record: data, ageMs }];
  }
}

function isFaultCode(value: unknown): boolean {
  return typeof value === 'string' && Object.hasOwn(FAULTS, value);
}
