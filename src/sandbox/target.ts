/**
 * A small target site for members to reach: it says which exit it saw, and counts connections by exit.
 *
 * `/ip` the exit and a newline · `/bytes/N` N bytes · `/echo` method, URL, headers and body as JSON · `/delay/MS`
 * answers late · `/status/N` answers that status. Owns its server.
 */
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { type Clock, pause } from '../core/clock.ts';

export interface TargetOptions {
  readonly host: string;
  readonly port: number;
  readonly clock: Clock;
  /** The exit behind a connection's address and port. */
  readonly exitOf: (address: string, port: number) => string;
}

export interface Target {
  readonly url: string;
  readonly host: string;
  readonly port: number;
  /** Connections that came so far, by the exit they were seen from. */
  readonly connections: ReadonlyMap<string, number>;
  /** Requests so far. */
  readonly requests: number;
  close(): Promise<void>;
}

const CHUNK = Buffer.alloc(65_536, 'noria ');
const MAX_BYTES = 2 ** 40;

export async function openTarget(options: TargetOptions): Promise<Target> {
  const connections = new Map<string, number>();
  const exits = new WeakMap<Socket, string>();
  const sockets = new Set<Socket>();
  let requests = 0;
  const closing = new AbortController();

  const server = createServer((request, response) => {
    requests += 1;
    const context = { exit: exits.get(request.socket) ?? '', clock: options.clock, signal: closing.signal };
    answer(request, response, context).catch((error: unknown) => {
      response.destroy(); // the client left in the middle
      if (!(error instanceof Error && 'code' in error)) throw error;
    });
  });
  server.on('connection', (socket) => {
    const exit = options.exitOf(socket.remoteAddress ?? '', socket.remotePort ?? 0);
    connections.set(exit, (connections.get(exit) ?? 0) + 1);
    exits.set(socket, exit);
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.listen(options.port, options.host);
  await once(server, 'listening');
  const address = server.address();
  const port = typeof address === 'object' && address !== null ? address.port : options.port;

  return {
    url: `http://${options.host}:${port}`,
    host: options.host,
    port,
    connections,
    get requests() {
      return requests;
    },
    async close() {
      if (closing.signal.aborted) return;
      closing.abort();
      const closed = once(server, 'close');
      server.close();
      for (const socket of sockets) socket.destroy();
      await closed;
    },
  };
}

interface Context {
  readonly exit: string;
  readonly clock: Clock;
  readonly signal: AbortSignal;
}

async function answer(request: IncomingMessage, response: ServerResponse, context: Context): Promise<void> {
  const url = URL.parse(request.url ?? '/', 'http://target.example');
  const [, page = '', argument = ''] = url?.pathname.split('/') ?? [];
  const number = /^\d{1,13}$/.test(argument) ? Number(argument) : undefined;
  if (page === 'echo') return echo(request, response);
  request.resume();
  if (page === 'ip') return text(response, 200, `${context.exit}\n`);
  if (page === 'bytes' && number !== undefined && number <= MAX_BYTES) return sendBytes(response, number);
  if (page === 'status' && number !== undefined && number >= 200 && number <= 599) {
    return text(response, number, number === 204 || number === 304 ? '' : `${number}\n`);
  }
  if (page === 'delay' && number !== undefined) {
    await pause(context.clock, number, context.signal);
    return text(response, 200, `${number} ms\n`);
  }
  text(
    response,
    page === '' ? 200 : 404,
    'Pages: /ip /bytes/N /echo /delay/MS /status/N, and a WebSocket echo at /ws\n',
  );
}

function text(response: ServerResponse, status: number, body: string): void {
  response.writeHead(status, {
    'Content-Type': 'text/plain; charset=utf-8',
    'Content-Length': Buffer.byteLength(body),
  });
  response.end(body);
}

async function echo(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk);
  const { method, url, httpVersion, rawHeaders, rawTrailers } = request;
  const body = Buffer.concat(chunks).toString('utf8');
  const said = JSON.stringify({ method, url, httpVersion, rawHeaders, rawTrailers, body });
  response.writeHead(200, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(said) });
  response.end(said);
}

async function sendBytes(response: ServerResponse, count: number): Promise<void> {
  response.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': count });
  for (let left = count; left > 0 && !response.destroyed; left -= CHUNK.length) {
    const room = response.write(left < CHUNK.length ? CHUNK.subarray(0, left) : CHUNK);
    if (!room) await Promise.race([once(response, 'drain'), once(response, 'close')]);
  }
  response.end();
}
