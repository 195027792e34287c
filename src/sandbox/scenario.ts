/**
 * Scenarios: which members misbehave, and which calls get another answer. The schemas decode scenario files and the
 * bodies of control requests. The types are inferred from the schemas.
 */
import { readFile } from 'node:fs/promises';
import { parse } from 'yaml';
import { z } from 'zod';
import { describeError, NoriaError } from '../core/faults.ts';
import type { Random } from '../core/random.ts';
import { OPERATION_NAMES, SANDBOX_PRODUCTS, type SandboxProduct } from './operations.ts';

const count = z.int().min(0);
const ms = z.number().min(0).max(3_600_000);
const status = z.int().min(200).max(599);
/** When the member ends the connection. `accept`: at once; `request` (default): after the first bytes of the client. */
const when = z.enum(['accept', 'request']).optional();

/** How a member behaves: like a good proxy, or in one of the ways in which real proxies fail. */
export const behaviourSchema = z.discriminatedUnion('how', [
  z.strictObject({ how: z.literal('good') }),
  /** The member closes its port. */
  z.strictObject({ how: z.literal('refuse') }),
  /** The member accepts connections and never sends anything. */
  z.strictObject({ how: z.literal('silent') }),
  /** The member reports that the target is connected, then relays nothing. */
  z.strictObject({ how: z.literal('silent-after') }),
  /** The member works, but waits `ms` before it serves a new connection. */
  z.strictObject({ how: z.literal('slow'), ms }),
  /**
   * The member answers with this status (such as 407, 502, 503 or 504) and an HTML page. A SOCKS member sends the most
   * similar reply.
   */
  z.strictObject({ how: z.literal('status'), status }),
  /**
   * For HTTP members only. The member works, but answers CONNECT with `status` (default 405). CONNECT to a port in
   * `ports` works.
   */
  z.strictObject({
    how: z.literal('no-connect'),
    status: status.optional(),
    ports: z.array(z.int().min(1).max(65_535)).readonly().optional(),
  }),
  /** The member answers with bytes of another protocol. */
  z.strictObject({ how: z.literal('garbage') }),
  /** The member works, but sends its own answers byte by byte, with a pause of `ms` between two bytes (default 0). */
  z.strictObject({ how: z.literal('dribble'), ms: ms.optional() }),
  /** The member sends half of its answer, then ends the connection. */
  z.strictObject({ how: z.literal('partial') }),
  /** The member ends the connection without an answer. */
  z.strictObject({ how: z.literal('close'), when }),
  /** The member resets the connection without an answer. */
  z.strictObject({ how: z.literal('reset'), when }),
  /** The member answers with a protocol version that does not exist. */
  z.strictObject({ how: z.literal('wrong-version') }),
  /** The member sends an answer whose head never ends. */
  z.strictObject({ how: z.literal('endless-head') }),
  /** The member works, but resets the client's connection after `afterBytes` bytes from the target. */
  z.strictObject({ how: z.literal('cut'), afterBytes: count }),
]);

export type Behaviour = Readonly<z.infer<typeof behaviourSchema>>;

/** What happens to an answer on its way from the service to noria. */
export const faultSchema = z.discriminatedUnion('fault', [
  /** The port of the service is closed for `forMs` (default 1000). This affects all calls. */
  z.strictObject({ fault: z.literal('refuse'), forMs: ms.optional() }),
  z.strictObject({ fault: z.literal('reset') }),
  /** The service ends the connection without an answer. */
  z.strictObject({ fault: z.literal('close') }),
  /** The service never answers. */
  z.strictObject({ fault: z.literal('hang') }),
  /** The service answers with this status and an HTML page, as a firewall does. */
  z.strictObject({ fault: z.literal('status'), status }),
  z.strictObject({ fault: z.literal('garbage') }),
  /** The service answers with a redirect (302) to `to`. Default: `/moved` followed by the path of the call. */
  z.strictObject({ fault: z.literal('redirect'), to: z.string().optional() }),
  /** The service sends a body of `bytes` bytes (default 8 MiB) that begins like a JSON answer. */
  z.strictObject({ fault: z.literal('huge'), bytes: count.optional() }),
  // For the following faults, the service first processes the call as usual; the fault then changes how the answer is
  // sent.
  z.strictObject({ fault: z.literal('delay'), ms }),
  /** The service sends the head at once, and the body in small pieces over `ms`. */
  z.strictObject({ fault: z.literal('slow'), ms }),
  /** The service answers in another format than the call requests. */
  z.strictObject({ fault: z.literal('wrong-format') }),
  /** The service puts a byte order mark before the answer. */
  z.strictObject({ fault: z.literal('bom') }),
  /** The service sends half of the body, then ends the connection. */
  z.strictObject({ fault: z.literal('truncated') }),
]);

