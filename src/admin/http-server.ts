/** An HTTP server for a Hono app, with limits on time and connections. The admin server and proxyPool use it. */
import { createServer, type RequestListener, type Server } from 'node:http';
import type { Socket } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import { formatHostPort } from '../core/host-port.ts';
import type { BoundAddress } from '../core/listen-address.ts';
import { listenFailure } from '../core/listen-failure.ts';
import { clientNetwork } from '../core/networks.ts';
import { SECURITY_HEADERS } from './guard.ts';

export interface HttpServer {
  readonly host: string;
  readonly port: number;
  /** Aborts the open requests and streams. Idempotent. */
  close(): Promise<void>;
}

interface HttpServerOptions {
  /** How messages name the address: `the admin address`. */
  readonly name: string;
  readonly host: string;
  /** The port. With 0, the system chooses a free port. */
  readonly port: number;
  readonly methods: readonly string[];
  /** Creates the request handler. @param address - returns the address on which the server listens. */
  readonly handler: (address: () => BoundAddress) => RequestHandler;
}

type RequestHandler = Parameters<typeof getRequestListener>[0];

/**
 * The time limits for the head of a request and for the complete request. node:http checks both limits every
 * TIMEOUT_CHECK_MS.
 */
const HEAD_TIMEOUT_MS = 5_000;
const REQUEST_TIMEOUT_MS = 10_000;
const TIMEOUT_CHECK_MS = 1_000;
/** How long, in ms, an idle connection stays open for its next request. */
const KEEP_ALIVE_MS = 5_000;
/** This limit keeps file descriptors free for listeners and tunnels. */
export const MAX_ADMIN_CONNECTIONS = 256;

/** Returns a server that already listens. @throws NoriaError listen-failed */
export async function openHttpServer(options: HttpServerOptions): Promise<HttpServer> {
  const { name, host, methods } = options;
  const address = { host, port: options.port };
  const server = createServer(
    {
      headersTimeout: HEAD_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: TIMEOUT_CHECK_MS,
      keepAliveTimeout: KEEP_ALIVE_MS,
    },
    withoutTrace(getRequestListener(options.handler(() => address)), methods),
  );
  limitConnections(server);
  await listen(server, name, address);
  const bound = server.address();
  if (bound !== null && typeof bound === 'object') address.port = bound.port;
  return { host, port: address.port, close: () => closeServer(server) };
}

/** Answers TRACE with 405, because the Request class of the Fetch standard cannot represent that method. */
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
 * Limits the connections of the admin server. A client is an IPv4 address or the /64 of an IPv6 address.
 *
 * When the limit is exceeded, noria closes the oldest connection of the client with the highest number of connections.
 * So a probe can always connect, however many connections other clients hold open.
 */
function limitConnections(server: Server): void {
  /** The open connections of each client, oldest first. */
  const clients = new Map<string, Set<Socket>>();
  let count = 0;
  const remove = (client: string, socket: Socket): void => {
    const sockets = clients.get(client);
    if (sockets?.delete(socket) !== true) return; // the connection was already removed, because there were too many connections
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

/** Returns the oldest connection of the client with the highest number of connections. The map must not be empty. */
function oldestOfBusiest(clients: ReadonlyMap<string, ReadonlySet<Socket>>): [string, Socket] {
  const [first, ...others] = clients;
  if (first === undefined) throw new TypeError('no connection');
  const [client, sockets] = others.reduce((most, next) => (next[1].size > most[1].size ? next : most), first);
  const [oldest] = sockets;
  if (oldest === undefined) throw new TypeError('no connection');
  return [client, oldest];
}
