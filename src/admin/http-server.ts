/** An HTTP server for a Hono app, with time limits and a connection limit. The admin server and proxyPool use it. */
import { createServer, type RequestListener, type Server } from 'node:http';
import type { Socket } from 'node:net';
import { getRequestListener } from '@hono/node-server';
import { formatHostPort } from '../core/host-port.ts';
import { type BoundAddress, listenFailure } from '../core/listen-address.ts';
import { clientNetwork } from '../core/networks.ts';
import { SECURITY_HEADERS } from './guard.ts';

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