export type ServiceFault = Readonly<z.infer<typeof faultSchema>>;

/** A code of the service. A number is accepted too, because YAML reads an unquoted code as a number. */
const code = z.union([z.string(), z.int()]).transform(String);

const answerSchema = z.union([
  /** The service answers with this code. `10001` is a success with an empty list; any other code is a refusal. */
  z.strictObject({ code, msg: z.string().optional() }),
  /** The service sends exactly this text, in UTF-8. */
  z.strictObject({ body: z.string(), contentType: z.string().optional(), status: status.optional() }),
  faultSchema,
]);

export type RuleAnswer = Readonly<z.infer<typeof answerSchema>>;

export const ruleSchema = z.strictObject({
  /** The rule matches only calls of this operation. Default: all operations. */
  operation: z.enum(OPERATION_NAMES).optional(),
  /** The rule matches only calls with this instance id. Default: all instances. */
  instance: z.string().optional(),
  /** How many matching calls the rule skips before it answers one. Default 0. */
  after: count.optional(),
  /** How many calls the rule answers. Default: all calls, until the rule is removed. */
  times: count.min(1).optional(),
  answer: answerSchema,
});

export type Rule = Readonly<z.infer<typeof ruleSchema>>;

/** How some of the new members behave. The first rule that matches a new member decides. */
const memberRuleSchema = z.strictObject({
  /** The rule matches only members of this product. Default: all products. */
  product: z.enum(SANDBOX_PRODUCTS).optional(),
  /** The rule matches only the first members of each instance, up to this number. Default: all members. */
  first: count.optional(),
  /** The probability with which the rule matches a member, 0 to 1. Default 1. */
  share: z.number().min(0).max(1).optional(),
  behaviour: behaviourSchema,
});

type MemberRule = Readonly<z.infer<typeof memberRuleSchema>>;

const scenarioSchema = z.strictObject({
  rules: z.array(ruleSchema).readonly().optional(),
  members: z.array(memberRuleSchema).readonly().optional(),
});

export type Scenario = Readonly<z.infer<typeof scenarioSchema>>;

/** @throws NoriaError `bad-config` with the file and every invalid field. */
export async function loadScenario(path: string): Promise<Scenario> {
  let content: unknown;
  try {
    content = parse(await readFile(path, 'utf8'));
  } catch (cause) {
    throw new NoriaError('bad-config', `${path}: cannot be read: ${describeError(cause)}`, { cause });
  }
  return decode(scenarioSchema, content ?? {}, path);
}

/**
 * @param what - the name that the error message uses for the content.
 * @throws NoriaError `bad-config` with every invalid field.
 */
export function decode<T>(schema: z.ZodType<T>, content: unknown, what: string): T {
  const result = schema.safeParse(content);
  if (result.success) return result.data;
  const errors = result.error.issues.map(
    ({ path, message }) => `${path.join('.') || 'top level'}: ${message}`,
  );
  throw new NoriaError('bad-config', `${what}: ${errors.join('; ')}`);
}

/**
 * Returns the behaviour of the nth new member (from 0) of an instance according to the rules; undefined if no rule
 * matches.
 */
export function behaviourFrom(
  rules: readonly MemberRule[],
  { product, n, random }: { readonly product: SandboxProduct; readonly n: number; readonly random: Random },
): Behaviour | undefined {
  const matching = rules.find((rule) => {
    if (rule.product !== undefined && rule.product !== product) return false;
    if (rule.first !== undefined && n >= rule.first) return false;
    return rule.share === undefined || random() < rule.share;
  });
  return matching?.behaviour;
}
