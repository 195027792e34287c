import http, { type IncomingMessage, type ServerResponse } from 'node:http';
import https from 'node:https';
import net, { type AddressInfo, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';

export interface Received {
  readonly method: string;
  readonly url: string;
  readonly headers: Readonly<IncomingMessage['headers']>;
  readonly body: string;
}

export interface StubService {
  readonly baseUrl: string;
  readonly host: string;
  readonly port: number;
  /** All requests, in order. */
  readonly received: Received[];
  /** The open connections. */
  readonly open: ReadonlySet<Socket>;
  /** The number of connections so far. */
  accepted(): number;
}

/** An HTTP server, or with `tls` an HTTPS server, on a free loopback port. It is closed at the end of the test. */
export async function stubService(
  answer: (response: ServerResponse, received: Received) => void,
  tls?: { readonly key: Buffer; readonly cert: Buffer },
): Promise<StubService> {
  const received: Received[] = [];
  const take = async (request: IncomingMessage, response: ServerResponse) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    const { method = '', url = '', headers } = request;
    const one = { method, url, headers, body: Buffer.concat(chunks).toString() };
    received.push(one);
    answer(response, one);
  };
  const server = tls === undefined ? http.createServer(take) : https.createServer(tls, take);
  return { ...(await listening(server)), received };
}

/** A TCP server that calls `onConnection` for each connection. */
export async function stubSocket(onConnection: (socket: Socket) => void): Promise<StubService> {
  return { ...(await listening(net.createServer(onConnection))), received: [] };
}

/** A loopback port without a listener. */
export async function closedPort(): Promise<number> {
  const server = net.createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function listening(server: net.Server): Promise<Omit<StubService, 'received'>> {
  const open = new Set<Socket>();
  let accepted = 0;
  server.on('connection', (socket) => {
    accepted += 1;
    open.add(socket);
    socket.on('error', () => {}); // ignored: the client may reset it
    socket.on('close', () => open.delete(socket));
  });
  server.listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  onTestFinished(async () => {
    const closed = new Promise((resolve) => server.close(resolve));
    for (const socket of open) socket.destroy();
    await closed;
  });
  const { port } = server.address() as AddressInfo;
  return {
    baseUrl: `http://127.0.0.1:${port}`,
    host: `127.0.0.1:${port}`,
    port,
    open,
    accepted: () => accepted,
  };
}
