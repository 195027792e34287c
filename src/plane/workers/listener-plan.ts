/**
 * Where several processes open the same listeners: which listener is which, through reloads, the port for those that want
 * any free one, and whether the others can be had at all, tried before any process is asked.
 */
import { createServer } from 'node:net';
import type { ListenerConfig } from '../../config/config.ts';
import { NoriaError } from '../../core/faults.ts';
import { overlap } from '../../core/listen-address.ts';
import { bind } from '../../listener/bind.ts';
import { boundTo, isSameButTls, type PlacedListener } from '../listener-set.ts';

export class Placing {
  #lastId = 0;

  /** Each listener with its id and port: those of before where it stays as it is, new ones where not. */
  async place(
    configs: readonly ListenerConfig[],
    before: readonly PlacedListener[],
  ): Promise<readonly PlacedListener[]> {
    const left = [...before];
    const placed: PlacedListener[] = [];
    for (const config of configs) {
      const at = left.findIndex((one) => isSameButTls(withoutPlace(one), config));
      const [same] = at < 0 ? [] : left.splice(at, 1);
      const shared = same?.shared ?? { id: this.#nextId(), port: await portFor(config) };
      placed.push({ ...config, shared });
    }
    return placed;
  }

  #nextId(): number {
    this.#lastId += 1;
    return this.#lastId;
  }
}

function withoutPlace({ shared: _, ...config }: PlacedListener): ListenerConfig {
  return config;
}

/**
 * A port that is free at this moment, for a listener that wants any; undefined for one that names its own. Another program
 * may take it before the workers do, which is as likely as for any port: then listening fails, and is tried again.
 */
function portFor({ address }: ListenerConfig): Promise<number | undefined> {
  if (address.kind === 'fd' || address.port !== 0) return Promise.resolve(undefined);
  const probe = createServer();
  return new Promise((resolve) => {
    probe.once('error', () => resolve(undefined)); // handled: the worker that listens there will say why it cannot
    probe.listen({ host: address.host, port: 0, exclusive: true }, () => {
      const bound = probe.address();
      const port = bound === null || typeof bound === 'string' ? undefined : bound.port;
      probe.close(() => resolve(port));
    });
  });
}

/**
 * Listens for a moment, in this process, wherever these are to listen and none of `held` does.
 *
 * node:cluster hands a worker even a socket that could not be bound, and neither lets go of it afterwards: a port that
 * cannot be had must not come before it.
 *
 * @param held - those that workers have open: only they can say whether an address of one may pass to another.
 * @returns why one of them cannot be had: listen-failed or bad-config; undefined when all can.
 */
export async function updateError(
  listeners: readonly PlacedListener[],
  held: readonly PlacedListener[],
): Promise<NoriaError | undefined> {
  const taken = held.map(boundTo);
  try {
    for (const listener of listeners) {
      const address = boundTo(listener);
      if (address.kind === 'fd') continue;
      for (let { port, lastPort = port } = address; port <= lastPort; port += 1) {
        const each = { ...address, port, lastPort: port };
        if (!taken.some((other) => overlap(other, each)))
          await listenBriefly(each, listener.users.length > 0);
      }
    }
    return undefined;
  } catch (error) {
    if (error instanceof NoriaError) return error;
    throw error;
  }
}

async function listenBriefly(address: ListenerConfig['address'], mayFaceNetwork: boolean): Promise<void> {
  const servers = await bind(address, {
    allowNonLoopback: mayFaceNetwork,
    onConnection: (socket) => socket.destroy(), // nobody is served yet
    onAcceptError: () => {}, // ignored: likewise
  });
  await Promise.all(servers.map((server) => new Promise((resolve) => server.close(resolve))));
}
