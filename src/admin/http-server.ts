/**
 * An HTTP server for a Hono app, with time limits, a connection limit, and a guard that decides which requests may use
 * it. The admin server and proxyPool use it. Each check of the guard prevents one attack:
 *
 * - Host: a web page whose own host name resolves to the admin address (DNS rebinding).
 * - Origin and Sec-Fetch-Site: a web page that makes the operator's browser send requests (CSRF).
 * - Token: any other client that can reach the address. The token is compared in constant time.
 * - Content type: CSRF by an HTML form, which cannot send application/json.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { createServer, type RequestListener, type Server } from 'node:http';
import type { Socket } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import type { HonoRequest, MiddlewareHandler } from 'hono';
import { formatHostPort, parseHostPort } from '../core/host-port.ts';
import { type BoundAddress, listenFailure } from '../core/listen-address.ts';
import { clientNetwork, isLoopbackAddress } from '../core/networks.ts';
import type { Secret } from '../core/secret.ts';
import { sendError } from './openapi.ts';

export interface HttpServer {
  readonly host: string;
  readonly port: number;
  close(): Promise<void>;
}

/** The time limits for a request's head and for the whole request. node:http checks them every TIMEOUT_CHECK_MS. */
const HEAD_TIMEOUT_MS = 5_000;
const REQUEST_TIMEOUT_MS = 10_000;
const TIMEOUT_CHECK_MS = 1_000;
const KEEP_ALIVE_MS = 5_000;
/** Limits the connections of one server, so that file descriptors remain for listeners and tunnels. */
export const MAX_ADMIN_CONNECTIONS = 256;

const SECURITY_HEADERS = {
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-store',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
} as const;

export async function openHttpServer({
  name,
  host,
  port,
  methods,
  handler,
}: BoundAddress & {
  readonly name: string;
  readonly methods: readonly string[];
  readonly handler: (address: () => BoundAddress) => Parameters<typeof getRequestListener>[0];
}): Promise<HttpServer> {
  const address = { host, port };
  const server = createServer(
    {
      headersTimeout: HEAD_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: TIMEOUT_CHECK_MS,
      keepAliveTimeout: KEEP_ALIVE_MS,
    },
    withoutTrace(getRequestListener(handler(() => address)), methods),
  );
  limitConnections(server);
  await listen(server, name, address);
  const bound = server.address();
  if (bound !== null && typeof bound === 'object') address.port = bound.port;
  return { ...address, close: () => closeServer(server) };
}

function withoutTrace(listener: RequestListener, methods: readonly string[]): RequestListener {
  return (request, response) => {
    if (request.method !== 'TRACE') return listener(request, response);
    const message = `allowed methods: ${methods.join(', ')}`;
    response.writeHead(405, {
      ...SECURITY_HEADERS,
      Allow: methods.join(', '),
      'Content-Type': 'application/json',
    });
    return response.end(JSON.stringify({ error: { code: 'method-not-allowed', message } }));
  };
}

function listen(server: Server, name: string, { host, port }: BoundAddress): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (cause) => reject(listenFailure(`${name} ${formatHostPort(host, port)}`, cause)));
    server.listen(port, host, resolve);
  });
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}

/**
 * Limits the connections of the server. A client is an IPv4 address or the /64 of an IPv6 address.
 *
 * A new connection beyond the limit closes the oldest connection of the client that has the most connections. So an
 * orchestrator can always check noria's health, even if another client holds many connections.
 */
function limitConnections(server: Server): void {
  const clients = new Map<string, Set<Socket>>();
  let count = 0;
  const remove = (client: string, socket: Socket): void => {
    const sockets = clients.get(client);
    if (sockets?.delete(socket) !== true) return; // already removed, when the limit closed the socket
    count -= 1;
    if (sockets.size === 0) clients.delete(client);
  };
  server.on('connection', (socket) => {
    const client = clientNetwork(socket.remoteAddress ?? '');
    const sockets = clients.get(client) ?? new Set();
    clients.set(client, sockets.add(socket));
    count += 1;
    socket.once('close', () => remove(client, socket));
    if (count <= MAX_ADMIN_CONNECTIONS) return;
    const [busiest, oldest] = oldestOfBusiest(clients);
    oldest.destroy();
    remove(busiest, oldest);
  });
}

