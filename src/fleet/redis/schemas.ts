/**
 * Decodes and validates the data in the store. Another version of noria may have written it. So decoding skips unknown
 * facts and replaces unknown fault codes.
 */
import { z } from 'zod';
import { FAULTS, type FaultCode } from '../../core/faults.ts';
import { MEMBER_PROTOCOLS } from '../../core/protocol.ts';
import type { SharedSession } from '../../pool/shared-member.ts';
import type { Beat, Fact, SharedState } from '../shared-pool.ts';

const isFaultCode = (text: string): text is FaultCode => Object.hasOwn(FAULTS, text);
const fault = z.string().transform((text): FaultCode => (isFaultCode(text) ? text : 'internal'));

const member = z.object({
  id: z.string(),
  source: z.string(),
  protocol: z.enum(MEMBER_PROTOCOLS),
  host: z.string(),
  port: z.number(),
  joinedAt: z.number(),
  endsAt: z.number(),
  endIsAssumed: z.boolean(),
  unproven: z.boolean(),
  exitIp: z.string().optional(),
  location: z.string().optional(),
  facts: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])).optional(),
  drawnBy: z.string().optional(),
});

const quarantine = z.object({
  untilAt: z.number(),
  fault,
  replaced: z.boolean().optional(),
  health: z.object({ inRow: z.number(), rests: z.number() }),
});

const session = z.object({
  name: z.string(),
  owner: z.object({ user: z.string(), address: z.string() }),
  member: z.string().optional(),
  ttlMs: z.number(),
  usedAt: z.number(),
  uses: z.number(),
});

const leaveReason = z.custom<Extract<Fact, { kind: 'member.left' }>['reason']>(
  (value) => typeof value === 'string',
);

const report = z.object({
  kind: z.literal('source.reported'),
  source: z.string(),
  quota: z.record(z.string(), z.number()),
  suspension: z
    .object({
      phase: z.enum(['paused', 'halted']),
      code: z.string(),
      summary: z.string(),
      advice: z.string(),
      untilAt: z.number().optional(),
      limitsConnections: z.boolean(),
    })
    .optional(),
});

const fact = z.discriminatedUnion('kind', [
  z.object({ kind: z.literal('member.joined'), member }),
  z.object({ kind: z.literal('member.quarantined'), member: z.string(), quarantine }),
  z.object({ kind: z.literal('member.restored'), member: z.string() }),
  z.object({
    kind: z.literal('member.left'),
    member: z.string(),
    reason: leaveReason,
    fault: fault.optional(),
    votesNeeded: z.number(),
  }),
  z.object({ kind: z.literal('member.banned'), member: z.string(), host: z.string(), lifted: z.boolean() }),
  z.object({ kind: z.literal('session.moved'), session, reason: z.string() }),
  z.object({ kind: z.literal('session.ended'), name: z.string() }),
  z.object({
    kind: z.literal('source.commanded'),
    source: z.string(),
    command: z.enum(['pause', 'resume', 'refill']),
  }),
  report,
]);

const state = z.object({
  members: z.array(
    z.object({
      member,
      drawnBy: z.string(),
      quarantine: quarantine.optional(),
      bans: z.array(z.string()),
      uses: z.number(),
      votes: z.array(z.string()),
      left: z.object({ reason: leaveReason, fault: fault.optional() }).optional(),
    }),
  ),
  sessions: z.array(session),
  paused: z.array(z.string()),
  resumed: z.array(z.string()).optional(),
  reports: z.array(report).optional(),
});

const beat = z.object({
  waiting: z.number(),
  demand: z.record(
    z.string(),
    z.object({
      waiting: z.number(),
      lastWantedAt: z.number(),
      usedUpPerSecond: z.number(),
      perSecond: z.number().optional(),
      held: z.number().optional(),
    }),
  ),
  members: z.array(
    z.object({
      member: z.string(),
      uses: z.number(),
      openLeases: z.number(),
      latencyMs: z.number().optional(),
      endsAt: z.number().optional(),
    }),
  ),
  sessions: z.array(
    z.object({
      session: z.string(),
      uses: z.number(),
      openLeases: z.number(),
      usedAt: z.number(),
      ttlMs: z.number(),
    }),
  ),
});

/** Returns the facts of one log entry. Omits facts of a kind that this version does not know. */
export function decodeFacts(text: string): Fact[] {
  const entries: unknown = JSON.parse(text);
  if (!Array.isArray(entries)) return [];
  return entries.flatMap((entry) => {
    const parsed = fact.safeParse(entry);
    return parsed.success ? [parsed.data] : [];
  });
}

/** @throws ZodError, SyntaxError if the snapshot is invalid. */
export function decodeState(text: string): SharedState {
  return state.parse(JSON.parse(text));
}

export function decodeSession(text: string): SharedSession | undefined {
  return text === '' ? undefined : session.safeParse(JSON.parse(text)).data;
}

export function decodeBeat(text: string): Beat | undefined {
  return beat.safeParse(JSON.parse(text)).data;
}

const replicaSchema = z.object({
  /** The id of the process. It tells two processes with the same replica name apart. */
  process: z.string(),
  version: z.string(),
  clients: z.number(),
  refusals: z
    .array(z.object({ source: z.string(), reason: z.string(), advice: z.string() }))
    .optional()
    .catch(undefined),
});

type ReplicaRecord = Readonly<z.infer<typeof replicaSchema>>;

export function decodeReplica(text: string): ReplicaRecord | undefined {
  return text === '' ? undefined : replicaSchema.safeParse(JSON.parse(text)).data;
}
