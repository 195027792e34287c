/**
 * What the replicas of one pool exchange: facts, beats and the state, as plain data that JSON can represent. The schemas
 * are the source of the types. They check what comes from a store, which other versions of noria and strangers may have
 * written.
 *
 * The name of each moment ends in `At`. Moments are monotonic ms of the process that holds the data; `shiftMoments`
 * converts them. `source` is a name of the configuration, or the key of the instance where replicas of several machines
 * share a pool.
 */
import { z } from 'zod';
import { FAULTS, type FaultCode } from '../core/faults.ts';
import { canonicalIp } from '../core/host-port.ts';
import { MEMBER_PROTOCOLS } from '../core/protocol.ts';
import type { Login } from '../core/secret.ts';
import type { Demand } from '../pool/drawn-member.ts';

/** About 300 years: a bound that no clock of a store reaches, and that arithmetic survives. */
const MAX_MOMENT_MS = 1e13;
const MAX_DURATION_MS = 400 * 86_400_000;
const MAX_COUNT = 1e12;
const MAX_ENTRIES = 100_000;

const isFaultCode = (text: string): text is FaultCode => Object.hasOwn(FAULTS, text);
const fault = z.string().transform((text): FaultCode => (isFaultCode(text) ? text : 'internal'));
/** Without control characters: these texts reach headers, terminals and logs. */
const text = (max: number) =>
  z
    .string()
    .max(max)
    .regex(/^\P{Cc}*$/u);
const name = text(500);
const moment = z.number().min(0).max(MAX_MOMENT_MS);
const duration = z.number().min(0).max(MAX_DURATION_MS);
const count = z.number().min(0).max(MAX_COUNT);
const id = z.string().regex(/^[a-z0-9]{8}$/);
const ip = z.string().refine((value) => canonicalIp(value) === value);

const member = z
  .object({
    /** Assigned by the replica that drew the member; the same in every replica. */
    id,
    source: name,
    protocol: z.enum(MEMBER_PROTOCOLS),
    host: ip,
    port: z.int().min(1).max(65_535),
    joinedAt: moment,
    endsAt: moment,
    /** True if the service reported no end of life. `endsAt` is then an assumption, and each success renews it. */
    endIsAssumed: z.boolean(),
    unproven: z.boolean(),
    exitIp: ip.optional(),
    location: name.optional(),
    facts: z
      .record(text(100), z.union([text(1_000), z.number(), z.boolean()]))
      .refine((facts) => Object.keys(facts).length <= 100)
      .optional(),
    drawnBy: name.optional(),
  })
  .refine(({ joinedAt, endsAt }) => endsAt - joinedAt <= MAX_DURATION_MS);

/** The properties of a member that are the same in every replica. Its login is a secret and never leaves the machine. */
export type SharedMember = Readonly<z.infer<typeof member>> & { readonly login?: Login | undefined };

const quarantine = z.object({
  untilAt: moment,
  fault,
  /** Whether a draw replaces the member. False if the member failed for only one client; absent means true. */
  replaced: z.boolean().optional(),
  health: z.object({ inRow: count, rests: count }),
});
export type MemberQuarantine = z.infer<typeof quarantine>;

const session = z.object({
  name,
  owner: z.object({ user: name, address: name }),
  /** The id of the session's member. If absent, the session gets a member at its next use. */
  member: id.optional(),
  ttlMs: duration,
  /** The last known use. The session ends `ttlMs` later. */
  usedAt: moment,
  uses: count,
  /** No other session and no rotating client uses the exit of the member. */
  exclusive: z.boolean().optional(),
});
export type SharedSession = Readonly<z.infer<typeof session>>;

const departure = {
  reason: z.enum(['failed', 'used-up', 'evicted']).catch('evicted'),
  fault: fault.optional(),
};
const suspension = z.object({
  phase: z.enum(['paused', 'halted']),
  code: name,
  summary: text(2_000),
  advice: text(2_000),
  untilAt: moment.optional(),
  limitsConnections: z.boolean(),
});
const report = z.object({
  kind: z.literal('source.reported'),
  source: name,
  quota: z.record(z.string(), z.number()),
  suspension: suspension.optional(),
});
const about = { source: name, member: id };

