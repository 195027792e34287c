/** Finds a port for a noria that needs a fixed one: in a configuration file, or across a restart. */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/**
 * The first port to try. It is below the range of ports for outgoing connections, of which other tests open thousands.
 */
const FIRST = 10_000;
const END = 32_000;

/** Returns a port that was free a moment ago. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(FIRST, END);
    const server = createServer().listen(port, '127.0.0.1');
    try {
      await once(server, 'listening');
      server.close();
      await once(server, 'close');
      return port;
    } catch {
      // ignored: the port is taken, so try another one
    }
  }
}

/** Returns the first of `count` consecutive ports that were free a moment ago. */
export async function freePorts(count: number): Promise<number> {
  for (;;) {
    const first = randomInt(FIRST, END - count);
    const servers = Array.from({ length: count }, (_, index) =>
      createServer().listen(first + index, '127.0.0.1'),
    );
    const opened = await Promise.allSettled(servers.map((server) => once(server, 'listening')));
    await Promise.all(
      servers.filter(({ listening }) => listening).map((server) => once(server.close(), 'close')),
    );
    if (opened.every(({ status }) => status === 'fulfilled')) return first;
  }
}
