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
