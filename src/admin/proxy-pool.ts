/**
 * The server of proxyPool. Its HTTP API is that of public proxy pools. It hands out local ports, each of which is
 * assigned to one member. Every user has its own ring of ports.
 *
 * In this API, GET requests change state. So the server refuses all requests that a web page of another site could
 * cause, as the admin server does.
 */

import { getConnInfo } from '@hono/node-server/conninfo';
import { type Context, Hono } from 'hono';
import type { Clock } from '../core/clock.ts';
import { MINUTE_MS, SECOND_MS } from '../core/duration.ts';
import { FAULTS, NoriaError } from '../core/faults.ts';
import { formatHostPort, parseHostPort } from '../core/host-port.ts';
import { type BoundAddress, localHostOf } from '../core/listen-address.ts';
import { isLoopbackAddress } from '../core/networks.ts';
import { guard, type HttpServer, openHttpServer } from './http-server.ts';
import { sendError } from './openapi.ts';

interface ProxyPoolOptions {
  readonly host: string;
  readonly port: number;
  readonly ports: PortRange;
  readonly clock: Clock;
  readonly backend: {
    /**
     * Returns the user of a request; '' if the listener has no users.
     * @param authorization - the value of the Authorization header.
     * @returns a NoriaError (forbidden, auth-required or too-many-requests) if the client may not use the ports.
     */
    identify(authorization: string | undefined, remoteAddress: string | undefined): string | NoriaError;
    portsOf(user: string): PortBackend;
    waitMs(user: string, source: string | undefined): number;
    onMember(fn: () => void): Disposable;
    whyNone(user: string, source: string | undefined): NoProxy;
  };
  readonly onError: (error: unknown) => void;
}

export interface PortRange {
  readonly host: string;
  readonly first: number;
  readonly last: number;
}

export interface NoProxy {
  readonly reason: string;
  readonly retryAfterSeconds: number;
}

const NAME = 'the address of proxyPool';
const METHODS = ['GET'] as const;

type PoolEnv = { Variables: { user: string; ring: PortRing } };
type PoolContext = Context<PoolEnv>;

export async function openProxyPool(options: ProxyPoolOptions): Promise<HttpServer> {
  const rings = new Map<string, PortRing>();
  const { host, port } = options;
  const server = await openHttpServer({
    name: NAME,
    host,
    port,
    methods: METHODS,
    handler: (address) => buildApp(options, address, rings).fetch,
  });
  return {
    ...server,
    async close() {
      for (const ring of rings.values()) ring.close();
      await server.close();
    },
  };
}

function buildApp(options: ProxyPoolOptions, address: () => BoundAddress, rings: Map<string, PortRing>) {
  const { backend, clock, ports } = options;
  const app = new Hono<PoolEnv>();
  app.use(guard({ name: NAME, address, token: undefined, openPaths: new Set(), hasRoute: () => false }));
  app.use(async (context, next) => {
    const { method } = context.req;
    if (method !== 'GET' && method !== 'HEAD') {
      context.header('Allow', 'GET, HEAD');
      return sendError(context, 'method-not-allowed', 'allowed methods: GET, HEAD');
    }
    const user = backend.identify(context.req.header('authorization'), getConnInfo(context).remote.address);
    if (user instanceof NoriaError) return refuse(context, user);
    context.set('user', user);
    context.set('ring', ringOf(user));
    return next();
  });
  addRoutes(app, options);
  app.notFound((context) => sendError(context, 'not-found', 'no such route; GET / lists the routes'));
  app.onError((error, context) => {
    options.onError(error);
    return sendError(context, 'internal', 'internal error of noria: see the log of noria');
  });
  return app;

  function ringOf(user: string): PortRing {
    const known = rings.get(user);
    if (known !== undefined) return known;
    const numbers = Array.from({ length: ports.last - ports.first + 1 }, (_, index) => ports.first + index);
    const ring = new PortRing(clock, backend.portsOf(user), numbers);
    rings.set(user, ring);
    return ring;
  }
}

