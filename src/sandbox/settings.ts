/** The settings of an instance and their defaults: how its members behave, and its state at the service. */
import { z } from 'zod';
import { SANDBOX_PRODUCTS, type SandboxProduct } from './operations.ts';
import type { Behaviour } from './scenario.ts';

export interface ClientLogin {
  readonly username: string;
  readonly password: string;
}

export interface CommonSettings {
  /** The maximum number of living proxies of each protocol. Default 20. */
  readonly members?: number | undefined;
  /** Whether a call may get a living proxy again. Default true. If false, every call gets new ones, whatever `members` says. */
  readonly repeats?: boolean | undefined;
  /** Overrides the parameter `timespan`. Default: at least `timespan`, at most the maximum of the product. */
  readonly lifetimeMs?: number | readonly [min: number, max: number] | undefined;
  /** How long, in ms, open connections through a proxy may continue after it has expired. Default 0. */
  readonly graceMs?: number | undefined;
  /** The share of new proxies whose port is closed, 0 to 1. Default 0. */
  readonly dead?: number | undefined;
  /** The share of new proxies that wait `slowMs` before they serve a connection, 0 to 1. Default 0. */
  readonly slow?: number | undefined;
  /** How long slow proxies wait, in ms. Default 2000. */
  readonly slowMs?: number | undefined;
  /** The minimum time between two calls, in ms, instead of the operation's rate limit. 0: no limit. */
  readonly paceMs?: number | undefined;
  readonly auth?: 'ip' | 'password' | undefined;
  readonly behaviour?: ((n: number) => Behaviour | undefined) | undefined;
}

const count = z.int().min(0);
const limit = count.nullable();

export const conditionSchema = z.strictObject({
  singlePullLimit: count.min(1),
  expired: z.boolean(),
  daysLeft: z.number(),
  frozen: z.boolean(),
  restricted: z.boolean(),
  deviceAuthorised: z.boolean(),
  terminalIpBound: z.boolean(),
  /** How distinct IPs are counted: per day, in total, or not at all (answers then have no `surplus_count`). */
  accounting: z.enum(['centralized', 'pay-per-use', 'even']),
  /** The maximum number of distinct IPs, counted as `accounting` says. */
  distinctLimit: count,
  // At each of these limits, calls get 12008. null: no maximum.
  /** Operations 2, 4, 5 and 8: proxies handed out in total. */
  usageLimit: limit,
  /** Operation 1: open connections through the proxies. */
  connectionLimit: limit,
  /** Operation 5: bytes through the proxies. */
  trafficLimitBytes: limit,
});

export type Condition = z.infer<typeof conditionSchema>;

export type ConditionChange = { readonly [K in keyof Condition]?: Condition[K] | undefined };

export interface InstanceOptions extends CommonSettings, Partial<Condition> {
  readonly product: SandboxProduct;
  /** The id of the instance. Default: a generated number of eighteen digits. */
  readonly id?: string;
  /** In clear text, because it is not secret. Default: `sandbox` with the product's number. */
  readonly password?: string;
  /** The fields of each proxy in JSON and XML answers. Default: all fields of the operation. */
  readonly fields?: readonly string[];
  /** A line of the Text format, for example `{ip}:{port},{adr}`. The names in braces are fields. */
  readonly textLayout?: string;
  /** Only for `short-pure`: whether answers contain `out_ip`. Default true. */
  readonly showOutIp?: boolean;
}

export type IdentifiedOptions = InstanceOptions & { readonly id: string; readonly password: string };

const INITIAL: Condition = {
  singlePullLimit: 20,
  expired: false,
  daysLeft: 30,
  frozen: false,
  restricted: false,
  deviceAuthorised: true,
  terminalIpBound: true,
  accounting: 'centralized',
  distinctLimit: 10_000,
  usageLimit: null,
  connectionLimit: null,
  trafficLimitBytes: null,
};
const FREE_PULL_LIMIT = 100;

export function fillInIdentities(given: readonly InstanceOptions[]): readonly IdentifiedOptions[] {
  const identified = given.map((options, at) => {
    const number = SANDBOX_PRODUCTS.indexOf(options.product) + 1;
    const sameProduct = given.slice(0, at).filter(({ product }) => product === options.product).length;
    const id = options.id ?? `2026010100000${number}000${sameProduct + 1}`;
    return { ...options, id, password: options.password ?? `sandbox${number}` };
  });
  const ids = new Set(identified.map(({ id }) => id));
  if (ids.size < identified.length) throw new TypeError('two instances of the sandbox have the same id');
  return identified;
}

export function loginOf({ auth, product, id, password }: IdentifiedOptions): ClientLogin | undefined {
  return auth === 'password' && product !== 'free' ? { username: id, password } : undefined;
}

export function initialCondition(options: InstanceOptions): Condition {
  const own = Object.entries(options).filter(([name, value]) => name in INITIAL && value !== undefined);
  const product = options.product === 'free' ? { singlePullLimit: FREE_PULL_LIMIT } : {};
  return { ...INITIAL, ...product, ...Object.fromEntries(own) };
}
