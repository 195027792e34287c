/** Prepares listeners for several workers: assigns an id and a port to each, and checks that its addresses are free. */
import { createServer } from 'node:net';
import { NoriaError } from '../../core/faults.ts';
import { type ListenAddress, overlap } from '../../core/listen-address.ts';
import { bind } from '../../listener/listener.ts';
import type { ListenerSettings } from '../data-plane.ts';
import { bindAddress, isSameButCertificate } from '../listener-set.ts';

export class ListenerPlan {
  #lastId = 0;

  /**
   * Sets `shared` in the settings of each listener: its id and, in place of port 0, a free port. An unchanged
   * listener keeps the id and the port that it has in `before`.
   */
  async assign(
    settings: readonly ListenerSettings[],
    before: readonly ListenerSettings[],
  ): Promise<readonly ListenerSettings[]> {
    const available = [...before];
    const assigned: ListenerSettings[] = [];
    for (const each of settings) {
      const at = available.findIndex(({ shared: _, ...one }) => isSameButCertificate(one, each));
      const [same] = at < 0 ? [] : available.splice(at, 1);
      const shared = same?.shared ?? { id: this.#nextId(), port: await freePortFor(each.address) };
      assigned.push({ ...each, shared });
    }
    return assigned;
  }

  #nextId(): number {
    this.#lastId += 1;
    return this.#lastId;
  }
}

/**
 * Returns a free port if the address has port 0, else undefined. Another program may take the port before the workers bind it.
 * Listening then fails, and the caller tries another port.
 */
function freePortFor(address: ListenAddress): Promise<number | undefined> {
  if (address.kind === 'fd' || address.port !== 0) return Promise.resolve(undefined);
  const probe = createServer();
  return new Promise((resolve) => {
    probe.once('error', () => resolve(undefined)); // handled: findBindError reports the error
    probe.listen({ host: address.host, port: 0, exclusive: true }, () => {
      const bound = probe.address();
      const port = bound === null || typeof bound === 'string' ? undefined : bound.port;
      probe.close(() => resolve(port));
    });
  });
}

/**
 * Checks that the addresses of `listeners` are free, by binding each address briefly in this process. Skips addresses
 * that overlap an address of `open`, because they cannot be bound again. Without this check, node:cluster could pass an
 * unbound socket to a worker after a failed bind, and would never close this socket.
 * @param open - the listeners that workers have open.
 * @returns the error (listen-failed or bad-config) for the first address that cannot be bound.
 */
export async function findBindError(
  listeners: readonly ListenerSettings[],
  open: readonly ListenerSettings[],
): Promise<NoriaError | undefined> {
  const openAddresses = open.map(bindAddress);
  try {
    for (const listener of listeners) {
      const address = bindAddress(listener);
      if (address.kind === 'fd') continue;
      for (let { port, lastPort = port } = address; port <= lastPort; port += 1) {
        const each = { ...address, port, lastPort: port };
        if (openAddresses.some((other) => overlap(other, each))) continue;
        await bindBriefly(each, listener.users.length > 0);
      }
    }
    return undefined;
  } catch (error) {
    if (error instanceof NoriaError) return error;
    throw error;
  }
}

async function bindBriefly(address: ListenAddress, allowNonLoopback: boolean): Promise<void> {
  const servers = await bind(address, {
    allowNonLoopback,
    onListening: (server) => {
      server.on('connection', (socket) => socket.destroy()); // no worker can serve a client during this check
      server.on('error', () => {}); // ignored: this function closes the server next
    },
  });
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
}
