/** From the configuration to each part's own options: the one place that knows both. */
import { availableParallelism } from 'node:os';
import type { Config, SourceConfig } from '../config/config.ts';
import { isSame } from '../core/is-same.ts';
import { overlap } from '../core/listen-address.ts';
import { isPrivateAddress } from '../core/networks.ts';
import { Secret } from '../core/secret.ts';
import type { DialerSettings } from '../dialer/dialer.ts';
import type { SourceSettings } from '../dialer/source-memory.ts';
import type { PoolSettings } from '../pool/options.ts';
import type { ProberSettings } from '../prober/prober.ts';
import type { DrawSourceOptions, RefillSettings } from '../refill/options.ts';
import type { RefuseAddress } from '../service/decode.ts';
import { defaultLifetimeMs, type Product } from '../service/operations.ts';
import type { ExtractCall } from '../service/request.ts';

/** A member whose lifetime nobody knows lives so long, renewed by success, where the source does not say. */
const UNKNOWN_LIFETIME_MS = 600_000;

/** What a call of a source is made with, but for the count. */
export function callOf(config: Config, source: SourceConfig): Omit<ExtractCall, 'count'> {
  return {
    product: source.product,
    method: config.service.method,
    instance: source.instance,
    key: source.key,
    params: source.params,
    format: source.format,
    ...(source.textLayout === undefined ? {} : { textLayout: source.textLayout }),
    ...(source.baseUrl === undefined ? {} : { baseUrl: source.baseUrl }),
    ...(source.extractHost === undefined ? {} : { extractHost: source.extractHost }),
  };
}

/** Every secret a source knows: masked in whatever text of an answer is kept. */
export function secretsOf(source: SourceConfig) {
  const { auth } = source.upstream;
  const credentials = auth.kind === 'none' ? undefined : auth.credentials;
  return [source.key, source.password, credentials?.password].filter((secret) => secret !== undefined);
}

/** Every secret of the whole configuration. */
export function secretsIn(config: unknown): Secret[] {
  if (config instanceof Secret) return [config];
  if (typeof config !== 'object' || config === null) return [];
  return Object.values(config).flatMap(secretsIn);
}

/** Processes that serve clients. */
export function workersOf({ workers }: Config): number {
  return workers === 'auto' ? availableParallelism() : workers;
}

/** Which of the sections that are read once, at the start, differ. */
export function waitsForRestart(before: Config, next: Config): string[] {
  const sections = {
    'state.dir': [before.state, next.state],
    workers: [before.workers, next.workers],
    'log.format': [before.log.format, next.log.format],
  } as const;
  return Object.entries(sections).flatMap(([name, [one, other]]) => (isSame(one, other) ? [] : [name]));
}

/** Which addresses of an answer are no members. */
export function refusesOf(config: Config, isOwn: (host: string, port: number) => boolean): RefuseAddress {
  const { allowPrivateAddresses } = config.pool;
  return (host, port) => {
    if (isOwn(host, port)) return 'own';
    return !allowPrivateAddresses && isPrivateAddress(host) ? 'private' : undefined;
  };
}

export function poolSettings(config: Config): PoolSettings {
  const { pool, rotation, health } = config;
  return {
    sources: config.sources.map(({ name, priority, size, lifetimeMs }) => ({
      name,
      priority,
      size,
      unknownLifetimeMs: lifetimeMs ?? UNKNOWN_LIFETIME_MS,
    })),
    rotation,
    safetyMarginMs: pool.safetyMarginMs,
    minRemainingMs: pool.minRemainingMs,
    health,
  };
}

export function refillSettings(config: Config): RefillSettings {
  return {
    sources: config.sources.map((source) => refillSource(config, source)),
    idleAfterMs: config.pool.idleAfterMs,
    callTimeoutMs: config.service.timeoutMs,
  };
}

function refillSource(config: Config, source: SourceConfig): DrawSourceOptions {
  const { name, intervalMs, count, size, priority, dailyBudget, product, params, upstream } = source;
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
    unproven: joinsUnproven(product),
    defaultLifetimeMs: source.lifetimeMs === undefined ? defaultLifetimeMs(product, params) : undefined,
  };
}

export function dialerSettings(config: Config): DialerSettings {
  return {
    ...config.dial,
    sources: new Map(config.sources.map((source) => [source.name, accessOf(source)])),
  };
}

export function proberSettings(config: Config): ProberSettings {
  const unproven = config.sources.filter(({ product }) => joinsUnproven(product));
  return { check: config.health.check, unprovenSources: new Set(unproven.map(({ name }) => name)) };
}

/** Most free proxies are dead on arrival: no client is the first to try one. */
function joinsUnproven(product: Product): boolean {
  return product === 'free';
}

function accessOf({ instance, product, upstream, password }: SourceConfig): SourceSettings {
  const { auth } = upstream;
  const free = product === 'free';
  return {
    auth: auth.kind === 'always' ? auth.credentials : auth.kind,
    instance,
    ...(password === undefined ? {} : { password }),
    neverInstance: free,
    forwardMode: free ? 'absolute' : 'direct',
  };
}

/** Whether the admin server is to have an address of a listener, which has to give it up first. */
export function adminWaits({ listeners }: Config, { admin }: Config): boolean {
  return admin !== undefined && listeners.some(({ address }) => overlap(address, admin.address));
}
