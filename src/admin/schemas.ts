/**
 * What the admin API says and takes, as schemas: they type the code, validate what comes in, and are printed as
 * the description at /openapi.json. Durations are seconds, moments ISO 8601, sizes bytes.
 */
import { z } from '@hono/zod-openapi';
import type { Side } from '../core/faults.ts';
import { LOG_LEVELS } from '../core/log.ts';
import { MEMBER_PROTOCOLS } from '../core/protocol.ts';

export const SOURCE_STATES = ['idle', 'ready', 'drawing', 'waiting', 'backoff', 'paused', 'halted'] as const;
export const MEMBER_STATES = ['joining', 'ready', 'quarantined', 'draining'] as const;

const SIDES = [
  'client',
  'member',
  'target',
  'source',
  'service',
  'operator',
  'noria',
] as const satisfies readonly Side[];

export const errorSchema = z
  .object({ error: z.object({ code: z.string(), message: z.string() }) })
  .openapi('Error');

export const quotaSchema = z
  .object({
    remaining: z.number().int().optional().openapi({ description: 'distinct IPs left, for today or in all' }),
    added: z.number().int().optional().openapi({ description: 'distinct IPs new with the last draw' }),
    active: z.number().int().optional().openapi({ description: 'distinct IPs drawn lately and still alive' }),
    today: z
      .number()
      .int()
      .optional()
      .openapi({ description: 'distinct IPs drawn today, as the service counts' }),
  })
  .openapi('Quota');

export const sourceSchema = z
  .object({
    name: z.string(),
    product: z.string(),
    state: z.enum(SOURCE_STATES),
    reason: z.string().openapi({ description: 'why it is in this state, in words' }),
    advice: z.string().nullable().openapi({ description: 'what a person can do about it' }),
    code: z.string().nullable().openapi({ description: "the service's code of the last call, or transport" }),
    message: z.string().nullable().openapi({ description: "the service's own text of the last call" }),
    nextCallAt: z
      .string()
      .nullable()
      .openapi({ description: 'when the next call may go out; null when none is planned' }),
    quota: quotaSchema,
    budget: z.object({ limit: z.number().int(), used: z.number().int() }).nullable(),
    size: z.number().int().openapi({ description: 'usable members wanted' }),
    ready: z.number().int().openapi({ description: 'members that could be picked now' }),
    drawn: z
      .number()
      .int()
      .openapi({ description: 'members that draws have brought since the state folder was new' }),
    used: z.number().int().openapi({
      description: 'of those, members that carried at least one tunnel or request; living ones included',
    }),
    unused: z.number().int().openapi({
      description: 'of those, members that are gone and never carried anything: paid for nothing',
    }),
  })
  .openapi('Source');

export const statusSchema = z
  .object({
    version: z.string(),
    uptimeSeconds: z.number(),
    ready: z.boolean(),
    reason: z.string().openapi({ description: 'one sentence: does it work, and why not' }),
    workers: z
      .object({ wanted: z.number().int(), running: z.number().int() })
      .openapi({ description: 'processes that serve clients: as configured, and alive' }),
    listeners: z.array(
      z.object({
        name: z.string().openapi({ description: 'its address as configured, as in metrics and events' }),
        address: z.string().openapi({ description: 'what is really bound' }),
        protocols: z.array(z.string()),
        connections: z.number().int().openapi({ description: 'client connections open' }),
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
    remainingSeconds: z.number().nullable().openapi({ description: 'null when unknown' }),
    openTunnels: z.number().int(),
    uses: z.number().int(),
    faults: z
      .number()
      .openapi({ description: 'faults in a row; a tunnel cut before its first byte counts half' }),
    latencyMs: z.number().nullable(),
    facts: z.record(z.string(), z.union([z.string(), z.number(), z.boolean()])),
  })
  .openapi('Member');

export const sessionSchema = z
  .object({
    id: z.string().openapi({ description: 'the value of X-Noria-Session' }),
    member: z.string().nullable(),
    idleSeconds: z.number(),
    expiresInSeconds: z.number(),
    uses: z.number().int(),
  })
  .openapi('Session');

const perStep = (description: string) => z.array(z.number().nullable()).openapi({ description });

export const historySchema = z
  .object({
    span: z.enum(['15m', '24h']),
    stepSeconds: z.number().openapi({ description: 'seconds between two values' }),
    endsAt: z.string().openapi({ description: 'end of the last step; values are the oldest first' }),
    tunnelsPerSecond: perStep('requests that got a way to their target; null where nobody watched yet'),
    bytesUpPerSecond: perStep('from clients to targets, spread over the time each tunnel was open'),
    bytesDownPerSecond: perStep('from targets to clients'),
    dialP50Ms: perStep('half of the dials took no longer, to about a tenth; null where nothing was dialled'),
    dialP95Ms: perStep('95 of 100 dials took no longer'),
    failures: z
      .object({
        member: perStep('attempts laid at members'),
        target: perStep('attempts laid at targets'),
        source: perStep('attempts laid at sources'),
        network: perStep("attempts laid at this machine's network"),
        client: perStep('requests refused for what the client sent'),
        noria: perStep('requests that noria could not serve: an empty pool, a deadline'),
      })
      .openapi({ description: 'failures in each step, by who is to blame' }),
  })
  .openapi('History');

export const failureSchema = z
  .object({
    kind: z.enum(['request', 'refusal', 'attempt', 'source']).openapi({
      description:
        'request: found no way; refusal: turned away by a listener; attempt: failed through one member, unnoticed where another one served; source: cannot draw',
    }),
    code: z.string().openapi({ description: "one of noria's codes, or the service's for a source" }),
    side: z.enum(SIDES).openapi({ description: 'whose fault it is' }),
    says: z.string().openapi({ description: 'what happened, in words' }),
    advice: z.string().openapi({ description: 'what to do about it, in words' }),
    times: z.number().int().openapi({ description: 'how often, from firstAt to lastAt' }),
    firstAt: z.string(),
    lastAt: z.string(),
    target: z.string().optional(),
    source: z.string().optional(),
    member: z.string().optional(),
    listener: z.string().optional(),
    protocol: z.string().optional(),
    detail: z.string().optional().openapi({ description: 'what exactly, the last time' }),
  })
  .openapi('Failure');

export const rotateSchema = z
  .object({ close: z.boolean().optional().openapi({ description: 'end its open tunnels too' }) })
  .openapi('Rotate');

export const reportSchema = z
  .strictObject({
    session: z.string().min(1).optional(),
    member: z.string().min(1).optional(),
    host: z.string().min(1).max(253),
    verdict: z.enum(['banned', 'ok']),
  })
  .refine(({ session, member }) => (session === undefined) !== (member === undefined), {
    message: 'name either session or member',
  })
  .openapi('Report');

export const logLevelSchema = z.strictObject({ level: z.enum(LOG_LEVELS) }).openapi('LogLevel');

export type Status = z.infer<typeof statusSchema>;
export type SourceJson = z.infer<typeof sourceSchema>;
export type MemberJson = z.infer<typeof memberSchema>;
export type SessionJson = z.infer<typeof sessionSchema>;
export type HistoryView = z.infer<typeof historySchema>;
export type FailureView = z.infer<typeof failureSchema>;
export type Report = z.infer<typeof reportSchema>;
export type LogLevelChange = z.infer<typeof logLevelSchema>;