/** A site bans an exit. A ban with an end in the past has been lifted. The one with the later beginning wins. */
const siteBanned = z.object({
  kind: z.literal('site.banned'),
  source: name,
  site: name,
  exit: name,
  user: name.optional(),
  sinceAt: moment,
  untilAt: moment,
  forMs: duration,
  spacingMs: duration,
});
export type SharedBan = Readonly<z.infer<typeof siteBanned>>;

/** Every fact is idempotent. Of two facts about the same subject, for example the same session, the later one decides. */
const fact = z.discriminatedUnion('kind', [
  /** A draw brought the member, for the first time or again. `replacesEnd` decides which end of life applies. */
  z.object({ kind: z.literal('member.joined'), member }),
  z.object({ kind: z.literal('member.quarantined'), ...about, quarantine }),
  /**
   * The member accepted an attempt, for the first time or after a quarantine. With `elsewhere`, the attempt was on another
   * machine, and the faults on this machine still count.
   */
  z.object({ kind: z.literal('member.restored'), ...about, elsewhere: z.boolean().optional() }),
  /**
   * The replica removed the member before its end of life. With the reason `failed`, this is a vote: the replica that
   * receives it decides how many votes remove the member there.
   */
  z.object({ kind: z.literal('member.left'), ...about, ...departure, uses: count.optional() }),
  siteBanned,
  /**
   * The session moves to this member if `from` is still its member; otherwise the state does not change, and the replica
   * that published the fact receives the session of the state.
   */
  z.object({ kind: z.literal('session.moved'), session, from: id.optional(), reason: name }),
  z.object({ kind: z.literal('session.ended'), name }),
  /** An operator's command. The state contains each source's last `pause` or `resume`. */
  z.object({
    kind: z.literal('source.commanded'),
    source: name,
    command: z.enum(['pause', 'resume', 'refill']),
  }),
  report,
]);

/** Only replicas on the same machine exchange these facts, so no schema has to check them. */
export type MachineFact =
  /** The replica that probes members must probe this member. */
  { readonly kind: 'member.suspected'; readonly source: string; readonly member: string } | Restriction;

export type Restriction =
  /** Why clients may not use the members of a source, and the limit of open leases on all its members, or `Infinity`. */
  | {
      readonly kind: 'source.restricted';
      readonly source: string;
      readonly blockedReason?: string | undefined;
      readonly leaseLimit: number;
    }
  /** Whether the network of the machine is down. While the network is down, faults of members do not count. */
  | { readonly kind: 'evictions.frozen'; readonly on: boolean };

export type StoredFact = Readonly<z.infer<typeof fact>>;
export type Fact =
  | Exclude<StoredFact, { kind: 'member.joined' }>
  | { readonly kind: 'member.joined'; readonly member: SharedMember }
  | MachineFact;
export type FactOf<Kind extends Fact['kind']> = Extract<Fact, { readonly kind: Kind }>;
export type SourceCommand = FactOf<'source.commanded'>;
export type SourceReport = FactOf<'source.reported'>;

export interface LoggedFact {
  readonly by: string;
  readonly fact: Fact;
}

const record = z.object({
  member,
  drawnBy: name,
  quarantine: quarantine.optional(),
  /** The number of client leases that used the member, in all replicas together, according to their beats. */
  uses: count,
  votes: z.array(name).max(1_000),
  fault: fault.optional(),
  /** Why the member was removed, if it did not fail. The state contains it until its end of life. */
  left: z.object(departure).optional(),
});
export type MemberRecord = Omit<Readonly<z.infer<typeof record>>, 'member'> & {
  readonly member: SharedMember;
};

