/**
 * The connections of the admin server. When there are too many, a new one replaces the oldest one of the client that has the most.
 * A probe therefore always gets through, however many connections others hold open.
 */
import type { Server } from 'node:http';
import type { Socket } from 'node:net';
import { clientNetwork } from '../core/networks.ts';

/** Low enough to leave the file descriptors to listeners and tunnels. */
export const MAX_ADMIN_CONNECTIONS = 256;

/** Limits the connections of a server. */
export function limitConnections(server: Server): void {
  /** For each client its connections, oldest first. */
  const clients = new Map<string, Set<Socket>>();
  let count = 0;
  const remove = (client: string, socket: Socket): void => {
    const sockets = clients.get(client);
    if (sockets?.delete(socket) !== true) return; // removed before it closed
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

/** There is a connection at least. */
function oldestOfBusiest(clients: ReadonlyMap<string, ReadonlySet<Socket>>): [string, Socket] {
  const [first, ...others] = clients;
  if (first === undefined) throw new TypeError('no connection');
  const [client, sockets] = others.reduce((most, next) => (next[1].size > most[1].size ? next : most), first);
  const [oldest] = sockets;
  if (oldest === undefined) throw new TypeError('no connection');
  return [client, oldest];
}
