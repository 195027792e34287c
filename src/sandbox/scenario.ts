/**
 * Scenarios: how members misbehave and how calls are answered on demand. The schemas decode scenario files and bodies of the
 * control API; the types are inferred from them.
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
/** Whether a connection ends on accept or after the client's request. Default `request`. */
const when = z.enum(['accept', 'request']).optional();

/** How a member behaves: well, or in one of the ways in which real proxies fail. */
export const behaviourSchema = z.discriminatedUnion('how', [
  z.strictObject({ how: z.literal('good') }),
  /** The port is closed. */
  z.strictObject({ how: z.literal('refuse') }),
  /** Accepts the connection and never sends anything. */
  z.strictObject({ how: z.literal('silent') }),
  /** Accepts the target, then relays nothing in either direction. */
  z.strictObject({ how: z.literal('silent-after') }),
  /** Works, after a delay of `ms` on each new connection. */
  z.strictObject({ how: z.literal('slow'), ms }),
  /** Answers this status (such as 407, 502, 503 or 504) with an HTML page. SOCKS members send the nearest reply. */
  z.strictObject({ how: z.literal('status'), status }),
  /** HTTP members: works, but answers CONNECT with `status` (default 405), except to `ports`. */
  z.strictObject({
    how: z.literal('no-connect'),
    status: status.optional(),
    ports: z.array(z.int().min(1).max(65_535)).readonly().optional(),
  }),
  /** Answers with bytes of another protocol. */
  z.strictObject({ how: z.literal('garbage') }),
  /**
   * Works, but sends each byte of its own answers separately, `ms` apart (default: in the next turn of the event loop).
   */
  z.strictObject({ how: z.literal('dribble'), ms: ms.optional() }),
  /** Sends half of its answer, then ends the connection. */
  z.strictObject({ how: z.literal('partial') }),
  /** Ends the connection without an answer. */
  z.strictObject({ how: z.literal('close'), when }),
  /** Resets the connection without an answer. */
  z.strictObject({ how: z.literal('reset'), when }),
  /** Answers with a protocol version that does not exist. */
  z.strictObject({ how: z.literal('wrong-version') }),
  /** Sends an answer whose head never ends. */
  z.strictObject({ how: z.literal('endless-head') }),
  /** Works, but resets the tunnel after this many bytes from the target to the client. */
  z.strictObject({ how: z.literal('cut'), afterBytes: count }),
]);

export type Behaviour = Readonly<z.infer<typeof behaviourSchema>>;

/** What the transport, or a server in between, does to an answer of the service. */
export const faultSchema = z.discriminatedUnion('fault', [
  /** Closes the port for `forMs` (default 1000), for this call and all others. */
  z.strictObject({ fault: z.literal('refuse'), forMs: ms.optional() }),
  z.strictObject({ fault: z.literal('reset') }),
  /** Ends the connection without an answer. */
  z.strictObject({ fault: z.literal('close') }),
  /** Never answers. */
  z.strictObject({ fault: z.literal('hang') }),
  /** Answers this status with an HTML page, as a firewall does. */
  z.strictObject({ fault: z.literal('status'), status }),
  z.strictObject({ fault: z.literal('garbage') }),
  /** Redirects with 302 to `to` (default: the same call at another path of this server). */
  z.strictObject({ fault: z.literal('redirect'), to: z.string().optional() }),
  /** Sends a body of `bytes` (default 8 MiB) that begins like JSON. */
  z.strictObject({ fault: z.literal('huge'), bytes: count.optional() }),
  // For this fault and those below, the service decides the call first, and the fault alters its answer.
  /** Delays the answer. */
  z.strictObject({ fault: z.literal('delay'), ms }),
  /** Sends the head at once, the body in small pieces over `ms`. */
  z.strictObject({ fault: z.literal('slow'), ms }),
  /** Sends the answer in a format other than the requested one. */
  z.strictObject({ fault: z.literal('wrong-format') }),
  /** Sends the answer with a byte order mark. */
  z.strictObject({ fault: z.literal('bom') }),
  /** Sends half of the body, then ends the connection. */
  z.strictObject({ fault: z.literal('truncated') }),
]);

export type ServiceFault = Readonly<z.infer<typeof faultSchema>>;

/** A code. It may be a number, because YAML reads an unquoted code as one. */
const code = z.union([z.string(), z.int()]).transform(String);

const answerSchema = z.union([
  /** A refusal by the service; the code `10001` is a success with an empty list. */
  z.strictObject({ code, msg: z.string().optional() }),
  /** Sends exactly these bytes, in UTF-8. */
  z.strictObject({ body: z.string(), contentType: z.string().optional(), status: status.optional() }),
  faultSchema,
]);

export type RuleAnswer = Readonly<z.infer<typeof answerSchema>>;

/** A rule that answers matching calls in place of the service. */
export const ruleSchema = z.strictObject({
  /** The operation to match; default: every operation. */
  operation: z.enum(OPERATION_NAMES).optional(),
  /** The instance to match; default: every instance. */
  instance: z.string().optional(),
  /** How many matching calls pass before the first one is answered. Default 0. */
  after: count.optional(),
  /** How many calls are answered. Default: all until the rule is removed. */
  times: count.min(1).optional(),
  answer: answerSchema,
});

export type Rule = Readonly<z.infer<typeof ruleSchema>>;

/** How some of the new members behave. The first of these rules that matches a new member decides. */
const memberRuleSchema = z.strictObject({
  /** The product to match; default: every product. */
  product: z.enum(SANDBOX_PRODUCTS).optional(),
  /** Matches only the first members of an instance, up to this number. */
  first: count.optional(),
  /** Matches with this probability, 0 to 1. Default 1. */
  share: z.number().min(0).max(1).optional(),
  behaviour: behaviourSchema,
});

export type MemberRule = Readonly<z.infer<typeof memberRuleSchema>>;

const scenarioSchema = z.strictObject({
  rules: z.array(ruleSchema).readonly().optional(),
  members: z.array(memberRuleSchema).readonly().optional(),
});

export type Scenario = Readonly<z.infer<typeof scenarioSchema>>;

/** @throws NoriaError `bad-config` that names the file and every invalid field. */
export async function loadScenario(path: string): Promise<Scenario> {
  let content: unknown;
  try {
    content = parse(await readFile(path, 'utf8'));
  } catch (cause) {
    throw new NoriaError('bad-config', `${path}: cannot be read: ${describeError(cause)}`, { cause });
  }
  return decode(scenarioSchema, content ?? {}, path);
}

/** @throws NoriaError `bad-config` that names the content (`what`) and every invalid field. */
export function decode<T>(schema: z.ZodType<T>, content: unknown, what: string): T {
  const result = schema.safeParse(content);
  if (result.success) return result.data;
  const errors = result.error.issues.map(
    ({ path, message }) => `${path.join('.') || 'top level'}: ${message}`,
  );
  throw new NoriaError('bad-config', `${what}: ${errors.join('; ')}`);
}

/** How a scenario makes the nth new member (from 0) of an instance behave; undefined if no rule matches. */
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
