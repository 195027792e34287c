/** What can be set of an instance: how its members are, and how it stands at the service; with every default. */

import type { Behaviour } from './member-behaviour.ts';
import { SANDBOX_PRODUCTS, type SandboxProduct } from './operations.ts';
import type { ClientLogin } from './proxy-request.ts';

/** What can be set for each instance, and for all of them at once. */
export interface CommonSettings {
  /** Distinct proxies that exist at one time (for each protocol). Default 20. */
  readonly members?: number | undefined;
  /** How long a proxy lives, ms: a range or one value. It then wins over `timespan`. Default: what the product says. */
  readonly lifetimeMs?: number | readonly [least: number, most: number] | undefined;
  /** Tunnels of a proxy whose life is over are cut this much later. Default 0. */
  readonly graceMs?: number | undefined;
  /** The share of new proxies whose port is closed, from 0 to 1. Default 0. */
  readonly dead?: number | undefined;
  /** The share of new proxies that let each connection wait `slowMs`. Default 0. */
  readonly slow?: number | undefined;
  /** Default 2000. */
  readonly slowMs?: number | undefined;
  /** Least time between two calls, instead of the operation's own limit; 0 enforces none. */
  readonly paceMs?: number | undefined;
  /** `ip`: proxies ask for nothing; `password`: for the instance's id and password. Default `ip`. */
  readonly auth?: 'ip' | 'password' | undefined;
  /** Decides how the nth proxy (from 0) of an instance behaves; undefined leaves it to `dead` and `slow`. */
  readonly behaviour?: ((n: number) => Behaviour | undefined) | undefined;
}

/** The state of an instance at the service; each may be changed while the sandbox runs. */
export interface Condition {
  /** Most proxies for one call. Default 20; free 100. */
  singlePullLimit: number;
  expired: boolean;
  /** Exclusive: days until it expires, as the list of instances tells it. */
  daysLeft: number;
  frozen: boolean;
  /** Pure edition: 12008. */
  restricted: boolean;
  /** False: 12010, 12019 or 17008, by operation. */
  deviceAuthorised: boolean;
  /** False, in mode `ip`: 12007. Pure edition: whether a whitelist is set. */
  terminalIpBound: boolean;
  /** How distinct IPs are counted: a daily total, a total for good, or not at all (then `surplus_count` is not told). */
  accounting: 'centralized' | 'pay-per-use' | 'even';
  /** The total that `accounting` counts against; pure edition: a day. Default 10,000. */
  distinctLimit: number;
  /** Proxies handed out in all; then 12008. Default null: none. */
  usageLimit: number | null;
  /** Connections open through the instance's proxies at a time (operation 1); then 12008. Default null: none. */
  connectionLimit: number | null;
  /** Bytes through the instance's proxies (operation 5); then 12008. Default null: none. */
  trafficLimitBytes: number | null;
}

/** What is left out stays. */
export type ConditionChange = { readonly [K in keyof Condition]?: Condition[K] | undefined };

export interface InstanceOptions extends CommonSettings, Partial<Condition> {
  readonly product: SandboxProduct;
  /** Default: eighteen digits. */
  readonly id?: string;
  /** In clear: the sandbox's passwords protect nothing. Default: eight characters. */
  readonly password?: string;
  /** The entry fields that JSON and XML answers carry; default all of the operation. */
  readonly fields?: readonly string[];
  /** Custom extraction format of the Text type, with the operation's brace tags: `{ip}:{port},{adr}`. */
  readonly textLayout?: string;
  /** Pure edition: whether `out_ip` is told. Default true. */
  readonly showOutIp?: boolean;
}

/** An instance's settings with its identity settled. */
export type SettledOptions = InstanceOptions & { readonly id: string; readonly password: string };

const DEFAULT_SINGLE_PULL_LIMIT = 20;
const FREE_PULL_LIMIT = 100;
const DEFAULT_DISTINCT_LIMIT = 10_000;
const DEFAULT_DAYS_LEFT = 30;

/**
 * Fills in ids and passwords where they are not given: eighteen digits by product and place among its like, and
 * `sandbox` with a digit.
 *
 * @throws TypeError when two instances have one id.
 */
export function settleIdentities(given: readonly InstanceOptions[]): readonly SettledOptions[] {
  const settled = given.map((options, at) => {
    const number = SANDBOX_PRODUCTS.indexOf(options.product) + 1;
    const alike = given.slice(0, at).filter(({ product }) => product === options.product).length;
    const id = options.id ?? `2026010100000${number}000${alike + 1}`;
    return { ...options, id, password: options.password ?? `sandbox${number}` };
  });
  const ids = new Set(settled.map(({ id }) => id));
  if (ids.size < settled.length) throw new TypeError('two instances of the sandbox have the same id');
  return settled;
}

/** What proxies of an instance ask for: nothing in terminal-IP mode, and nothing ever of free ones. */
export function loginOf({ auth, product, id, password }: SettledOptions): ClientLogin | undefined {
  return auth === 'password' && product !== 'free' ? { username: id, password } : undefined;
}

/** How an instance stands at first. */
export function conditionOf(options: InstanceOptions): Condition {
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
