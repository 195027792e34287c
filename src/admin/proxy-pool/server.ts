/**
 * The server of proxyPool. Its HTTP API is that of public proxy pools. It hands out local ports, each of which is
 * assigned to one member. Every user has its own ring of ports.
 *
 * In this API, GET requests change state. So the server refuses all requests that a web page of another site could
 * cause, as the admin server does.
 */

import { getConnInfo } from '@hono/node-server/conninfo';
import { type Context, Hono } from 'hono';
import type { Clock } from '../../core/clock.ts';
import { NoriaError } from '../../core/faults.ts';
import { formatHostPort, parseHostPort } from '../../core/host-port.ts';
import type { BoundAddress } from '../../core/listen-address.ts';
import { localHostOf } from '../../core/listen-address.ts';
import { isLoopbackAddress } from '../../core/networks.ts';
import { guard } from '../guard.ts';
import { type HttpServer, openHttpServer } from '../http-server.ts';
import { sendError } from '../openapi.ts';
import { describeCount, describeProxy, describeRoutes, NO_PROXY, type RoutePath } from './answers.ts';
import { type HandedOut, type PortBackend, type PortFilter, PortRing } from './port-ring.ts';

interface ProxyPoolOptions {
  readonly host: string;
  readonly port: number;
  readonly ports: PortRange;
  readonly clock: Clock;
  readonly backend: ProxyPoolBackend;
  /** Called for an unexpected error in a route; the client gets status 500. */
  readonly onError: (error: unknown) => void;
}

/** The ports to hand out. They all belong to one listener. */
export interface PortRange {
  /** The host of this listener; may be a wildcard address. */
  readonly host: string;
  readonly first: number;
  readonly last: number;
}

interface ProxyPoolBackend {
  /**
   * Returns the user of a request; '' if the listener has no users.
   * @param authorization - the value of the Authorization header.
   * @returns a NoriaError (forbidden, auth-required or too-many-requests) if the client may not use the ports.
   */
  identify(authorization: string | undefined, remoteAddress: string | undefined): string | NoriaError;
  portsOf(user: string): PortBackend;
  /** The maximum time in ms for which a request may wait for a member. 0 if no member can come within that time. */
  waitMs(user: string, source: string | undefined): number;
  /** Calls `fn` each time a member may have become usable. Disposing of the result ends the calls. */
  onMember(fn: () => void): Disposable;
  /** Returns why there is no proxy, and when to try again. */
  whyNone(user: string, source: string | undefined): NoProxy;
}

export interface NoProxy {
  readonly reason: string;
  readonly retryAfterSeconds: number;
}

const NAME = 'the address of proxyPool';
const METHODS = ['GET'] as const;

type PoolEnv = { Variables: { user: string; ring: PortRing } };
type PoolContext = Context<PoolEnv>;

/** Returns a server that already listens. @throws NoriaError listen-failed */
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
  app.use(guard({ name: NAME, address, openPaths: new Set(), hasRoute: () => false }));
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

/**
 * Adds the routes. The slash at the end of a path is optional except for `/all` and `/count`: public pools answer
 * `/all/` in JSON and `/all` as plain text.
 */
function addRoutes(app: Hono<PoolEnv>, { backend, clock, ports }: ProxyPoolOptions): void {
  const hostOf = (context: PoolContext) => proxyHost(ports.host, context.req.header('host'));
  const json = (context: PoolContext, found: HandedOut | undefined) =>
    context.json(found === undefined ? NO_PROXY : describeProxy(found, hostOf(context), clock.now()));
  const take = (context: PoolContext, how: 'next' | 'pop') => takePort(context, how, { backend, clock });
  const list = (context: PoolContext) => {
    const found = context.var.ring.all(filterOf(context));
    return context.json(found.map((one) => describeProxy(one, hostOf(context), clock.now())));
  };
  const count = (context: PoolContext) =>
    context.json(describeCount(context.var.ring.all(filterOf(context))));
  const routes: Readonly<Record<RoutePath, (context: PoolContext) => Response | Promise<Response>>> = {
    '/': (context) => context.json(describeRoutes()),
    '/get/': async (context) => json(context, await take(context, 'next')),
    '/pop/': async (context) => json(context, await take(context, 'pop')),
    '/random': async (context) => {
      const found = await take(context, 'next');
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

/**
 * Returns `path` and its variant with or without a slash at the end. Omits the variant if it has its own entry in
 * `routes`.
 */
function pathsOf(path: string, routes: object): readonly string[] {
  const other = path.endsWith('/') ? path.slice(0, -1) : `${path}/`;
  return other === '' || Object.hasOwn(routes, other) ? [path] : [path, other];
}

/** Waits for a member if necessary. The pool of an idle noria is empty until a client wants a member. */
async function takePort(
  context: PoolContext,
  how: 'next' | 'pop',
  { backend, clock }: Pick<ProxyPoolOptions, 'backend' | 'clock'>,
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

/**
 * Returns the host of the proxies in an answer. If the listener of the ports has a wildcard address, this is the host
 * from the request's Host header. The guard has checked this header.
 */
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

/** Refuses the client: only clients that may use the ports may use this API. */
function refuse(context: Context, { code, fault, context: facts }: NoriaError): Response {
  const { retryAfterMs } = facts;
  if (code === 'auth-required') context.header('WWW-Authenticate', 'Basic realm="noria", charset="UTF-8"');
  if (typeof retryAfterMs === 'number') context.header('Retry-After', String(Math.ceil(retryAfterMs / 1000)));
  const status = code === 'auth-required' ? 401 : code === 'too-many-requests' ? 429 : 403;
  return context.json({ error: { code, message: `${fault.summary} ${fault.advice}` } }, status);
}
