/** A TCP proxy that stops forwarding: by cutting its connections, or by keeping them open and silent. */
import { connect, createServer, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';
import { listen, portOf } from '../chaos/delaying-proxy.ts';

export interface CuttingProxy {
  readonly port: number;
  /** Cuts all connections, and refuses further connections until `heal`. */
  cut(): void;
  /** Forwards nothing until `heal`, like a network that drops packets. */
  stall(): void;
  heal(): void;
}

export async function openCuttingProxy(target: number): Promise<CuttingProxy> {
  const pairs = new Set<readonly [Socket, Socket]>();
  let mode: 'forward' | 'cut' | 'stall' = 'forward';
  const server = createServer((client) => {
    if (mode === 'cut') {
      client.destroy();
      return;
    }
    const upstream = connect(target, '127.0.0.1');
    const pair = [client, upstream] as const;
    pairs.add(pair);
    const end = () => {
      pairs.delete(pair);
      for (const socket of pair) socket.destroy();
    };
    for (const socket of pair) socket.on('error', end).on('close', end);
    client.pipe(upstream);
    upstream.pipe(client);
    if (mode === 'stall') pauseBoth(pair);
  });
  await listen(server);
  const cutAll = () => {
    for (const pair of pairs) for (const socket of pair) socket.destroy();
  };
  onTestFinished(() => {
    cutAll();
    server.close();
  });
  return {
    port: portOf(server),
    cut() {
      mode = 'cut';
      cutAll();
    },
    stall() {
      mode = 'stall';
      for (const pair of pairs) pauseBoth(pair);
    },
    heal() {
      mode = 'forward';
      // Withheld bytes arrive late, as after a network failure.
      for (const [client, upstream] of pairs) {
        client.pipe(upstream);
        upstream.pipe(client);
      }
    },
  };
}

function pauseBoth([client, upstream]: readonly [Socket, Socket]): void {
  client.unpipe(upstream).pause();
  upstream.unpipe(client).pause();
}
