/**
 * What the admin API says and takes, as schemas: they type the code, validate what comes in, and are printed as
 * the description at /openapi.json. Durations are seconds, moments ISO 8601, sizes bytes.
 */
import { z } from '@hono/zod-openapi';
import { LOG_LEVELS } from '../core/log.ts';
import { MEMBER_PROTOCOLS } from '../core/protocol.ts';

export const SOURCE_STATES = ['idle', 'ready', 'drawing', 'waiting', 'backoff', 'paused', 'halted'] as const;
export const MEMBER_STATES = ['joining', 'ready', 'quarantined', 'draining'] as const;

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
    drawn: z.number().int(),
    used: z.number().int(),
    unused: z.number().int().openapi({ description: 'members that left without ever having been used' }),
  })
  .openapi('Source');

export const statusSchema = z
  .object({
    version: z.string(),
    uptimeSeconds: z.number(),
    ready: z.boolean(),
    reason: z.string().openapi({ description: 'one sentence: does it work, and why not' }),
    listeners: z.array(
      z.object({ address: z.string(), protocols: z.array(z.string()), connections: z.number().int() }),
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
export type SourceView = z.infer<typeof sourceSchema>;
export type MemberView = z.infer<typeof memberSchema>;
export type SessionView = z.infer<typeof sessionSchema>;
export type Report = z.infer<typeof reportSchema>;
export type LogLevelChange = z.infer<typeof logLevelSchema>;
