/** Translates the configuration into the options of each part. */
import { createHash } from 'node:crypto';
import { availableParallelism } from 'node:os';
import type { Config, SourceConfig } from '../config/config.ts';
import { DAY_MS } from '../core/duration.ts';
import { type LoopGuard, makeMark } from '../core/front-proxy.ts';
import { hostPort } from '../core/host-port.ts';
import { type BoundAddress, boundAddresses, isOwnMember, overlap } from '../core/listen-address.ts';
import { isPrivateAddress } from '../core/networks.ts';
import { isSame } from '../core/secret.ts';
import { openFrontTunnel } from '../dialer/front-proxy.ts';
import type { DialerSettings } from '../dialer/limits.ts';
import type { SourceSettings } from '../dialer/source-memory.ts';
import type { FleetInstance } from '../fleet/redis/seal.ts';
import type { SourceKeys } from '../fleet/source-keys.ts';
import type { PlaneContext } from '../plane/local-plane.ts';
import type { PoolSettings } from '../pool/options.ts';
import type { ProberSettings } from '../prober/prober.ts';
import type { RefillSettings } from '../refill/options.ts';
import { paceKey } from '../refill/pace.ts';
import type { RefuseAddress } from '../service/decode.ts';
import { defaultLifetimeMs, maxLifetimeMs, type SourceProduct } from '../service/operations.ts';
import type { CountlessCall } from '../service/request.ts';
import type { OpenTunnel } from '../service/transport.ts';

/** Of a member for which neither the service nor the source states one. Each success renews it. */
const UNKNOWN_LIFETIME_MS = 600_000;
/** A member of a list lives until it leaves the list: each reading renews this lifetime. */
const LIST_LIFETIME_MS = 30 * DAY_MS;

export function callOf({ service }: Config, source: SourceConfig): CountlessCall {
  const { instance, params, upstream } = source;
  const { protocol } = upstream;
  switch (source.product) {
    case 'link': {
      const { product, method, baseUrl, url, headers, body, secrets, answer, login } = source;
      const address = { baseUrl, url, headers, body };
      return { product, method, instance, params, ...address, secrets, answer, login, protocol };
    }
    case 'gateway': {
      const { product, host, port, account, secrets } = source;
      return { product, instance, params, host, port, ...account, protocol: protocol ?? 'http', secrets };
    }
    case 'list': {
      const { product, baseUrl, url, file, secrets, answer, login } = source;
      return { product, instance, params, baseUrl, url, file, secrets, answer, login, protocol };
    }
    default: {
      const { product, key, format, textLayout, baseUrl, extractHost } = source;
      const { method } = service;
      return { product, method, instance, key, params, format, textLayout, baseUrl, extractHost };
    }
  }
}

export function serviceTunnel({ service: { via } }: Config, guard: LoopGuard): OpenTunnel | undefined {
  return via && ((server, done) => openFrontTunnel({ front: via, server, guard }, done));
}

export function guardOfCommand(config: Config): LoopGuard {
  return { mark: makeMark(), ownAddresses: () => configuredAddresses(config) };
}

/** Names of sources, and the keys of their instances in the fleet. A shared key belongs to its first source. */
export function sourceKeys(config: () => Config): SourceKeys {
  const found = (fits: (source: SourceConfig) => boolean) => config().sources.find(fits);
  return {
    keyOf(name) {
      const source = found((each) => each.name === name);
      return source === undefined ? name : paceKey(source);
    },
    sourceOf: (key) => found((source) => paceKey(source) === key)?.name,
  };
}

/** The instances from which noria draws. Of several sources with one instance, the first one counts. */
export function fleetInstances(config: Config): FleetInstance[] {
  const byKey = new Map<string, FleetInstance>();
  for (const source of config.sources) {
    const key = paceKey(source);
    const { intervalMs, size } = source;
    const params = { ...source.params, ...(source.count !== undefined && { count: source.count }) };
    const secret =
      source.product === 'gateway' ? source.account.password : 'url' in source ? source.url : source.key;
    // a list without a secret could be forged, so each noria reads its own
    if (secret === undefined || byKey.has(key)) continue;
    const sorted = Object.entries(params).sort(([one], [other]) => (one < other ? -1 : 1));
    const digest = createHash('sha256').update(JSON.stringify(sorted)).digest('hex').slice(0, 12);
    byKey.set(key, { key, secret: secret.reveal(), settings: { intervalMs, size, params: digest } });
  }
  return [...byKey.values()];
}

export function workersOf({ workers }: Config): number {
  return workers === 'auto' ? availableParallelism() : workers;
}

