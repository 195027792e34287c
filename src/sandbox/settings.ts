/** The settings of an instance with their defaults: how its members behave, and its state at the service. */
import { z } from 'zod';
import { SANDBOX_PRODUCTS, type SandboxProduct } from './operations.ts';
import type { ClientLogin } from './proxy-request.ts';
import type { Behaviour } from './scenario.ts';

/** Settings for one instance, or for all of them. */
export interface CommonSettings {
  /** The maximum number of living proxies (for each protocol). Default 20. */
  readonly members?: number | undefined;
  /**
   * How long a proxy lives, in ms: one value or a range. Overrides the parameter `timespan`. Default: as the product
   * specifies.
   */
  readonly lifetimeMs?: number | readonly [min: number, max: number] | undefined;
  /** How long open connections through a proxy may continue after its expiry, in ms. Default 0. */
  readonly graceMs?: number | undefined;
  /** The share of new proxies whose port is closed, from 0 to 1. Default 0. */
  readonly dead?: number | undefined;
  /** The share of new proxies that delay each new connection by `slowMs`, from 0 to 1. Default 0. */
  readonly slow?: number | undefined;
  /** The delay of slow proxies, in ms. Default 2000. */
  readonly slowMs?: number | undefined;
  /** The minimum time between two calls, in ms. Replaces the operation's rate limit; 0: no limit. */
  readonly paceMs?: number | undefined;
  /**
   * How clients authenticate at the proxies. `ip`: proxies need no credentials; `password`: they require the instance's id and
   * password. Default `ip`.
   */
  readonly auth?: 'ip' | 'password' | undefined;
  /** Returns the behaviour of the nth proxy (from 0) of an instance. Undefined: `dead` and `slow` decide. */
  readonly behaviour?: ((n: number) => Behaviour | undefined) | undefined;
}

const count = z.int().min(0);
const limit = count.nullable();

/** The state of an instance at the service. It can change while the sandbox runs. */
export const conditionSchema = z.strictObject({
  /** The maximum number of proxies per call. Default 20, for the free product 100. */
  singlePullLimit: count.min(1),
  expired: z.boolean(),
  /** Exclusive product: the days until the instance expires, as operation 10 reports them. */
  daysLeft: z.number(),
  frozen: z.boolean(),
  /** Only for the pure edition: if true, all calls get 12008. */
  restricted: z.boolean(),
  /** If false, all calls of operations with a code for this case get 12010, 12019 or 17008. */
  deviceAuthorised: z.boolean(),
  /**
   * If false and `auth` is `ip`, all calls of paid products get 12007. In the pure edition, 12007 means that no
   * whitelist is set.
   */
  terminalIpBound: z.boolean(),
  /**
   * How distinct IPs are counted: `centralized` per day, `pay-per-use` in total, `even` not at all (answers then have
   * no `surplus_count`).
   */
  accounting: z.enum(['centralized', 'pay-per-use', 'even']),
  /** The maximum number of distinct IPs, which `accounting` counts. Default 10,000. */
  distinctLimit: count,
  /**
   * The maximum number of proxies handed out in total. When it is reached, calls get 12008. Default null: no maximum.
   */
  usageLimit: limit,
  /**
   * Operation 1: the maximum number of open connections through the proxies. When it is reached, calls get 12008.
   * Default null: no maximum.
   */
  connectionLimit: limit,
  /**
   * Operation 5: the maximum number of bytes through the proxies. When it is reached, calls get 12008. Default null: no
   * maximum.
   */
  trafficLimitBytes: limit,
});

export type Condition = z.infer<typeof conditionSchema>;

/** A change to some fields of the condition. The other fields keep their values. */
export type ConditionChange = { readonly [K in keyof Condition]?: Condition[K] | undefined };

export interface InstanceOptions extends CommonSettings, Partial<Condition> {
  readonly product: SandboxProduct;
  /** The id of the instance. Default: eighteen digits. */
  readonly id?: string;
  /**
   * The password in clear text, because the password of a sandbox is not secret. Default: `sandbox` with the product's number.
   */
  readonly password?: string;
  /** The fields of each proxy in JSON and XML answers; default: all fields of the operation. */
  readonly fields?: readonly string[];
  /** The custom format of a line in the Text format, with field names in braces: `{ip}:{port},{adr}`. */
  readonly textLayout?: string;
  /** Pure edition: whether answers contain `out_ip`. Default true. */
  readonly showOutIp?: boolean;
}

/** The settings of an instance with an id and a password. */
export type IdentifiedOptions = InstanceOptions & { readonly id: string; readonly password: string };

const DEFAULT_SINGLE_PULL_LIMIT = 20;
const FREE_PULL_LIMIT = 100;
const DEFAULT_DISTINCT_LIMIT = 10_000;
const DEFAULT_DAYS_LEFT = 30;

/**
 * Gives each instance an id and a password if it has none. The id has eighteen digits with the product's number and the
 * instance's position among those of its product.
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

/** The credentials that an instance's proxies require; undefined if `auth` is `ip` or the product is free. */
export function loginOf({ auth, product, id, password }: IdentifiedOptions): ClientLogin | undefined {
  return auth === 'password' && product !== 'free' ? { username: id, password } : undefined;
}

/** The condition of a new instance. */
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
