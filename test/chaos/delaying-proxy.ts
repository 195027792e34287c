/** TCP proxies that delay bytes. */
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

export interface DelayingProxy {
  readonly port: number;
  /** Returns how many connections have sent bytes so far, including bytes that are still delayed. */
  begun(): number;
}

/**
 * Delays the first bytes of each client: the request or, with TLS, the start of the handshake.
 * @param delayMs - the delay by the number of the connection, from 0. Delayed bytes arrive even if their client has
 *   died meanwhile, as in a network.
 */
export async function openDelayingProxy(
  target: number,
  delayMs: (connection: number) => number,
): Promise<DelayingProxy> {
  const sockets = new Set<Socket>();
  const timers = new Set<NodeJS.Timeout>();
  let begun = 0;
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const upstream = connect({ port: target, host: '127.0.0.1', allowHalfOpen: true });
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', () => {}); // ignored: the other side sees the end of the connection
    }
    client.once('data', (first: Buffer) => {
      client.pause();
      const timer = setTimeout(() => {
        timers.delete(timer);
        upstream.write(first);
        client.pipe(upstream);
      }, delayMs(begun));
      timers.add(timer);
      begun += 1;
    });
    upstream.pipe(client);
    upstream.on('close', () => client.destroy());
  });
  await listen(server);
  onTestFinished(() => {
    for (const timer of timers) clearTimeout(timer);
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { port: portOf(server), begun: () => begun };
}

/** A proxy whose every byte arrives `delayMs` later, in both directions. */
export async function openFarProxy(target: number, delayMs: number): Promise<number> {
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(target, '127.0.0.1');
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      from.on('data', (bytes) => setTimeout(() => to.destroyed || to.write(bytes), delayMs));
      from.on('error', () => {}).on('close', () => to.destroy());
    }
  });
  await listen(server);
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return portOf(server);
}

export async function listen(server: Server): Promise<void> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
}

export function portOf(server: Server): number {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new TypeError('the server has no port');
  return address.port;
}
