/**
 * The HTTP APIs of a noria: the admin API, and proxyPool, which offers local ports as proxies, each a session of the pool.
 * Opens each API that the configuration has.
 */
import type { AdminBackend } from '../admin/backend.ts';
import type { HttpServer } from '../admin/http-server.ts';
import type { NoProxy, PortBackend } from '../admin/proxy-pool.ts';
import type { Config } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { hasPorts } from '../core/listen-address.ts';
import type { Log } from '../core/log.ts';
import type { Ownership } from '../core/ownership.ts';
import { readVersion } from '../core/version.ts';
import { Access, parseBasicCredentials } from '../listener/access.ts';
import { sessionOfPort } from '../listener/routing-options.ts';
import type { Pool } from '../pool/pool.ts';

/** The `protocol_type` of free HTTP proxies that accept CONNECT. */
const CONNECT_TYPE = 4;
/** The maximum of `waitMs`. Scrapers expect a quick answer from a proxy pool. */
const MAX_WAIT_MS = 5_000;
/** The time in ms after which clients should retry if no draw is planned. */
const NO_DRAW_RETRY_MS = 60_000;

/** The owner closes the servers. */
export async function openApis(
  config: Config,
  {
    owner,
    control,
    ...context
  }: {
    readonly owner: Ownership;
    readonly control: AdminBackend;
    readonly clock: Clock;
    readonly bus: EventBus;
    readonly log: Log;
    readonly pool: Pool;
  },
) {
  const { clock, bus, log } = context;
  const admin = new ServerSlot(async ({ address, token }: NonNullable<Config['admin']>) => {
    if (address.kind !== 'tcp') throw new TypeError('admin.address is not host:port');
    const { host, port } = address;
    const { openAdmin } = await import('../admin/server.ts'); // loaded only if the configuration has an admin API
    return openAdmin({
      ...{ host, port, clock, bus, backend: control, version: readVersion() },
      ...(token !== undefined && { token }),
      onError: (error) => log.error({ error: describeError(error) }, 'admin request failed'),
    });
  });
  owner.own('admin', () => admin.close());
  await admin.open(config.admin);
  const proxyPool = new ServerSlot((settings: ProxyPoolSettings) => openProxyPoolOf(settings, context));
  owner.own('proxyPool', () => proxyPool.close());
  await proxyPool.open(proxyPoolSettings(config));
  return { admin, proxyPool, addresses: () => [admin, proxyPool].flatMap(({ address = [] }) => address) };
}

/** Owns at most one server. A reload replaces it. */
export class ServerSlot<Settings> {
  readonly #listen: (settings: Settings) => Promise<HttpServer>;
  #server: HttpServer | undefined;
  #settings: Settings | undefined;

  constructor(listen: (settings: Settings) => Promise<HttpServer>) {
    this.#listen = listen;
  }

  get address(): { readonly host: string; readonly port: number } | undefined {
    return this.#server && { host: this.#server.host, port: this.#server.port };
  }

  /** Closes the previous server first, as the new one may need its address. Opens it again if the new one fails to. */
  async open(settings: Settings | undefined): Promise<void> {
    const before = this.#settings;
    await this.close();
    try {
      this.#server = settings && (await this.#listen(settings));
      this.#settings = settings;
    } catch (error) {
      this.#server = before && (await this.#listen(before));
      throw error;
    }
  }

  async close(): Promise<void> {
    const server = this.#server;
    this.#server = undefined;
    await server?.close();
  }
}

type ProxyPoolSettings = NonNullable<ReturnType<typeof proxyPoolSettings>>;