export function changesForRestart(started: Config, next: Config): string[] {
  const keys = {
    'state.dir': [started.state, next.state],
    workers: [started.workers, next.workers],
    fleet: [started.fleet, next.fleet],
    'log.format': [started.log.format, next.log.format],
  } as const;
  return Object.entries(keys).flatMap(([name, [one, other]]) => (isSame(one, other) ? [] : [name]));
}

export function refusesOf(config: Config, ownAddresses: readonly BoundAddress[]): RefuseAddress {
  const { allowPrivateAddresses } = config.pool;
  return (host, port) => {
    const address = hostPort(host, port);
    if (address !== undefined && isOwnMember(address, ownAddresses)) return 'own';
    return !allowPrivateAddresses && isPrivateAddress(host) ? 'private' : undefined;
  };
}

/** Before they are bound, noria refuses members at these addresses. */
export function configuredAddresses({ listeners, admin, proxyPool }: Config): BoundAddress[] {
  const sections = [...listeners, admin, proxyPool].filter((section) => section !== undefined);
  return sections.flatMap(({ address }) => boundAddresses(address));
}

export function poolSettings(config: Config): PoolSettings {
  const { pool, rotation, health, targets } = config;
  return { ...pool, rotation, health, targets, sources: config.sources.map(poolSourceOptions) };
}

function poolSourceOptions(source: SourceConfig): PoolSettings['sources'][number] {
  const { name, priority, size, lifetimeMs, product, params, upstream } = source;
  // The members of a free source differ in their protocols and in the languages of their locations. So this function
  // sets neither one protocol nor one language for a free source.
  const isFree = product === 'free';
  return {
    ...{ name, priority, size },
    unknownLifetimeMs: lifetimeMs ?? (product === 'list' ? LIST_LIFETIME_MS : UNKNOWN_LIFETIME_MS),
    maxLifetimeMs: maxLifetimeMs(product, params),
    protocol: isFree ? undefined : upstream.protocol,
    locationParams: { adr: params.adr, nadr: params.nadr },
    mixedLocations: isFree,
  };
}

export function refillSettings(config: Config): RefillSettings {
  const { fill, idleAfterMs } = config.pool;
  const sources = config.sources.map((source) => drawSourceOptions(config, source));
  return { sources, fill, idleAfterMs, callTimeoutMs: config.service.timeoutMs };
}

function drawSourceOptions(config: Config, source: SourceConfig): RefillSettings['sources'][number] {
  const { name, intervalMs, count, size, priority, dailyBudget, whitelist, secrets } = source;
  const { product, params, lifetimeMs, upstream } = source;
  const isPromised = lifetimeMs === undefined && product !== 'list';
  const promisedMs = isPromised ? defaultLifetimeMs(product, params) : undefined;
  return {
    ...{ name, intervalMs, count, size, priority, dailyBudget, whitelist, secrets },
    call: callOf(config, source),
    protocol: upstream.protocol,
    unproven: isUnproven(product),
    defaultLifetimeMs: product === 'gateway' ? lifetimeMs : promisedMs,
    ...(source.product === 'list' && { refreshMs: source.refreshMs, rotate: source.rotate }),
  };
}

/** Whether a member must pass a probe before clients use it: many free proxies work no longer when noria draws them. */
const isUnproven = (product: SourceProduct) => product === 'free';

export function dialerSettings(config: Config): DialerSettings {
  const sources = config.sources.map(({ name, instance, product, upstream, password }) => {
    const { auth, handshake } = upstream;
    const isFree = product === 'free';
    const settings: SourceSettings = {
      ...{ instance, handshake, neverInstance: isFree, oneAccount: product === 'gateway' },
      auth: auth.kind === 'always' ? auth.credentials : auth.kind,
      ...(password !== undefined && { password }),
      forwardMode: isFree ? 'absolute' : 'direct',
    };
    return [name, settings] as const;
  });
  return { ...config.dial, sources: new Map(sources) };
}

export function proberSettings({ health, sources }: Config): ProberSettings {
  const unproven = sources.filter(({ product }) => isUnproven(product));
  return { check: health.check, unprovenSources: new Set(unproven.map(({ name }) => name)) };
}

export function planeContext({ sources }: Config, apiAddresses: readonly BoundAddress[]): PlaneContext {
  return { sourceNames: sources.map(({ name }) => name), apiAddresses };
}

/** Such a listener must release the address first. */
export function apiNeedsListenerAddress({ listeners }: Config, { admin, proxyPool }: Config): boolean {
  const wanted = [admin, proxyPool].filter((section) => section !== undefined);
  return listeners.some((listener) => wanted.some(({ address }) => overlap(listener.address, address)));
}