function addRoutes(app: Hono<PoolEnv>, options: ProxyPoolOptions): void {
  const { backend, clock, ports } = options;
  const hostOf = (context: PoolContext) => proxyHost(ports.host, context.req.header('host'));
  const json = (context: PoolContext, found: HandedOut | undefined) =>
    context.json(found === undefined ? NO_PROXY : describeProxy(found, hostOf(context), clock.now()));
  const list = (context: PoolContext) => {
    const found = context.var.ring.all(filterOf(context));
    return context.json(found.map((one) => describeProxy(one, hostOf(context), clock.now())));
  };
  const count = (context: PoolContext) =>
    context.json(describeCount(context.var.ring.all(filterOf(context))));
  const routes: Readonly<
    Record<keyof typeof ROUTES, (context: PoolContext) => Response | Promise<Response>>
  > = {
    '/': (context) => context.json(describeRoutes()),
    '/get/': async (context) => json(context, await takePort(context, 'next', options)),
    '/pop/': async (context) => json(context, await takePort(context, 'pop', options)),
    '/random': async (context) => {
      const found = await takePort(context, 'next', options);
      if (found !== undefined) return context.text(formatHostPort(hostOf(context), found.port));
      const { reason, retryAfterSeconds } = backend.whyNone(context.var.user, context.req.query('source'));
      context.header('Retry-After', String(retryAfterSeconds));
      return context.text(`no proxy: ${reason}\n`, 503);
    },
    '/all': (context) => {
      const found = context.var.ring.all(filterOf(context));
      return context.text(found.map(({ port }) => `${formatHostPort(hostOf(context), port)}\n`).join(''));
    },
    '/all/': list,
    '/get_all/': list,
    '/count': (context) => context.text(String(context.var.ring.all(filterOf(context)).length)),
    '/count/': count,
    '/get_status/': count,
    '/delete/': (context) => {
      const port = portOf(context.req.query('proxy'), hostOf(context));
      return context.json({ code: 0, src: port !== undefined && context.var.ring.reject(port) ? 1 : 0 });
    },
  };
  for (const [path, handle] of Object.entries(routes)) {
    for (const accepted of pathsOf(path, routes)) app.get(accepted, handle);
  }
}

function pathsOf(path: string, routes: object): readonly string[] {
  const other = path.endsWith('/') ? path.slice(0, -1) : `${path}/`;
  return other === '' || Object.hasOwn(routes, other) ? [path] : [path, other];
}

async function takePort(
  context: PoolContext,
  how: 'next' | 'pop',
  { backend, clock }: ProxyPoolOptions,
): Promise<HandedOut | undefined> {
  const { ring, user } = context.var;
  const filter = filterOf(context);
  const untilAt = clock.monotonic() + backend.waitMs(user, filter.source);
  for (;;) {
    const found = ring[how](filter);
    const leftMs = untilAt - clock.monotonic();
    if (found !== undefined || leftMs <= 0) return found;
    const chance = Promise.withResolvers<void>();
    const waits = [backend.onMember(chance.resolve), clock.after(leftMs, chance.resolve)];
    await chance.promise;
    for (const wait of waits) wait[Symbol.dispose]();
  }
}

function filterOf({ req }: PoolContext): PortFilter {
  const source = req.query('source');
  const https = req.query('type')?.toLowerCase() === 'https';
  return source === undefined || source === '' ? { https } : { https, source };
}

function proxyHost(listenerHost: string, hostHeader: string | undefined): string {
  const local = localHostOf(listenerHost);
  if (local === listenerHost) return listenerHost;
  const host = parseHostPort(hostHeader ?? '', 80)?.host ?? local;
  return host === 'localhost' ? local : host;
}

