/**
 * The target of the well-behaved clients. It returns what it gets, or bytes that both ends can compute, so that a
 * client can check every byte. It has one port for raw tunnels and one for HTTP.
 *
 * The first line of a raw tunnel says what follows: `echo`, `digest` (of all further bytes, sent after the client's
 * FIN), or `send SEED BYTES`.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { seededRandom } from '../../src/core/random.ts';

const HOST = '127.0.0.1';
const PIECE_BYTES = 16_384;
const LONGEST_LINE = 64;

export interface Origin {
  readonly rawPort: number;
  readonly httpPort: number;
  /** The addresses that connected so far. */
  readonly seen: ReadonlySet<string>;
  close(): Promise<void>;
}

export async function openOrigin(): Promise<Origin> {
  const seen = new Set<string>();
  const sockets = new Set<Socket>();
  const raw = createServer({ allowHalfOpen: true }, serveRaw);
  const http = createHttpServer(serveHttp);
  http.on('upgrade', (_request, socket: Socket) => {
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
    socket.pipe(socket);
  });
  http.on('clientError', (_error, socket) => socket.destroy()); // a client disconnected during its request
  for (const server of [raw, http]) {
    server.on('connection', (socket: Socket) => {
      seen.add(socket.remoteAddress ?? '');
      sockets.add(socket);
      socket.on('close', () => sockets.delete(socket));
      socket.on('error', () => socket.destroy()); // ignored: a fault ended the connection, and its client reports it
    });
    server.listen(0, HOST);
    await once(server, 'listening');
  }
  return {
    rawPort: portOf(raw),
    httpPort: portOf(http),
    seen,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await Promise.all([raw, http].map((server) => new Promise((closed) => server.close(closed))));
    },
  };
}

/** Computes the bytes of a seed, which are the same at both ends. */
export function bytesOf(seed: number, count: number): Buffer {
  const random = seededRandom(seed);
  const bytes = Buffer.allocUnsafe(count);
  for (let at = 0; at + 4 <= count; at += 4) bytes.writeUInt32LE((random() * 2 ** 32) >>> 0, at);
  for (let at = count - (count % 4); at < count; at += 1) bytes[at] = at & 255;
  return bytes;
}

export function digestOf(bytes: Buffer): string {
  return createHash('sha256').update(bytes).digest('hex');
}

function serveRaw(socket: Socket): void {
  let line = Buffer.alloc(0);
  const onData = (chunk: Buffer) => {
    line = Buffer.concat([line, chunk]);
    const end = line.indexOf(10);
    if (end < 0 && line.length > LONGEST_LINE) socket.destroy();
    if (end < 0) return;
    socket.off('data', onData);
    socket.pause();
    const rest = line.subarray(end + 1);
    if (rest.length > 0) socket.unshift(rest);
    obey(socket, line.subarray(0, end).toString('latin1'));
  };
  socket.on('data', onData);
}

function obey(socket: Socket, line: string): void {
  const [verb, seed, count] = line.split(' ');
  if (verb === 'echo') {
    socket.pipe(socket);
  } else if (verb === 'digest') {
    const hash = createHash('sha256');
    socket.on('data', (chunk: Buffer) => hash.update(chunk));
    socket.on('end', () => socket.end(hash.digest('hex')));
    socket.resume();
  } else if (verb === 'send') {
    socket.resume();
    socket.end(bytesOf(Number(seed), Number(count)));
  } else socket.destroy();
}

function serveHttp(request: IncomingMessage, response: ServerResponse): void {
  const url = new URL(request.url ?? '/', 'http://origin.example');
  if (request.method === 'POST') {
    const hash = createHash('sha256');
    request.on('data', (chunk: Buffer) => hash.update(chunk));
    request.on('end', () => response.end(hash.digest('hex')));
    return;
  }
  request.resume();
  if (url.pathname === '/exit') {
    response.end(request.socket.remoteAddress);
    return;
  }
  const bytes = bytesOf(Number(url.searchParams.get('seed')), Number(url.searchParams.get('bytes')));
  // Without a length, node:http sends chunks. So both kinds of framing are tested.
  if (url.searchParams.has('length')) response.setHeader('Content-Length', bytes.length);
  for (let at = 0; at < bytes.length; at += PIECE_BYTES) response.write(bytes.subarray(at, at + PIECE_BYTES));
  response.end();
}

function portOf(server: Server): number {
  return (server.address() as AddressInfo).port;
}