const sourceState = z.object({
  paused: z.array(name).max(1_000),
  resumed: z.array(name).max(1_000),
  reports: z.array(report).max(1_000),
});

/** The complete shared state. Beats are not part of it. Members and sessions that have ended may be missing. */
export interface SharedState extends Readonly<z.infer<typeof sourceState>> {
  readonly members: readonly MemberRecord[];
  readonly bans: readonly SharedBan[];
  /** All sessions, or those that this replica holds if the sessions stay in a store. */
  readonly sessions: readonly SharedSession[];
  /** Empty in a fleet, because such knowledge is valid for one machine only. */
  readonly restrictions: readonly Restriction[];
}

export interface MemberActivity {
  readonly member: string;
  /** Client leases for which the member accepted an attempt since the last beat. */
  readonly uses: number;
  readonly openLeases: number;
  /** The client that received the last answer of a target through the member since the last beat. */
  readonly answeredTo?: string | undefined;
  readonly latencyMs?: number | undefined;
  /** The end of life that this replica estimates from the member's last success. Absent if the service gave one. */
  readonly endsAt?: number | undefined;
}

export interface SessionActivity {
  readonly session: string;
  readonly uses: number;
  readonly openLeases: number;
  /** The last use, or the current moment while the session has an open lease. */
  readonly usedAt: number;
  readonly ttlMs: number;
}

/**
 * The activity of one replica. Its `uses` are added to those of earlier beats. All its other numbers replace those of
 * earlier beats.
 */
export interface Beat {
  readonly waiting: number;
  /** By source. `lastWantedAt` is finite: a source without any demand so far has no entry. */
  readonly demand: Readonly<Record<string, Demand>>;
  readonly members: readonly MemberActivity[];
  readonly sessions: readonly SessionActivity[];
}

const refusal = z.object({ source: name, reason: text(2_000), advice: text(2_000) });
export type SourceRefusal = z.infer<typeof refusal>;

const settings = z.object({ source: name, intervalMs: duration, size: count, params: name });
/** What all replicas should configure alike for one instance. `params` is a digest. */
export type InstanceSettings = z.infer<typeof settings>;

const replica = z.object({
  /** Tells two processes with the same replica name apart. */
  process: name,
  version: name,
  refusals: z.array(refusal).max(1_000).optional().catch(undefined),
  instances: z.array(settings).max(1_000).optional().catch(undefined),
});
export type ReplicaRecord = z.infer<typeof replica>;

/** Omits facts of a kind that this version does not know, and those that are invalid. */
export function decodeFacts(
  json: string,
): { readonly facts: StoredFact[]; readonly skipped: number } | undefined {
  const entries = decode(z.array(z.unknown()).max(MAX_ENTRIES), json);
  if (entries === undefined) return undefined;
  const facts = entries.flatMap((entry) => fact.safeParse(entry).data ?? []);
  return { facts, skipped: entries.length - facts.length };
}

export function decodeRecords(
  json: string,
): { readonly members: MemberRecord[]; readonly bans: SharedBan[]; readonly skipped: number } | undefined {
  const entries = decode(z.array(z.unknown()).max(MAX_ENTRIES), json);
  if (entries === undefined) return undefined;
  const members: MemberRecord[] = [];
  const bans: SharedBan[] = [];
  for (const entry of entries) {
    const found = record.safeParse(entry);
    if (found.success) members.push(found.data);
    else bans.push(...[siteBanned.safeParse(entry).data ?? []].flat());
  }
  return { members, bans, skipped: entries.length - members.length - bans.length };
}

export const decodeSourceState = (json: string) => decode(sourceState, json);
export const decodeSession = (json: string): SharedSession | undefined => decode(session, json);
export const decodeReplica = (json: string): ReplicaRecord | undefined => decode(replica, json);

function decode<Schema extends z.ZodType>(schema: Schema, json: string): z.infer<Schema> | undefined {
  try {
    return schema.safeParse(JSON.parse(json)).data;
  } catch {
    return undefined; // handled: the text is not JSON
  }
}