/** Returns the port of `HOST:PORT`, with or without a scheme. Returns undefined if the host is not this machine. */
function portOf(proxy: string | undefined, host: string): number | undefined {
  const address = parseHostPort((proxy ?? '').replace(/^\w+:\/\//, '').replace(/\/$/, ''));
  if (address === undefined) return undefined;
  const isOurs = address.host === host || address.host === 'localhost' || isLoopbackAddress(address.host);
  return isOurs ? address.port : undefined;
}

function refuse(context: Context, { code, context: facts }: NoriaError): Response {
  const { retryAfterMs } = facts;
  const { summary, advice } = FAULTS[code];
  if (code === 'auth-required') context.header('WWW-Authenticate', 'Basic realm="noria", charset="UTF-8"');
  if (typeof retryAfterMs === 'number') context.header('Retry-After', String(Math.ceil(retryAfterMs / 1000)));
  const status = code === 'auth-required' ? 401 : code === 'too-many-requests' ? 429 : 403;
  return context.json({ error: { code, message: `${summary} ${advice}` } }, status);
}

/**
 * The answer of `/get/` and `/pop/` if there is no proxy. Its status is 200, because scrapers of public pools do not
 * check the status.
 */
const NO_PROXY = { code: 0, src: 'no proxy' } as const;

export const ROUTES = {
  '/': 'this list',
  '/get/': 'a proxy as JSON: the proxy that noria has not handed out for the longest time',
  '/pop/': 'the same as `/get/`; after 60 s, noria assigns another member to the port of this proxy',
  '/random': 'the same as `/get/`, as plain text: `127.0.0.1:24003`',
  '/all/': 'all proxies, as a JSON list',
  '/get_all/': 'the same as `/all/`',
  '/all': 'all proxies as plain text, one on each line',
  '/count/':
    'the number of proxies, as JSON: `{"count": {"total": 20, "https": 20}, "source": {"city": 20}}`',
  '/get_status/': 'the same as `/count/`',
  '/count': 'the number of proxies, as plain text',
  '/delete/':
    '`{"code": 0, "src": 1}`. The parameter `?proxy=127.0.0.1:24003` names a port whose member is bad; noria assigns another member to this port',
} as const;

function describeRoutes() {
  const filters = "type: 'https' | '', source: NAME";
  const paramsOf = (path: string) => (path === '/delete/' ? 'proxy: HOST:PORT' : path === '/' ? '' : filters);
  return { url: Object.entries(ROUTES).map(([url, desc]) => ({ url, params: paramsOf(url), desc })) };
}

function describeProxy({ port, member }: HandedOut, host: string, now: number) {
  const { https, faults, location, source, uses, remainingMs, sinceSuccessMs } = member;
  return {
    proxy: formatHostPort(host, port),
    https,
    fail_count: Math.ceil(faults),
    region: location,
    anonymous: '',
    source,
    check_count: uses,
    last_status: faults === 0,
    last_time: formatLocalTime(now - sinceSuccessMs),
    expires_in: remainingMs === undefined ? null : Math.max(0, Math.floor(remainingMs / SECOND_MS)),
  };
}

function describeCount(found: readonly HandedOut[]) {
  const sources: Record<string, number> = {};
  for (const { member } of found) sources[member.source] = (sources[member.source] ?? 0) + 1;
  const https = found.filter(({ member }) => member.https).length;
  return { count: { total: found.length, https }, source: sources };
}

/** Formats a moment as `2026-11-22 10:43:03` in this machine's time zone, as the public pools do. */
function formatLocalTime(epochMs: number): string {
  const offsetMs = new Date(epochMs).getTimezoneOffset() * MINUTE_MS;
  return new Date(epochMs - offsetMs).toISOString().slice(0, 'YYYY-MM-DD HH:MM:SS'.length).replace('T', ' ');
}

export interface PortMember {
  readonly id: string;
  readonly source: string;
  readonly location: string;
  readonly https: boolean;
  readonly uses: number;
  readonly faults: number;
  readonly remainingMs: number | undefined;
  readonly sinceSuccessMs: number;
}

type PortFilter = Readonly<{ source?: string; https: boolean }>;

interface PortAssignment {
  readonly port: number;
  readonly source?: string;
  readonly taken: ReadonlyMap<string, unknown>;
  /**
   * Which member the port may get. `keep`: only its current member. `fill`: another member only if the current one
   * no longer works. `move`: like `fill`, but also if the current one is not of `source` and the port has no open
   * tunnels.
   */
  readonly mode: 'keep' | 'fill' | 'move';
}

export interface PortBackend {
  memberOf(port: number): string | undefined;
  assign(request: PortAssignment): PortMember | undefined;
  reject(port: number): void;
  move(port: number): void;
}

interface HandedOut {
  readonly port: number;
  readonly member: PortMember;
}

interface RingPort {
  readonly port: number;
  lastHandOut: number;
  /** Whether the port was handed out and its member has not been reported as bad since then. */
  isOut: boolean;
  moving: Disposable | undefined;
}

export const POP_MS = 60_000;

/**
 * Hands out the local ports of proxyPool to one user. The port that was not handed out for the longest time comes
 * first.
 *
 * Each port gets a member, and keeps it while the member works. If the member no longer works, the port gets a member
 * that no other port has. If there are fewer members than ports, ports that were handed out may share a member. A port
 * that a client got with `/pop/` is called popped: after POP_MS, it moves to another member. Owns the timers of these
 * moves.
 */
export class PortRing {
  readonly #clock: Clock;
  readonly #backend: PortBackend;
  readonly #ports: ReadonlyMap<number, RingPort>;
  #handOuts = 0;

  constructor(clock: Clock, backend: PortBackend, ports: readonly number[]) {
    this.#clock = clock;
    this.#backend = backend;
    const fresh = { lastHandOut: 0, isOut: false, moving: undefined };
    this.#ports = new Map(ports.map((port) => [port, { port, ...fresh }]));
  }

  next(filter: PortFilter): HandedOut | undefined {
    const found =
      this.#serving(filter, 'fill').next().value ??
      (filter.source === undefined ? undefined : this.#serving(filter, 'move').next().value);
    if (found === undefined) return undefined;
    const { ringPort, member } = found;
    this.#handOuts += 1;
    ringPort.lastHandOut = this.#handOuts;
    ringPort.isOut = true;
    return { port: ringPort.port, member };
  }

  pop(filter: PortFilter): HandedOut | undefined {
    const found = this.next(filter);
    const ringPort = found && this.#ports.get(found.port);
    if (ringPort === undefined) return found;
    ringPort.moving ??= this.#clock.after(POP_MS, () => {
      ringPort.moving = undefined;
      this.#backend.move(ringPort.port);
    });
    return found;
  }

  all(filter: PortFilter): HandedOut[] {
    const found = [...this.#serving(filter, 'fill')].map(({ ringPort, member }) => {
      ringPort.isOut = true;
      return { port: ringPort.port, member };
    });
    return found.sort((one, other) => one.port - other.port);
  }

  /**
   * Handles a client's report that the member of a port is bad. Only the first report since the port was handed out
   * counts, because clients that share a port may report the same failure.
   * @returns whether this report counts.
   */
  reject(port: number): boolean {
    const ringPort = this.#ports.get(port);
    if (ringPort?.isOut !== true) return false;
    ringPort.isOut = false;
    ringPort.moving?.[Symbol.dispose]();
    ringPort.moving = undefined;
    this.#backend.reject(port);
    return true;
  }

  close(): void {
    for (const { moving } of this.#ports.values()) moving?.[Symbol.dispose]();
  }

  *#serving(
    filter: PortFilter,
    mode: PortAssignment['mode'],
  ): Generator<{ ringPort: RingPort; member: PortMember }, undefined> {
    const source = filter.source === undefined ? {} : { source: filter.source };
    const taken = new Map<string, number>();
    const take = (id: string | undefined, change: 1 | -1): void => {
      if (id === undefined) return;
      const count = (taken.get(id) ?? 0) + change;
      if (count === 0) taken.delete(id);
      else taken.set(id, count);
    };
    for (const port of this.#ports.keys()) take(this.#backend.memberOf(port), 1);
    let nextMode = mode;
    for (const ringPort of this.#inOrder()) {
      const { port } = ringPort;
      const before = this.#backend.memberOf(port);
      take(before, -1);
      const member = this.#backend.assign({ port, ...source, taken, mode: nextMode });
      take(this.#backend.memberOf(port), 1);
      if (member !== undefined && (member.https || !filter.https)) yield { ringPort, member };
      // no free member is left: the remaining ports get no other member
      if (member === undefined && before === undefined) nextMode = 'keep';
    }
  }

  #inOrder(): RingPort[] {
    const isPopped = ({ moving }: RingPort) => (moving === undefined ? 0 : 1);
    return [...this.#ports.values()].sort(
      (one, other) =>
        isPopped(one) - isPopped(other) || one.lastHandOut - other.lastHandOut || one.port - other.port,
    );
  }
}
