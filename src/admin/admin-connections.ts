/**
 * The connections of the admin server. When there are too many, a new connection replaces the oldest connection of the
 * client with the most connections. So a probe always gets through, however many connections other clients hold open.
 */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { clientNetwork } from '../core/networks.ts';

/** The maximum number of connections. It leaves file descriptors to listeners and tunnels. */
export const MAX_ADMIN_CONNECTIONS = 256;

export function limitConnections(server: Server): void {
  /** The connections of each client, oldest first. */
  const clients = new Map<string, Set<Socket>>();
  let count = 0;
  const remove = (client: string, socket: Socket): void => {
    const sockets = clients.get(client);
    if (sockets?.delete(socket) !== true) return; // the connection was already removed before it closed
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

/** Returns the oldest connection of the client with the most connections. There must be at least one. */
function oldestOfBusiest(clients: ReadonlyMap<string, ReadonlySet<Socket>>): [string, Socket] {
  const [first, ...others] = clients;
  if (first === undefined) throw new TypeError('no connection');
  const [client, sockets] = others.reduce((most, next) => (next[1].size > most[1].size ? next : most), first);
  const [oldest] = sockets;
  if (oldest === undefined) throw new TypeError('no connection');
  return [client, oldest];
}
