/** A port for a noria that is to be told one: by a file, or to have it again after a restart. */
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:net';

/** Below those that the system gives to outgoing connections, which other tests make by the thousand. */
const FIRST = 10_000;
const END = 32_000;

/** A port that was free a moment ago. */
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
      // ignored: taken, so another one is tried
    }
  }
}