export function proxyPoolSettings(config: Config) {
  const { proxyPool, listeners, sources, dial } = config;
  const listener = proxyPool && listeners.find(({ address }) => hasPorts(address, proxyPool.ports));
  if (proxyPool?.address.kind !== 'tcp' || listener?.address.kind !== 'tcp') return undefined;
  const { users, allow, source, address } = listener;
  return {
    host: proxyPool.address.host,
    port: proxyPool.address.port,
    ports: { ...proxyPool.ports, host: address.host },
    access: { users, allow },
    source,
    /** The names of the sources whose HTTP members may refuse CONNECT. */
    withoutConnect: sources.flatMap(({ name, product, params }) =>
      product === 'free' && params['protocol_type'] !== CONNECT_TYPE ? [name] : [],
    ),
    waitMs: Math.min(dial.waitForMemberMs, MAX_WAIT_MS),
  };
}

async function openProxyPoolOf(
  settings: ProxyPoolSettings,
  context: { readonly clock: Clock; readonly bus: EventBus; readonly log: Log; readonly pool: Pool },
): Promise<HttpServer> {
  const { clock, bus, log, pool } = context;
  // Loaded only here, because most norias do not need it.
  const { openProxyPool } = await import('../admin/proxy-pool.ts');
  const { host, port, ports } = settings;
  const routing = (user: string, source = settings.source) => routingOf(ports.first, user, source);
  const access = new Access({ ...settings.access, denyTargets: [], clock });
  return openProxyPool({
    ...{ host, port, ports, clock },
    backend: {
      identify: (authorization, remoteAddress) => identify(access, authorization, remoteAddress),
      portsOf: (user) => portsOf(user, settings, pool),
      waitMs: (user, source) =>
        pool.isWorthWaiting(routing(user, source), settings.waitMs) ? settings.waitMs : 0,
      onMember: (fn) => onMember(bus, fn),
      whyNone: (user, source) => whyNone(pool, routing(user, source)),
    },
    onError: (error) => log.error({ error: describeError(error) }, 'proxyPool request failed'),
  });
}

function identify(
  access: Access,
  authorization: string | undefined,
  remoteAddress: string | undefined,
): string | NoriaError {
  if (!access.admits(remoteAddress)) {
    const message = 'the allow list of the listener does not contain the address of this client';
    return new NoriaError('forbidden', message);
  }
  const identity = access.identify(parseBasicCredentials(authorization), remoteAddress);
  return identity instanceof NoriaError ? identity : identity.user;
}

export function portsOf(
  user: string,
  settings: { readonly source: string | undefined; readonly withoutConnect: readonly string[] },
  pool: Pool,
): PortBackend {
  const sessionOf = (port: number) => sessionOfPort(port, user).session;
  return {
    memberOf: (port) => pool.memberOfSession(sessionOf(port)),
    assign({ port, source = settings.source, taken, mode }) {
      if (settings.source !== undefined && source !== settings.source) return undefined;
      const routing = routingOf(port, user, source);
      const member = pool.assignMember({ session: sessionOf(port), routing, taken, mode });
      if (member === undefined) return undefined;
      return {
        ...member,
        https: member.protocol !== 'http' || !settings.withoutConnect.includes(member.source),
      };
    },
    reject: (port) => void pool.rejectMemberOf(sessionOf(port)),
    move: (port) => void pool.rotateSession(sessionOf(port)),
  };
}

function routingOf(port: number, user: string, source: string | undefined) {
  return { ...sessionOfPort(port, user), ...(source !== undefined && { source }) };
}

function whyNone(pool: Pool, routing: ReturnType<typeof routingOf>): NoProxy {
  const { reason, sources, retryAfterMs = NO_DRAW_RETRY_MS } = pool.refusalFor(routing);
  const states = sources.map(({ name, state, reason: why }) => `Source ${name}: ${state} (${why}).`);
  return {
    reason: [reason, ...states].join(' '),
    retryAfterSeconds: Math.max(1, Math.ceil(retryAfterMs / 1000)),
  };
}

function onMember(bus: EventBus, fn: () => void): Disposable {
  const subscriptions = [bus.on('member.joined', fn), bus.on('member.restored', fn)];
  return {
    [Symbol.dispose]: () => {
      for (const subscription of subscriptions) subscription[Symbol.dispose]();
    },
  };
}
