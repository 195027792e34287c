/**
 * Scenarios: which members misbehave, and which calls get another answer. The schemas decode scenario files and the
 * bodies of control requests. The types are inferred from the schemas.
 */
import { readFile } from 'node:fs/promises';
import { parse } from 'yaml';
import { z } from 'zod';
import { describeError, NoriaError } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import {
  OPERATION_NAMES,
  SANDBOX_PRODUCTS,
  type SandboxOperationName,
  type SandboxProduct,
} from './operations.ts';

const count = z.int().min(0);
const ms = z.number().min(0).max(3_600_000);
const status = z.int().min(200).max(599);
const when = z.enum(['accept', 'request']).optional();

export const behaviourSchema = z.discriminatedUnion('how', [
  z.strictObject({ how: z.literal('good') }),
  // `wrong-version`: the member answers with a protocol version that does not exist
  z.strictObject({
    how: z.enum(['refuse', 'silent', 'silent-after', 'garbage', 'partial', 'wrong-version', 'endless-head']),
  }),
  z.strictObject({ how: z.literal('slow'), ms }),
  z.strictObject({ how: z.literal('status'), status }),
  z.strictObject({
    how: z.literal('no-connect'),
    status: status.optional(),
    ports: z.array(z.int().min(1).max(65_535)).readonly().optional(),
  }),
  z.strictObject({ how: z.literal('dribble'), ms: ms.optional() }),
  z.strictObject({ how: z.enum(['close', 'reset']), when }),
  z.strictObject({ how: z.literal('cut'), afterBytes: count }),
]);

export type Behaviour = Readonly<z.infer<typeof behaviourSchema>>;

export const faultSchema = z.discriminatedUnion('fault', [
  z.strictObject({ fault: z.literal('refuse'), forMs: ms.optional() }),
  z.strictObject({ fault: z.enum(['reset', 'close', 'hang', 'garbage']) }),
  z.strictObject({ fault: z.literal('status'), status }),
  /** The service answers with a redirect (302) to `to`. Default: `/moved` followed by the path of the call. */
  z.strictObject({ fault: z.literal('redirect'), to: z.string().optional() }),
  z.strictObject({ fault: z.literal('huge'), bytes: count.optional() }),
  // With the following faults, the service processes the call as usual; they change how the answer is sent.
  z.strictObject({ fault: z.enum(['delay', 'slow']), ms }),
  z.strictObject({ fault: z.enum(['wrong-format', 'bom', 'truncated']) }),
]);

export type ServiceFault = Readonly<z.infer<typeof faultSchema>>;

/** A code of the service. A number is accepted too, because YAML reads an unquoted code as a number. */
const code = z.union([z.string(), z.int()]).transform(String);

const answerSchema = z.union([
  z.strictObject({ code, msg: z.string().optional() }),
  z.strictObject({ body: z.string(), contentType: z.string().optional(), status: status.optional() }),
  faultSchema,
]);

export type RuleAnswer = Readonly<z.infer<typeof answerSchema>>;

export const ruleSchema = z.strictObject({
  operation: z.enum(OPERATION_NAMES).optional(),
  instance: z.string().optional(),
  /** How many matching calls the rule skips before it answers one. Default 0. */
  after: count.optional(),
  /** How many calls the rule answers. Default: all calls, until the rule is removed. */
  times: count.min(1).optional(),
  answer: answerSchema,
});

export type Rule = Readonly<z.infer<typeof ruleSchema>>;

const memberRuleSchema = z.strictObject({
  product: z.enum(SANDBOX_PRODUCTS).optional(),
  /** The rule matches only the first members of each instance, up to this number. Default: all members. */
  first: count.optional(),
  /** The probability with which the rule matches a member, 0 to 1. Default 1. */
  share: z.number().min(0).max(1).optional(),
  behaviour: behaviourSchema,
});

const scenarioSchema = z.strictObject({
  rules: z.array(ruleSchema).readonly().optional(),
  members: z.array(memberRuleSchema).readonly().optional(),
});

export type Scenario = Readonly<z.infer<typeof scenarioSchema>>;

export async function loadScenario(path: string): Promise<Scenario> {
  let content: unknown;
  try {
    content = parse(await readFile(path, 'utf8'));
  } catch (cause) {
    throw new NoriaError('bad-config', `${path}: cannot be read: ${describeError(cause)}`, { cause });
  }
  return decode(scenarioSchema, content ?? {}, path);
}

export function decode<T>(schema: z.ZodType<T>, content: unknown, what: string): T {
  const result = schema.safeParse(content);
  if (result.success) return result.data;
  const errors = result.error.issues.map(
    ({ path, message }) => `${path.join('.') || 'top level'}: ${message}`,
  );
  throw new NoriaError('bad-config', `${what}: ${errors.join('; ')}`);
}

export function behaviourFrom(
  rules: NonNullable<Scenario['members']>,
  { product, n, random }: { readonly product: SandboxProduct; readonly n: number; readonly random: Random },
): Behaviour | undefined {
  const matching = rules.find((rule) => {
    if (rule.product !== undefined && rule.product !== product) return false;
    if (rule.first !== undefined && n >= rule.first) return false;
    return rule.share === undefined || random() < rule.share;
  });
  return matching?.behaviour;
}

export class Rules {
  #entries: { readonly id: string; readonly rule: Rule; matched: number; used: number }[] = [];
  #added = 0;

  constructor(rules: readonly Rule[] = []) {
    for (const rule of rules) this.add(rule);
  }

  add(rule: Rule): string {
    this.#added += 1;
    const id = `r${this.#added}`;
    this.#entries.push({ id, rule, matched: 0, used: 0 });
    return id;
  }

  list() {
    return this.#entries.map(({ id, rule, used }) => ({ id, ...rule, used }));
  }

  remove(id: string): boolean {
    const before = this.#entries.length;
    this.#entries = this.#entries.filter((entry) => entry.id !== id);
    return this.#entries.length < before;
  }

  clear(): void {
    this.#entries = [];
  }

  answerTo(operation: SandboxOperationName, instance: string): RuleAnswer | undefined {
    for (const entry of this.#entries) {
      const { rule } = entry;
      if (rule.operation !== undefined && rule.operation !== operation) continue;
      if (rule.instance !== undefined && rule.instance !== instance) continue;
      entry.matched += 1;
      if (entry.matched <= (rule.after ?? 0)) continue;
      entry.used += 1;
      if (entry.used >= (rule.times ?? Number.POSITIVE_INFINITY)) this.remove(entry.id);
      return rule.answer;
    }
    return undefined;
  }
}