function oldestOfBusiest(clients: ReadonlyMap<string, ReadonlySet<Socket>>): [string, Socket] {
  const [first, ...others] = clients;
  if (first === undefined) throw new TypeError('no connection');
  const [client, sockets] = others.reduce((most, next) => (next[1].size > most[1].size ? next : most), first);
  const [oldest] = sockets;
  if (oldest === undefined) throw new TypeError('no connection');
  return [client, oldest];
}

const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD']);

export function isSafe(method: string): boolean {
  return SAFE_METHODS.has(method);
}

/**
 * @param options.hasRoute - whether there is a route for the method and the path. Without one, the guard does not check
 * the content type, so that the answer is 404 or 405.
 */
export function guard(options: {
  readonly name: string;
  readonly address: () => BoundAddress;
  readonly token: Secret | undefined;
  readonly hasRoute: (method: string, path: string) => boolean;
  readonly openPaths: ReadonlySet<string>;
}): MiddlewareHandler {
  return async (context, next) => {
    const { req } = context;
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) context.header(name, value);
    if (!isOwnHost(req.header('host'), options.address())) {
      return sendError(
        context,
        'wrong-host',
        `the Host header names another host: use ${options.name} or localhost`,
      );
    }
    if (!isOwnOrigin(req.header('origin'), req.header('host')) || isCrossSite(req)) {
      return sendError(context, 'wrong-origin', 'noria refuses requests that pages of other sites make');
    }
    const { token, openPaths } = options;
    if (
      token !== undefined &&
      !openPaths.has(req.path) &&
      !isAuthorized(req.header('authorization'), token)
    ) {
      context.header('WWW-Authenticate', 'Bearer realm="noria"');
      return sendError(
        context,
        'token-required',
        'this path needs a token: send Authorization: Bearer TOKEN with the value of admin.token',
      );
    }
    const isJson = /^application\/json\b/i.test(req.header('content-type') ?? '');
    if (!isSafe(req.method) && !isJson && options.hasRoute(req.method, req.path)) {
      return sendError(
        context,
        'wrong-content-type',
        'a request that changes state needs Content-Type: application/json',
      );
    }
    return next();
  };
}

/**
 * Whether a page of another site caused the request, according to the Sec-Fetch headers. The result is false if the
 * user follows another site's link to the dashboard. That is safe, because no site can show the dashboard in a frame.
 */
function isCrossSite(req: HonoRequest): boolean {
  const site = req.header('sec-fetch-site') ?? 'none';
  if (site === 'same-origin' || site === 'none') return false;
  const isNavigation =
    isSafe(req.method) &&
    req.header('sec-fetch-mode') === 'navigate' &&
    req.header('sec-fetch-dest') === 'document';
  return !(req.path === '/' && isNavigation);
}

function isOwnHost(host: string | undefined, address: BoundAddress): boolean {
  const named = host === undefined ? undefined : parseHostPort(host, 80);
  if (named === undefined || named.port !== address.port) return false;
  if (named.host === 'localhost' || named.host === address.host) return true;
  if (isLoopbackAddress(named.host)) return true;
  // DNS rebinding needs a host name, so an IP address in the Host header is safe.
  return named.kind !== 'name' && (address.host === '0.0.0.0' || address.host === '::');
}

function isOwnOrigin(origin: string | undefined, host: string | undefined): boolean {
  return origin === undefined || origin === `http://${host}` || origin === `https://${host}`;
}

function isAuthorized(authorization: string | undefined, token: Secret): boolean {
  const given = /^Bearer +(\S+)$/i.exec(authorization ?? '')?.[1] ?? '';
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(token.reveal()));
}
