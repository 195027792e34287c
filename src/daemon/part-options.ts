/**
 * Translates the configuration into the options of each part. No other file knows both the configuration and the
 * options.
 */
import { createHash } from 'node:crypto';
import { availableParallelism } from 'node:os';
import type {
  Config,
  GatewaySource,
  LinkSource,
  ListenerConfig,
  ListSource,
  ServiceSource,
  SourceConfig,
} from '../config/config.ts';
import { DAY_MS } from '../core/duration.ts';
import { type LoopGuard, makeMark } from '../core/front-proxy.ts';
import { hostPort } from '../core/host-port.ts';
import { isSame } from '../core/is-same.ts';
import { type BoundAddress, boundAddresses, isOwnMember, overlap } from '../core/listen-address.ts';
import { isPrivateAddress } from '../core/networks.ts';
import type { Secret } from '../core/secret.ts';
import type { DialerSettings } from '../dialer/dialer.ts';
import { openFrontTunnel } from '../dialer/front-proxy.ts';
import type { SourceSettings } from '../dialer/source-memory.ts';
import type { FleetInstance } from '../fleet/redis/seal.ts';
import type { SourceKeys } from '../fleet/source-keys.ts';
import type { ListenerSettings, PlaneContext } from '../plane/data-plane.ts';
import type { PoolSettings, PoolSourceOptions } from '../pool/options.ts';
import type { ProberSettings } from '../prober/prober.ts';
import type { DrawSourceOptions, RefillSettings } from '../refill/options.ts';
import { paceKey } from '../refill/pace.ts';
import type { ServiceClientOptions } from '../service/client.ts';
import type { RefuseAddress } from '../service/decode.ts';
import { defaultLifetimeMs, maxLifetimeMs, type SourceProduct } from '../service/operations.ts';
import type { CountlessCall, ExtractCall, LinkCall } from '../service/request.ts';

/**
 * The lifetime in ms that the pool assumes for a member if neither the service nor the source states one. After each
 * success, the pool assumes this lifetime again.
 */
const UNKNOWN_LIFETIME_MS = 600_000;
/** A member of a list lives until it leaves the list: each reading renews this lifetime. */
const LIST_LIFETIME_MS = 30 * DAY_MS;

export function callOf(config: Config, source: SourceConfig): CountlessCall {
  switch (source.product) {
    case 'link':
      return linkCallOf(source);
    case 'gateway':
      return gatewayCallOf(source);
    case 'list':
      return listCallOf(source);
    default:
      return serviceCallOf(config, source);
  }
}

function linkCallOf(source: LinkSource): Omit<LinkCall, 'count'> {
  const { product, method, baseUrl, instance, url, headers, body, secrets, answer, entryLogin } = source;
  return {
    ...{ product, method, baseUrl, instance, url, headers, secrets, params: {} },
    ...(body !== undefined && { body }),
    rules: answer,
    login: entryLogin,
    protocol: source.upstream.protocol,
  };
}

function gatewayCallOf({ product, instance, host, port, account, upstream }: GatewaySource): CountlessCall {
  const { username, password } = account;
  const { protocol = 'http' } = upstream;
  return { product, instance, host, port, username, password, protocol, secrets: [password], params: {} };
}

function listCallOf(source: ListSource): CountlessCall {
  const { product, instance, url, file, secrets, answer, entryLogin, upstream, baseUrl } = source;
  const facts = { product, instance, url, file, secrets, params: {}, ...(baseUrl && { baseUrl }) };
  return { ...facts, rules: answer, login: entryLogin, protocol: upstream.protocol };
}

function serviceCallOf(config: Config, source: ServiceSource): Omit<ExtractCall, 'count'> {
  const { product, instance, key, params, format, textLayout, baseUrl, extractHost } = source;
  return {
    product,
    method: config.service.method,
    instance,
    key,
    params,
    format,
    ...(textLayout !== undefined && { textLayout }),
    ...(baseUrl !== undefined && { baseUrl }),
    ...(extractHost !== undefined && { extractHost }),
  };
}

