/** Binds one configured address of a listener, and explains failures. */

import { createServer, type Server } from 'node:net';
import { NoriaError } from '../core/faults.ts';
import { formatHostPort } from '../core/host-port.ts';
import { type BoundAddress, type ListenAddress, listenFailure } from '../core/listen-address.ts';
import { isLoopbackAddress } from '../core/networks.ts';

interface BindOptions {
  /**
   * Called once for each server, before it can accept a connection. Must add handlers of 'connection' and 'error' to
   * the server. 'error' means that a connection could not be accepted, for example because no file descriptor is free.
   */
  readonly onListening: (server: Server) => void;
  /** Whether the listener may have an address that other machines can reach. */
  readonly allowNonLoopback: boolean;
}

/**
 * Returns one listening server for each port.
 * @throws NoriaError `listen-failed`, or `bad-config` for an address that other machines can reach, if that is not
 * allowed. Before it throws, it closes the servers that it has bound.
 */
export async function bind(address: ListenAddress, options: BindOptions): Promise<Server[]> {
  if (address.kind === 'fd') return [await bindOne({ fd: address.fd }, `fd:${address.fd}`, options)];
  const { host, port: firstPort, lastPort = firstPort } = address;
  const servers: Server[] = [];
  try {
    for (let port = firstPort; port <= lastPort; port += 1) {
      servers.push(await bindOne({ host, port }, formatHostPort(host, port), options));
    }
  } catch (error) {
    for (const server of servers) server.close();
    throw error;
  }
  return servers;
}

export function boundAddress(server: Server): BoundAddress {
  const address = server.address();
  return address === null || typeof address === 'string'
    ? { host: address ?? '', port: 0 } // only a Unix socket has a text as its address
    : { host: address.address, port: address.port };
}

function bindOne(
  where: { readonly host: string; readonly port: number } | { readonly fd: number },
  name: string,
  options: BindOptions,
): Promise<Server> {
  const server = createServer({ allowHalfOpen: true, noDelay: true });
  return new Promise((resolve, reject) => {
    const onError = (error: Error): void => reject(listenFailure(name, error));
    server.once('error', onError);
    server.listen({ ...where, exclusive: false }, () => {
      server.off('error', onError);
      const { host } = boundAddress(server);
      if (!options.allowNonLoopback && host !== '' && !isLoopbackAddress(host)) {
        server.close();
        const message = `cannot listen on ${name} without users, because other machines can reach this address; add users, or listen on 127.0.0.1`;
        reject(new NoriaError('bad-config', message));
        return;
      }
      options.onListening(server);
      resolve(server);
    });
  });
}
