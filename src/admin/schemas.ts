/**
 * The schemas of the admin API. noria validates requests with them, and generates /openapi.json and the TypeScript
 * types from them. Durations are in seconds, moments in ISO 8601, sizes in bytes.
 */
import { z } from '@hono/zod-openapi';
import { parseDuration } from '../core/duration.ts';
import type { Side } from '../core/faults.ts';
import { LOG_LEVELS } from '../core/log-options.ts';
import { MEMBER_PROTOCOLS } from '../core/protocol.ts';
import { quotaSchema, sourceStatusSchema } from '../refill/status.ts';

export const MEMBER_STATES = ['joining', 'ready', 'quarantined', 'draining'] as const;

const READINESS_STATES = ['serving', 'starting', 'idle', 'degraded', 'not-serving'] as const;
const PROBLEM_KINDS = [
  'shutting-down',
  'store-lost',
  'no-listener',
  'workers-down',
  'requests-failing',
  'credentials-refused',
  'halted',
  'paused',
  'draw-failed',
  'draw-empty',
  'draw-late',
  'members-failing',
  'site-banned',
] as const;

const SIDES = [
  'client',
  'member',
  'target',
  'source',
  'service',
  'front-proxy',
  'operator',
  'noria',
] as const satisfies readonly Side[];

export const errorSchema = z
  .object({ error: z.object({ code: z.string(), message: z.string() }) })
  .openapi('Error');

const integer = (description: string) => z.number().int().openapi({ description });
const text = (description: string) => z.string().openapi({ description });
const textOrNull = (description: string) => z.string().nullable().openapi({ description });
const numberOrNull = (description: string) => z.number().nullable().openapi({ description });

const sourceSchema = z
  .object({ ...sourceStatusSchema.shape, quota: z.object(quotaSchema.shape).openapi('Quota') })
  .openapi('Source');

const problemSchema = z
  .object({
    kind: z.enum(PROBLEM_KINDS),
    source: textOrNull('The source that has the problem; null if the problem concerns noria as a whole'),
    reason: z.string(),
    advice: textOrNull('What the operator can do about the problem'),
    nextAttemptSeconds: numberOrNull(
      'Time until noria tries again; null if only the operator or a client can cause the next attempt',
    ),
  })
  .openapi('Problem');

const readinessSchema = z.object({
  state: z.enum(READINESS_STATES).openapi({
    description:
      'serving: noria serves clients; starting: the first draw is in progress; idle: no clients; degraded: noria serves clients, but has problems; not-serving: noria cannot serve clients',
  }),
  ready: z.boolean().openapi({ description: 'Whether noria expects to serve a new client' }),
  reason: text('Why noria is in this state'),
  advice: textOrNull('What the operator can do to make noria ready; null while noria is ready'),
  sinceSeconds: integer('For how long noria has been in this state'),
  nextAttemptSeconds: numberOrNull(
    'Time until noria next tries to solve a problem; null: no attempt is planned',
  ),
  problems: z.array(problemSchema),
});

const fleetSchema = z
  .object({
    name: z.string(),
    replica: text('The name of this noria in the fleet'),
    store: z.enum(['connected', 'lost']),
    reason: textOrNull('Why the store is lost; null while it is connected'),
    lostForSeconds: integer('Time since the store was lost; 0 while it is connected'),
    replicas: z
      .array(
        z.object({
          name: z.string(),
          version: z.string(),
          clients: integer('Connected clients'),
          lastSeenSeconds: integer('Time since this noria last reported to the store'),
        }),
      )
      .openapi({
        description: 'The norias of the fleet, including this noria, as the store last listed them',
      }),
  })
  .openapi('Fleet');

export const statusSchema = z
  .object({
    version: z.string(),
    uptimeSeconds: z.number(),
    testUrl: text('A page that members reach, for a first test'),
    ...readinessSchema.shape,
    workers: z
      .object({ wanted: z.number().int(), running: z.number().int() })
      .openapi({ description: 'Processes that serve clients: configured and running' }),
    listeners: z.array(
      z.object({
        name: text('The configured address, which is also the name of the listener in metrics and events'),
        address: text('The bound address'),
        protocols: z.array(z.string()),
        connections: integer('Open client connections'),
      }),
    ),
    pool: z.object({
      joining: z.number().int(),
      ready: z.number().int(),
      quarantined: z.number().int(),
      draining: z.number().int(),
      openTunnels: z.number().int(),
      waitingClients: z.number().int(),
      sessions: z.number().int(),
    }),
    sources: z.array(sourceSchema),
    fleet: fleetSchema.nullable().openapi({ description: 'null when this noria is in no fleet' }),
  })
  .openapi('Status');

