/** A configuration as noria understands it: YAML with every default and no secret, as `noria check` prints it. */
import { Document } from 'yaml';
import { z } from 'zod';
import type { Config, Credentials, ListenerConfig, SourceConfig } from './config.ts';
import { type RawConfig, type RawListener, type RawSource, SCHEMA } from './schema.ts';

const NO_FOLDING = { lineWidth: 0 };

/** The effective configuration. Each secret is `[secret]`, each path absolute; what is off is left out, or says so. */
export function printConfig(config: Config): string {
  const texts = z.encode(SCHEMA, rawConfig(config));
  // In the failsafe schema every text stands for itself, so that 20 and false need no quotes.
  return new Document(withoutUndefined(texts), { schema: 'failsafe' }).toString(NO_FOLDING);
}

/** The way back from resolve.ts; the compiler sees to it that no key is forgotten. */
function rawConfig(config: Config): RawConfig {
  const { service, account, pool, rotation, dial, health, admin, log, state, shutdown } = config;
  return {
    service: { baseUrl: service.baseUrl, method: service.method, timeout: service.timeoutMs },
    account: account && { username: account.username, key: account.key },
    sources: config.sources.map(rawSource),
    pool: {
      size: pool.size,
      idleAfter: pool.idleAfterMs,
      safetyMargin: pool.safetyMarginMs,
      minRemaining: pool.minRemainingMs,
      allowPrivateAddresses: pool.allowPrivateAddresses,
    },
    rotation: {
      strategy: rotation.strategy,
      maxTunnelsPerMember: rotation.maxTunnelsPerMember,
      maxUsesPerMember: rotation.maxUsesPerMember,
      perHostSpacing: rotation.perHostSpacingMs,
      sessionTtl: rotation.sessionTtlMs,
    },
    dial: {
      attempts: dial.attempts,
      attemptTimeout: dial.attemptTimeoutMs,
      hedgeAfter: dial.hedgeAfter,
      deadline: dial.deadlineMs,
      waitForMember: dial.waitForMemberMs,
    },
    health: {
      maxFailures: health.maxFailures,
      quarantine: health.quarantineMs,
      check:
        health.check === undefined
          ? 'off'
          : {
              url: health.check.url,
              every: health.check.everyMs,
              timeout: health.check.timeoutMs,
              expectStatus: health.check.expectStatus,
            },
    },
    listeners: config.listeners.map(rawListener),
    admin: admin === undefined ? 'off' : { address: admin.address, token: admin.token },
    log: { level: log.level, format: log.format },
    state: state === undefined ? 'off' : { dir: state.dir },
    shutdown: { drainTimeout: shutdown.drainTimeoutMs },
    workers: config.workers,
  };
}

function rawSource(source: SourceConfig): RawSource {
  const { count, params, password, upstream } = source;
  const numbered = { ...(count === undefined ? {} : { count }), ...params };
  return {
    name: source.name,
    product: source.product,
    instance: source.instance,
    ...(password === undefined ? { akey: source.key } : { password }),
    params: Object.fromEntries(Object.entries(numbered).map(([name, value]) => [name, String(value)])),
    format: source.format,
    textLayout: source.textLayout,
    host: source.extractHost,
    baseUrl: source.baseUrl,
    upstream: { protocol: upstream.protocol, auth: rawAuth(source) },
    interval: source.intervalMs,
    dailyBudget: source.dailyBudget,
    lifetime: source.lifetimeMs,
    size: source.size,
    priority: source.priority,
  };
}

function rawAuth({ instance, password, upstream: { auth } }: SourceConfig): RawSource['upstream']['auth'] {
  if (auth.kind !== 'always') return auth.kind;
  const { credentials } = auth;
  return credentials.username === instance && credentials.password === password
    ? 'instance'
    : rawUser(credentials);
}

function rawListener(listener: ListenerConfig): RawListener {
  const { tls } = listener;
  return {
    address: listener.address,
    protocols: [...listener.protocols],
    tls: tls && { cert: tls.certFile, key: tls.keyFile },
    users: listener.users.map(rawUser),
    allow: [...listener.allow],
    denyTargets: [...listener.denyTargets],
    idleTimeout: listener.idleTimeoutMs,
    maxConnections: listener.maxConnections,
    source: listener.source,
    session: listener.session,
  };
}

function rawUser({ username, password }: Credentials): {
  username: string;
  password: Credentials['password'];
} {
  return { username, password };
}

/** YAML would write a key that is `undefined` as one without a value. */
function withoutUndefined(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutUndefined);
  if (typeof value !== 'object' || value === null) return value;
  const kept = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return Object.fromEntries(kept.map(([key, inner]) => [key, withoutUndefined(inner)]));
}
