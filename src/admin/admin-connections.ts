/**
 * Limits the connections of the admin server. A client is an IPv4 address or the /64 of an IPv6 address.
 *
 * When the limit is exceeded, noria closes the oldest connection of the client with the highest number of connections.
 * So a probe can always connect, however many connections other clients hold open.
 */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { clientNetwork } from '../core/networks.ts';

/** The limit keeps file descriptors free for listeners and tunnels. */
export const MAX_ADMIN_CONNECTIONS = 256;

export function limitConnections(server: Server): void {
  /** The open connections of each client, oldest first. */
  const clients = new Map<string, Set<Socket>>();
  let count = 0;
  const remove = (client: string, socket: Socket): void => {
    const sockets = clients.get(client);
    if (sockets?.delete(socket) !== true) return; // the limit has already removed this connection
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