export const memberSchema = z
  .object({
    id: z.string(),
    source: z.string(),
    protocol: z.enum(MEMBER_PROTOCOLS),
    host: z.string(),
    port: z.number().int(),
    location: z.string().nullable(),
    exitIp: z.string().nullable(),
    state: z.enum(MEMBER_STATES),
    remainingSeconds: numberOrNull('Null when unknown'),
    openTunnels: z.number().int(),
    uses: z.number().int(),
    faults: z.number().openapi({ description: 'Number of consecutive faults; halves with time' }),
    latencyMs: z.number().nullable(),
    bannedBy: z
      .array(z.string())
      .readonly()
      .default([])
      .openapi({ description: 'The sites that ban its exit' }),
    facts: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])),
    drawnBy: z.string().nullable().optional().openapi({
      description:
        "The noria that drew the member; null until the member is in the fleet's store. Absent without a fleet",
    }),
  })
  .openapi('Member');

export const sessionSchema = z
  .object({
    id: text('The value of X-Noria-Session'),
    member: z.string().nullable(),
    idleSeconds: z.number(),
    expiresInSeconds: z.number(),
    uses: z.number().int(),
  })
  .openapi('Session');

export const spanSchema = z.enum(['15m', '24h']);

const perStep = (description: string) => z.array(z.number().nullable()).openapi({ description });

export const historySchema = z
  .object({
    span: spanSchema,
    stepSeconds: z.number().openapi({ description: 'Length of a step' }),
    endsAt: text('When the last step ended. Each list begins with the value of the oldest step'),
    tunnelsPerSecond: perStep('Dials that a member accepted; null before noria started'),
    bytesUpPerSecond: perStep(
      'Bytes from clients to targets; the bytes of a tunnel are distributed evenly over the time it was open',
    ),
    bytesDownPerSecond: perStep('Bytes from targets to clients'),
    successRate: perStep('Share of client requests that a member accepted, 0 to 1; null without requests'),
    membersLeft: z
      .object({
        used: perStep('Members that were used at least once'),
        unused: perStep('Members that were never used (wasted)'),
      })
      .openapi({ description: 'Members that left the pool' }),
    total: z
      .object({
        succeeded: integer('Client requests that a member accepted'),
        failed: integer('Client requests that failed, except those whose client disconnected'),
        dialP50Ms: z.number().nullable(),
        dialP95Ms: z.number().nullable(),
      })
      .openapi({ description: 'Totals and percentiles over all steps' }),
    dialP50Ms: perStep('Median connect time, accurate to about 10 %; null without dials'),
    dialP95Ms: perStep('95th percentile of the connect time'),
    failures: z
      .object({
        member: perStep('Attempts and forwarded requests that failed because of the member'),
        target: perStep('Attempts that failed because of the target'),
        source: perStep(
          'Attempts that failed because of the source, and requests for which no member became available',
        ),
        network: perStep("Attempts that failed because of this machine's network"),
        client: perStep('Requests refused because of what the client sent'),
        noria: perStep('Requests that failed because of noria, for example because dial.deadline passed'),
      })
      .openapi({ description: 'Failures per step, by the side at fault' }),
  })
  .openapi('History');

export const failureSchema = z
  .object({
    kind: z.enum(['request', 'refusal', 'attempt', 'source']).openapi({
      description:
        'request: noria could not connect a client request to its target; refusal: a listener refused the client; attempt: an attempt through one member failed, and another member may have served the request; source: the source cannot draw',
    }),
    code: text("noria's code; for a source, the code of the service"),
    side: z.enum(SIDES).openapi({ description: 'The side at fault' }),
    says: text('What happened'),
    advice: text('What the operator can do about the failure'),
    times: integer('Number of occurrences from firstAt to lastAt'),
    firstAt: z.string(),
    lastAt: z.string(),
    target: z.string().optional(),
    source: z.string().optional(),
    member: z.string().optional(),
    listener: z.string().optional(),
    protocol: z.string().optional(),
    detail: z.string().optional().openapi({ description: 'Details of the last occurrence' }),
  })
  .openapi('Failure');

