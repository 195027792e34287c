/**
 * Where several processes open the same listeners: which listener is which, through reloads, and the port for those that
 * want any free one.
 */
import { createServer } from 'node:net';
import type { ListenerConfig } from './config/config.ts';
import { isSameButTls, type PlacedListener } from './daemon-listeners.ts';

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
