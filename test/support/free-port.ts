/** A port for a noria that needs a fixed one: in a configuration file, or across a restart. */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below the range from which the system takes the ports of outgoing connections, of which other tests open thousands. */
const FIRST = 10_000;
const END = 32_000;

/** Free when it was tried. */
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

/** The first of `count` ports in a row that were free when they were tried. */
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