export function serviceTunnel(
  { service: { via } }: Config,
  guard: LoopGuard,
): ServiceClientOptions['openTunnel'] {
  return via && ((server, done) => openFrontTunnel({ front: via, server, guard }, done));
}

export function guardOfCommand(config: Config): LoopGuard {
  return { mark: makeMark(), ownAddresses: () => configuredAddresses(config) };
}

/** The secrets of a source. noria masks them in every text of the service that it stores. */
export function secretsOf(source: SourceConfig) {
  const { auth } = source.upstream;
  const credentials = auth.kind === 'none' ? undefined : auth.credentials;
  const own =
    source.product === 'gateway'
      ? [source.account.password]
      : 'secrets' in source
        ? source.secrets
        : [source.key, source.password];
  return [...own, credentials?.password].filter((secret) => secret !== undefined);
}

/**
 * Maps source names to the keys of their instances in the fleet, and keys back to source names. If several sources draw
 * from one instance, its key maps to the first of these sources.
 */
export function sourceKeys(config: () => Config): SourceKeys {
  const keyOfSource = (source: SourceConfig) => paceKey(callOf(config(), source));
  const found = (fits: (source: SourceConfig) => boolean) => config().sources.find(fits);
  return {
    keyOf(name) {
      const source = found((each) => each.name === name);
      return source === undefined ? name : keyOfSource(source);
    },
    sourceOf: (key) => found((source) => keyOfSource(source) === key)?.name,
  };
}

/** The instances from which noria draws. Of several sources with one instance, the first one counts. */
export function fleetInstances(config: Config): FleetInstance[] {
  const byKey = new Map<string, FleetInstance>();
  for (const source of config.sources) {
    const key = paceKey(callOf(config, source));
    const { intervalMs, size, params } = source;
    const secret = secretOfInstance(source);
    if (secret === undefined) continue; // a list without a secret could be forged, so each noria reads its own
    const sorted = Object.entries(params).sort(([one], [other]) => (one < other ? -1 : 1));
    const settings = { intervalMs, size, params: digestOf(JSON.stringify(sorted)) };
    if (!byKey.has(key)) byKey.set(key, { key, secret: secret.reveal(), settings });
  }
  return [...byKey.values()];
}

function secretOfInstance(source: SourceConfig): Secret | undefined {
  if (source.product === 'link' || source.product === 'list') return source.url;
  return source.product === 'gateway' ? source.account.password : source.key;
}