const attemptSchema = z.object({
  member: z.string(),
  source: z.string(),
  exit: z.string().nullable(),
  ms: z.number(),
  code: textOrNull('Why the attempt failed; null if it was accepted'),
});

export const requestSchema = z
  .object({
    id: z.string(),
    at: z.string(),
    user: z.string().nullable(),
    session: z.string().nullable(),
    tag: z.string().nullable(),
    client: z.string().nullable(),
    protocol: z.enum(['connect', 'forward', 'socks5', 'socks4', 'unknown']),
    target: textOrNull('As host:port'),
    outcome: z.enum(['served', 'failed']),
    code: z.string().nullable(),
    attempts: z.array(attemptSchema).readonly(),
    bytesUp: integer("Bytes on the member's connection after its handshake, as in noria_bytes_total"),
    bytesDown: integer('The same, from the target'),
    firstByteMs: z.number().nullable(),
    ms: z.number(),
  })
  .openapi('Request');

export const usageSchema = z
  .object({
    name: z.string(),
    requests: integer('Client requests and tunnels that ended'),
    failed: integer('How many of them failed'),
    bytesUp: integer('Bytes to targets'),
    bytesDown: integer('Bytes from targets'),
    members: integer('Distinct members used'),
    spend: z.number().openapi({
      description:
        'For a source: price × drawn members. Else: the shares of the prices of the used members, by uses',
    }),
  })
  .openapi('Usage');

export const siteSchema = z
  .object({
    name: z.string(),
    uses: integer('Leases of members for the site'),
    bans: integer('Bans of exits by the site'),
    bannedExits: integer('Exits that the site bans now, also those of members that left'),
    usableExits: integer('Exits of members that the site does not ban'),
    spacingMs: integer('Least time between two uses of one exit at the site'),
    nextSlotAt: textOrNull('When an exit may be used next; null: none'),
    draws: integer('IPs drawn because of bans of the site'),
  })
  .openapi('Site');

export const rotateSchema = z
  .object({
    close: z.boolean().optional().openapi({ description: 'Also close the open tunnels of the session' }),
  })
  .openapi('Rotate');

export const reportSchema = z
  .strictObject({
    session: z.string().min(1).optional(),
    member: z.string().min(1).optional(),
    host: z.string().min(1).max(253),
    verdict: z.enum(['banned', 'ok']),
    for: z
      .string()
      .refine((text) => (parseDuration(text) ?? 0) > 0, 'not a duration such as 30m')
      .optional()
      .openapi({ description: 'The length of the ban; without it, the rule of the site decides' }),
    close: z.boolean().optional().openapi({ description: "Also close the session's open tunnels" }),
  })
  .refine(({ session, member }) => (session === undefined) !== (member === undefined), {
    message: 'give either session or member',
  })
  .openapi('Report');

const texts = (description: string) => z.array(z.string()).openapi({ description });

export const reloadSchema = z
  .object({
    changed: texts('Keys that differ from the previous configuration, without their values'),
    restart: texts(
      'The keys that differ from the configuration with which noria started, and take effect only after a restart',
    ),
    warnings: texts('Warnings about the new configuration, each as FILE:LINE:COLUMN: path: message'),
  })
  .openapi('Reload');

export const logLevelSchema = z.strictObject({ level: z.enum(LOG_LEVELS) }).openapi('LogLevel');

export type Status = z.infer<typeof statusSchema>;
export type Readiness = z.infer<typeof readinessSchema>;
export type ReadinessProblem = z.infer<typeof problemSchema>;
export type MemberJson = z.infer<typeof memberSchema>;
export type SessionJson = z.infer<typeof sessionSchema>;
export type Span = z.infer<typeof spanSchema>;
export type HistoryView = z.infer<typeof historySchema>;
export type FailureView = z.infer<typeof failureSchema>;
export type RequestJson = z.infer<typeof requestSchema>;
export type SiteJson = z.infer<typeof siteSchema>;
export type UsageJson = z.infer<typeof usageSchema>;
export type Reload = z.infer<typeof reloadSchema>;
export type Report = z.infer<typeof reportSchema>;
