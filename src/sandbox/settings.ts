/** The settings of an instance: how its members behave and what its state at the service is, with every default. */
import { z } from 'zod';
import { SANDBOX_PRODUCTS, type SandboxProduct } from './operations.ts';
import type { ClientLogin } from './proxy-request.ts';
import type { Behaviour } from './scenario.ts';

/** What can be set for each instance, and for all of them at once. */
export interface CommonSettings {
  /** The number of distinct proxies that exist at a time (for each protocol). Default 20. */
  readonly members?: number | undefined;
  /** How long a proxy lives, in ms: a range or one value. Overrides `timespan`. Default: what the product specifies. */
  readonly lifetimeMs?: number | readonly [min: number, max: number] | undefined;
  /** How long the tunnels of an expired proxy stay open. Default 0. */
  readonly graceMs?: number | undefined;
  /** The share of new proxies whose port is closed, from 0 to 1. Default 0. */
  readonly dead?: number | undefined;
  /** The share of new proxies that delay each connection by `slowMs`. Default 0. */
  readonly slow?: number | undefined;
  /** The delay of slow proxies. Default 2000. */
  readonly slowMs?: number | undefined;
  /** Minimum time between two calls, in place of the operation's own limit; 0 enforces none. */
  readonly paceMs?: number | undefined;
  /** `ip`: proxies need no credentials; `password`: they ask for the instance's id and password. Default `ip`. */
  readonly auth?: 'ip' | 'password' | undefined;
  /** How the nth proxy (from 0) of an instance behaves; undefined leaves it to `dead` and `slow`. */
  readonly behaviour?: ((n: number) => Behaviour | undefined) | undefined;
}

const count = z.int().min(0);
const limit = count.nullable();

/** The state of an instance at the service. It may change while the sandbox runs. */
export const conditionSchema = z.strictObject({
  /** Maximum number of proxies per call. Default 20; free 100. */
  singlePullLimit: count.min(1),
  expired: z.boolean(),
  /** Exclusive product: days until the instance expires, as the list of instances reports. */
  daysLeft: z.number(),
  frozen: z.boolean(),
  /** Pure edition: calls are refused with 12008. */
  restricted: z.boolean(),
  /** If false, calls are refused with 12010, 12019 or 17008, depending on the operation. */
  deviceAuthorised: z.boolean(),
  /** If false, calls in mode `ip` are refused with 12007. Pure edition: whether a whitelist is set. */
  terminalIpBound: z.boolean(),
  /** How distinct IPs are counted: per day, in total, or not at all (then `surplus_count` is left out). */
  accounting: z.enum(['centralized', 'pay-per-use', 'even']),
  /** Maximum number of distinct IPs, counted as `accounting` says. Default 10,000. */
  distinctLimit: count,
  /** Maximum number of proxies handed out in total. Beyond it, the service answers 12008. Default null: no maximum. */
  usageLimit: limit,
  /** Maximum number of open connections through the instance's proxies (operation 1); then 12008. Default null: none. */
  connectionLimit: limit,
  /** Maximum number of bytes through the instance's proxies (operation 5); then 12008. Default null: none. */
  trafficLimitBytes: limit,
});

export type Condition = z.infer<typeof conditionSchema>;

/** A change of the condition. Missing fields do not change. */
export type ConditionChange = { readonly [K in keyof Condition]?: Condition[K] | undefined };

export interface InstanceOptions extends CommonSettings, Partial<Condition> {
  readonly product: SandboxProduct;
  /** The id. Default: eighteen digits. */
  readonly id?: string;
  /** The password in clear text, because it protects nothing. Default: eight characters. */
  readonly password?: string;
  /** The entry fields of JSON and XML answers; default: all fields of the operation. */
  readonly fields?: readonly string[];
  /** The custom extraction format of the Text type, with the tags of the operation in braces: `{ip}:{port},{adr}`. */
  readonly textLayout?: string;
  /** Pure edition: whether answers contain `out_ip`. Default true. */
  readonly showOutIp?: boolean;
}

/** An instance's settings with its id and password filled in. */
export type IdentifiedOptions = InstanceOptions & { readonly id: string; readonly password: string };

const DEFAULT_SINGLE_PULL_LIMIT = 20;
const FREE_PULL_LIMIT = 100;
const DEFAULT_DISTINCT_LIMIT = 10_000;
const DEFAULT_DAYS_LEFT = 30;

/**
 * Fills in missing ids and passwords. An id is eighteen digits made of the product's number and the position among the
 * instances of that product, a password `sandbox` with the product's number.
 *
 * @throws TypeError when two instances have the same id.
 */
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

/** The credentials that an instance's proxies ask for: none in terminal-IP mode, and none for free proxies. */
export function loginOf({ auth, product, id, password }: IdentifiedOptions): ClientLogin | undefined {
  return auth === 'password' && product !== 'free' ? { username: id, password } : undefined;
}

/** The condition in which an instance starts. */
export function initialCondition(options: InstanceOptions): Condition {
  return {
    singlePullLimit:
      options.singlePullLimit ?? (options.product === 'free' ? FREE_PULL_LIMIT : DEFAULT_SINGLE_PULL_LIMIT),
    expired: options.expired ?? false,
    daysLeft: options.daysLeft ?? DEFAULT_DAYS_LEFT,
    frozen: options.frozen ?? false,
    restricted: options.restricted ?? false,
    deviceAuthorised: options.deviceAuthorised ?? true,
    terminalIpBound: options.terminalIpBound ?? true,
    accounting: options.accounting ?? 'centralized',
    distinctLimit: options.distinctLimit ?? DEFAULT_DISTINCT_LIMIT,
    usageLimit: options.usageLimit ?? null,
    connectionLimit: options.connectionLimit ?? null,
    trafficLimitBytes: options.trafficLimitBytes ?? null,
  };
}
