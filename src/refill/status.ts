/**
 * The status of a source: built once, and read by the admin API, readiness, the command line and the page. Only
 * `message` contains text of the service.
 */
import { z } from 'zod';

export const SOURCE_STATES = ['idle', 'ready', 'drawing', 'waiting', 'backoff', 'paused', 'halted'] as const;
export type SourceState = (typeof SOURCE_STATES)[number];

const integer = (description: string) => z.number().int().meta({ description });

export const quotaSchema = z.object({
  remaining: integer('Distinct IPs left in the quota, for today or in total').optional(),
  added: integer('Distinct IPs of the last draw that were new').optional(),
  active: integer('Distinct IPs drawn that have not expired').optional(),
  today: integer('Distinct IPs drawn today, as counted by the service').optional(),
});

export const sourceStatusSchema = z.object({
  name: z.string(),
  product: z.string(),
  state: z.enum(SOURCE_STATES).meta({
    description: 'A `paused` source was paused by the operator or suspended by a condition that passes',
  }),
  suspended: z.boolean().meta({
    description:
      'Whether a `paused` source is suspended by a condition that passes, such as a used-up quota; false if the operator paused it',
  }),
  blocked: z.boolean().meta({
    description: 'Whether the members refuse the credentials of the source; it is then `paused`',
  }),
  reason: z.string().meta({ description: 'Why the source is in this state' }),
  advice: z.string().nullable().meta({
    description: 'What the operator can do about this state; null if nothing is necessary',
  }),
  code: z.string().nullable().meta({
    description: "The service's code for the last call; `transport` if the call got no answer",
  }),
  message: z
    .string()
    .nullable()
    .meta({ description: "The service's own message of the last call; null if the call succeeded" }),
  meaning: z.string().nullable().meta({
    description: 'What the result of the last call means, in English; null before the first call',
  }),
  lastDraw: z
    .object({ result: z.enum(['succeeded', 'empty', 'useless', 'failed']), advice: z.string() })
    .nullable()
    .meta({
      description:
        'How the last draw ended, and what the operator can do about it. useless: it brought members, but many in a row failed before their first use',
    }),
  stateSeconds: z.number().meta({ description: 'For how long the source has been in this state' }),
  nextCallSeconds: z.number().nullable().meta({
    description: 'Time until the next call may start; null if the operator has to act first',
  }),
  nextCallAt: z
    .string()
    .nullable()
    .meta({ description: 'The earliest next call; null when none is planned' }),
  quota: quotaSchema,
  budget: z.object({ limit: z.number().int(), used: z.number().int() }).nullable(),
  size: integer('The most usable members that the source holds'),
  ready: integer('Number of members that a client can get now'),
  joining: integer('Number of drawn members whose first health check is in progress'),
  drawn: integer('Members drawn since the state folder was created'),
  used: integer('How many of the `drawn` members carried at least one tunnel or request'),
  unused: integer(
    'How many of the `drawn` members left the pool unused, or have an address that noria may not use',
  ),
});

export type SourceStatus = Readonly<z.infer<typeof sourceStatusSchema>>;

/** The state in words for people: `paused` only if the operator stopped the source, else `suspended`. */
export function stateWord({ state, suspended }: Pick<SourceStatus, 'state' | 'suspended'>) {
  return suspended ? 'suspended' : state;
}
