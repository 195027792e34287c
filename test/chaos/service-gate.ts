/**
 * A TCP proxy in front of the extraction service that judges the pace: it records when the first byte of each call arrives and
 * when its answer begins or its connection ends.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';

interface Call {
  readonly instance: string;
  readonly arrivedAt: number;
  endedAt: number;
}

export interface ServiceGate {
  readonly url: string;
  readonly count: number;
  /** One sentence for each call that came too early, or while another one was in flight. */
  violations(intervalMs: number): readonly string[];
  close(): Promise<void>;
}

/** The service may see an interval that is a little shorter, because timers of two processes round differently. */
const TOLERANCE_MS = 5;

/** @param serviceUrl - the URL of the real service. */
export async function openServiceGate(serviceUrl: string): Promise<ServiceGate> {
  const { hostname, port } = new URL(serviceUrl);
  const calls: Call[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    let call: Call | undefined;
    const end = () => {
      if (call !== undefined) call.endedAt = Math.min(call.endedAt, performance.now());
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) {
      sockets.add(socket);
      socket.on('error', end);
      socket.on('close', () => {
        sockets.delete(socket);
        end();
      });
    }
    client.once('data', (bytes: Buffer) => {
      const instance = /[?&](?:api|inst_id|app_id)=([^& ]+)/.exec(bytes.toString('latin1'))?.[1] ?? '';
      call = { instance, arrivedAt: performance.now(), endedAt: Number.POSITIVE_INFINITY };
      calls.push(call);
    });
    upstream.once('data', () => {
      if (call !== undefined) call.endedAt = performance.now();
    });
    client.pipe(upstream);
    upstream.pipe(client);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    get count() {
      return calls.length;
    },
    violations: (intervalMs) => [...byInstance(calls)].flatMap((list) => violationsOf(list, intervalMs)),
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((closed) => server.close(closed));
    },
  };
}

function byInstance(calls: readonly Call[]): Iterable<readonly Call[]> {
  return Map.groupBy(calls, ({ instance }) => instance).values();
}

/** @param calls - the calls of one instance, in the order of their arrival. */
function violationsOf(calls: readonly Call[], intervalMs: number): string[] {
  return calls.slice(1).flatMap(({ arrivedAt, instance }, index) => {
    const before = calls[index];
    if (before === undefined) return [];
    const gapMs = Math.round(arrivedAt - before.arrivedAt);
    const early = gapMs < intervalMs - TOLERANCE_MS;
    const overlaps = before.endedAt > arrivedAt;
    return [
      ...(early ? [`instance ${instance}: a call came after ${gapMs} ms instead of ${intervalMs} ms`] : []),
      ...(overlaps ? [`instance ${instance}: a call came while another one was in flight`] : []),
    ];
  });
}
