/** Binds one address of a listener, or says in words why it cannot be had. */
import { createServer, type Server, type Socket } from 'node:net';
import { describeError, NoriaError } from '../core/faults.ts';
import { formatHostPort } from '../core/host-port.ts';
import type { ListenAddress } from '../core/listen-address.ts';
import { isLoopbackAddress } from '../core/networks.ts';

/** Where a server really listens. */
export interface BoundAddress {
  /** An IP literal without brackets; '' for a Unix socket. */
  readonly host: string;
  readonly port: number;
}

/** What becomes of connections, and which addresses are taken at all. */
export interface BindOptions {
  /** @param localPort - the bound port, so that no system call is needed to know it. */
  readonly onConnection: (socket: Socket, localPort: number) => void;
  /** A connection could not be accepted (no descriptor left, for one); the server goes on. */
  readonly onAcceptError: (error: Error) => void;
  /** Whether an address that other machines can reach may be bound. */
  readonly allowNonLoopback: boolean;
}

const WHY: Readonly<Record<string, string>> = {
  EADDRINUSE: 'another program listens there',
  EADDRNOTAVAIL: 'this machine has no such address',
  EACCES: 'the user that runs noria may not listen there; ports below 1024 need a permission',
  ENOTFOUND: 'no such host name',
  EBADF: 'no such descriptor was inherited',
  EINVAL: 'that descriptor is no listening socket',
  ENOTSOCK: 'that descriptor is no listening socket',
};

/**
 * One server for each port, all listening.
 *
 * @throws NoriaError `listen-failed`, or `bad-config` for an address that must not be open to others; servers bound by
 *   then are closed.
 */
export async function bind(address: ListenAddress, options: BindOptions): Promise<Server[]> {
  if (address.kind === 'fd') return [await bindOne({ fd: address.fd }, `fd:${address.fd}`, options)];
  const { host, port, lastPort = port } = address;
  const servers: Server[] = [];
  try {
    for (let each = port; each <= lastPort; each += 1) {
      servers.push(await bindOne({ host, port: each }, formatHostPort(host, each), options));
    }
  } catch (error) {
    for (const server of servers) server.close();
    throw error;
  }
  return servers;
}

/** Where a listening server really listens. */
export function boundAddress(server: Server): BoundAddress {
  const address = server.address();
  return address === null || typeof address === 'string'
    ? { host: address ?? '', port: 0 } // a Unix socket, handed in by descriptor
    : { host: address.address, port: address.port };
}

function bindOne(
  where: { readonly host: string; readonly port: number } | { readonly fd: number },
  name: string,
  options: BindOptions,
): Promise<Server> {
  const server = createServer({ allowHalfOpen: true, noDelay: true });
  return new Promise((resolve, reject) => {
    const onError = (error: NodeJS.ErrnoException): void => {
      const why = WHY[error.code ?? ''] ?? describeError(error);
      reject(new NoriaError('listen-failed', `cannot listen on ${name}: ${why}`, { cause: error }));
    };
    server.once('error', onError);
    server.listen({ ...where, exclusive: false }, () => {
      server.off('error', onError);
      const { host, port } = boundAddress(server);
      if (!options.allowNonLoopback && host !== '' && !isLoopbackAddress(host)) {
        server.close();
        reject(new NoriaError('bad-config', `${name} can be reached from other machines, so it needs users`));
        return;
      }
      server.on('error', options.onAcceptError);
      server.on('connection', (socket) => options.onConnection(socket, port));
      resolve(server);
    });
  });
}
