/**
 * Scenarios: what the sandbox is to do wrong, from a YAML or JSON file or from the control API, decoded and checked.
 */
import { readFile } from 'node:fs/promises';
import { parse } from 'yaml';
import { z } from 'zod';
import { describeError, NoriaError } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import type { Behaviour } from './member-behaviour.ts';
import { OPERATION_NAMES, SANDBOX_PRODUCTS, type SandboxProduct } from './operations.ts';
import type { Rule, RuleAnswer, ServiceFault } from './rules.ts';
import type { Condition } from './settings.ts';

/** How some of the new members behave. The first of these that fits a new member decides. */
export interface MemberRule {
  /** Default: members of every product. */
  readonly product?: SandboxProduct | undefined;
  /** Each of the first so many members of an instance. */
  readonly first?: number | undefined;
  /** Each with this probability, 0 to 1. Default 1 where `first` is not given. */
  readonly share?: number | undefined;
  readonly behaviour: Behaviour;
}

export interface Scenario {
  readonly rules?: readonly Rule[] | undefined;
  readonly members?: readonly MemberRule[] | undefined;
}

const count = z.int().min(0);
const ms = z.number().min(0).max(3_600_000);
const status = z.int().min(200).max(599);
const when = z.enum(['accept', 'request']).optional();

export const behaviourSchema = z.discriminatedUnion('how', [
  z.strictObject({ how: z.literal('good') }),
  z.strictObject({ how: z.literal('refuse') }),
  z.strictObject({ how: z.literal('silent') }),
  z.strictObject({ how: z.literal('silent-after') }),
  z.strictObject({ how: z.literal('slow'), ms }),
  z.strictObject({ how: z.literal('status'), status }),
  z.strictObject({
    how: z.literal('no-connect'),
    status: status.optional(),
    ports: z.array(z.int().min(1).max(65_535)).optional(),
  }),
  z.strictObject({ how: z.literal('garbage') }),
  z.strictObject({ how: z.literal('dribble'), ms: ms.optional() }),
  z.strictObject({ how: z.literal('partial') }),
  z.strictObject({ how: z.literal('close'), when }),
  z.strictObject({ how: z.literal('reset'), when }),
  z.strictObject({ how: z.literal('wrong-version') }),
  z.strictObject({ how: z.literal('endless-head') }),
  z.strictObject({ how: z.literal('cut'), afterBytes: count }),
]) satisfies z.ZodType<Behaviour>;

export const faultSchema = z.discriminatedUnion('fault', [
  z.strictObject({ fault: z.literal('refuse'), forMs: ms.optional() }),
  z.strictObject({ fault: z.literal('reset') }),
  z.strictObject({ fault: z.literal('close') }),
  z.strictObject({ fault: z.literal('hang') }),
  z.strictObject({ fault: z.literal('status'), status }),
  z.strictObject({ fault: z.literal('garbage') }),
  z.strictObject({ fault: z.literal('redirect'), to: z.string().optional() }),
  z.strictObject({ fault: z.literal('huge'), bytes: count.optional() }),
  z.strictObject({ fault: z.literal('delay'), ms }),
  z.strictObject({ fault: z.literal('slow'), ms }),
  z.strictObject({ fault: z.literal('wrong-format') }),
  z.strictObject({ fault: z.literal('bom') }),
  z.strictObject({ fault: z.literal('truncated') }),
]) satisfies z.ZodType<ServiceFault>;

/** YAML reads an unquoted code as a number. */
const code = z.union([z.string(), z.int()]).transform(String);

const answerSchema: z.ZodType<RuleAnswer> = z.union([
  z.strictObject({ code, msg: z.string().optional() }),
  z.strictObject({ body: z.string(), contentType: z.string().optional(), status: status.optional() }),
  faultSchema,
]);

export const ruleSchema: z.ZodType<Rule> = z.strictObject({
  operation: z.enum(OPERATION_NAMES).optional(),
  instance: z.string().optional(),
  after: count.optional(),
  times: count.min(1).optional(),
  answer: answerSchema,
});

const scenarioSchema: z.ZodType<Scenario> = z.strictObject({
  rules: z.array(ruleSchema).optional(),
  members: z
    .array(
      z.strictObject({
        product: z.enum(SANDBOX_PRODUCTS).optional(),
        first: count.optional(),
        share: z.number().min(0).max(1).optional(),
        behaviour: behaviourSchema,
      }),
    )
    .optional(),
});

const limit = count.nullable();

/** A change of an instance's condition: what is left out stays. */
export const conditionSchema = z
  .strictObject({
    singlePullLimit: count.min(1),
    expired: z.boolean(),
    daysLeft: z.number(),
    frozen: z.boolean(),
    restricted: z.boolean(),
    deviceAuthorised: z.boolean(),
    terminalIpBound: z.boolean(),
    accounting: z.enum(['centralized', 'pay-per-use', 'even']),
    distinctLimit: count,
    usageLimit: limit,
    connectionLimit: limit,
    trafficLimitBytes: limit,
  } satisfies Record<keyof Condition, z.ZodType>)
  .partial();

/**
 * Reads a scenario file.
 *
 * @throws NoriaError `bad-config` naming the file and every place that is wrong.
 */
export async function loadScenario(path: string): Promise<Scenario> {
  let content: unknown;
  try {
    content = parse(await readFile(path, 'utf8'));
  } catch (cause) {
    throw new NoriaError('bad-config', `${path}: cannot be read: ${describeError(cause)}`, { cause });
  }
  return decode(scenarioSchema, content ?? {}, path);
}

/** @throws NoriaError `bad-config` naming every place of `content` that is wrong, after `what` it is. */
export function decode<T>(schema: z.ZodType<T>, content: unknown, what: string): T {
  const read = schema.safeParse(content);
  if (read.success) return read.data;
  const places = read.error.issues.map(({ path, message }) => `${path.join('.') || 'all of it'}: ${message}`);
  throw new NoriaError('bad-config', `${what}: ${places.join('; ')}`);
}

/** The behaviour that a scenario gives the nth new member (from 0) of an instance; undefined when it gives none. */
export function behaviourFrom(
  rules: readonly MemberRule[],
  { product, n, random }: { readonly product: SandboxProduct; readonly n: number; readonly random: Random },
): Behaviour | undefined {
  const fitting = rules.find((rule) => {
    if (rule.product !== undefined && rule.product !== product) return false;
    if (rule.first !== undefined && n >= rule.first) return false;
    return rule.share === undefined || random() < rule.share;
  });
  return fitting?.behaviour;
}