function digestOf(text: string): string {
  return createHash('sha256').update(text).digest('hex').slice(0, 12);
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

/**
 * Returns the addresses that the configuration gives to listeners and APIs. Before they are bound, noria refuses
 * members at these addresses.
 */
export function configuredAddresses({ listeners, admin, proxyPool }: Config): BoundAddress[] {
  const sections = [...listeners, admin, proxyPool].filter((section) => section !== undefined);
  return sections.flatMap(({ address }) => boundAddresses(address));
}

/** Vendors sell the members of a gateway by traffic, all others by the piece. */
export function pricesOf({ sources }: Config, name: string): { perMember: number; perGb: number } {
  const { product, price = 0 } = sources.find((source) => source.name === name) ?? {};
  return product === 'gateway' ? { perMember: 0, perGb: price } : { perMember: price, perGb: 0 };
}

export function poolSettings(config: Config): PoolSettings {
  const { pool, rotation, health } = config;
  const targets = config.targets.map(({ spacing, rate, ...rule }) => ({
    ...rule,
    spacingMs: spacing,
    ratePerSecond: rate === 'off' ? 0 : rate,
  }));
  return { ...pool, rotation, health, targets, sources: config.sources.map(poolSourceOptions) };
}

function poolSourceOptions({
  name,
  priority,
  size,
  lifetimeMs,
  product,
  params,
  upstream,
}: SourceConfig): PoolSourceOptions {
  // The members of a free source differ in their protocols and in the languages of their locations. So this function
  // sets neither one protocol nor one language for a free source.
  const isFree = product === 'free';
  const longest = maxLifetimeMs(product, params);
  return {
    name,
    priority,
    size,
    unknownLifetimeMs: lifetimeMs ?? (product === 'list' ? LIST_LIFETIME_MS : UNKNOWN_LIFETIME_MS),
    ...(longest !== undefined && { maxLifetimeMs: longest }),
    ...(!isFree && upstream.protocol !== undefined && { protocol: upstream.protocol }),
    locationParams: { adr: params.adr, nadr: params.nadr },
    mixedLocations: isFree,
  };
}

export function refillSettings(config: Config): RefillSettings {
  return {
    sources: config.sources.map((source) => drawSourceOptions(config, source)),
    fill: config.pool.fill,
    idleAfterMs: config.pool.idleAfterMs,
    callTimeoutMs: config.service.timeoutMs,
  };
}

function drawSourceOptions(config: Config, source: SourceConfig): DrawSourceOptions {
  const { name, intervalMs, count, size, priority, dailyBudget, product, upstream } = source;
  return {
    name,
    call: callOf(config, source),
    secrets: secretsOf(source),
    intervalMs,
    count,
    size,
    priority,
    dailyBudget,
    protocol: upstream.protocol,
    unproven: isUnproven(product),
    defaultLifetimeMs: defaultLifeOf(source),
    refreshMs: source.product === 'list' ? source.refreshMs : undefined,
    rotate: source.product === 'list' ? source.rotate : undefined,
    whitelist: source.whitelist,
  };
}

function defaultLifeOf({ product, params, lifetimeMs }: SourceConfig): number | undefined {
  if (product === 'gateway') return lifetimeMs;
  return lifetimeMs === undefined && product !== 'list' ? defaultLifetimeMs(product, params) : undefined;
}

export function dialerSettings(config: Config): DialerSettings {
  return {
    ...config.dial,
    sources: new Map(config.sources.map((source) => [source.name, sourceSettings(source)])),
  };
}

export function readinessLimits({ dial, service }: Config): { clientWaitMs: number; drawTimeoutMs: number } {
  return { clientWaitMs: dial.waitForMemberMs, drawTimeoutMs: service.timeoutMs };
}

export function proberSettings(config: Config): ProberSettings {
  const unproven = config.sources.filter(({ product }) => isUnproven(product));
  return { check: config.health.check, unprovenSources: new Set(unproven.map(({ name }) => name)) };
}

/**
 * Whether a member must pass a probe before clients use it. Many free proxies have stopped working by the time that
 * noria draws them.
 */
function isUnproven(product: SourceProduct): boolean {
  return product === 'free';
}

function sourceSettings({ instance, product, upstream, password }: SourceConfig): SourceSettings {
  const { auth } = upstream;
  const isFree = product === 'free';
  return {
    auth: auth.kind === 'always' ? auth.credentials : auth.kind,
    instance,
    ...(password !== undefined && { password }),
    neverInstance: isFree,
    oneAccount: product === 'gateway',
    forwardMode: isFree ? 'absolute' : 'direct',
    handshake: upstream.handshake,
  };
}

export function listenerSettings(config: Config): ListenerSettings[] {
  return config.listeners.map(listenerSettingsOf);
}

function listenerSettingsOf({ session, source, tls, ...rest }: ListenerConfig): ListenerSettings {
  return {
    ...rest,
    sessionMode: session,
    ...(source !== undefined && { source }),
    ...(tls !== undefined && { tls: { cert: tls.cert, key: tls.key } }),
  };
}

export function planeContext({ sources }: Config, apiAddresses: readonly BoundAddress[]): PlaneContext {
  return { sourceNames: sources.map(({ name }) => name), apiAddresses };
}

/**
 * Whether a listener has an address that the next configuration gives to the admin API or to proxyPool. Such a listener
 * must release the address first.
 */
export function apiNeedsListenerAddress({ listeners }: Config, { admin, proxyPool }: Config): boolean {
  const wanted = [admin, proxyPool].filter((section) => section !== undefined);
  return listeners.some((listener) => wanted.some(({ address }) => overlap(listener.address, address)));
}
