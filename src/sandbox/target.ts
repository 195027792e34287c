/**
 * A small target site. It reports from which exit a request came, and counts connections by exit.
 *
 * - `/ip`: the exit and a newline
 * - `/bytes/N`: N bytes
 * - `/echo`: method, URL, headers and body of the request as JSON
 * - `/delay/MS`: an answer after MS milliseconds
 * - `/status/N`: an answer with status N
 * - `/ws`: a WebSocket that echoes
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { type Clock, pause } from '../core/clock.ts';
import { openWebServer, readBody, send } from './web-server.ts';
import { echoMessages } from './websocket-echo.ts';

interface TargetOptions {
  readonly host: string;
  readonly port: number;
  readonly clock: Clock;
  /** Returns the exit of a connection with this remote address and port. */
  readonly exitOf: (address: string, port: number) => string;
}

export interface Target {
  readonly url: string;
  readonly host: string;
  readonly port: number;
  /** The number of connections so far, by exit. */
  readonly connections: ReadonlyMap<string, number>;
  readonly requests: number;
  close(): Promise<void>;
}

const CHUNK = Buffer.alloc(65_536, 'noria ');
const MAX_BYTES = 2 ** 40;
const MAX_ECHO_BYTES = 2 ** 26;
const PAGES = 'Pages: /ip /bytes/N /echo /delay/MS /status/N, and a WebSocket echo at /ws\n';

/** @throws NoriaError `listen-failed` */
export async function openTarget({ host, port, clock, exitOf }: TargetOptions): Promise<Target> {
  const connections = new Map<string, number>();
  const exits = new WeakMap<object, string>();
  let requests = 0;
  const server = await openWebServer({
    host,
    port,
    clock,
    onConnection: (socket: Socket) => {
      const exit = exitOf(socket.remoteAddress ?? '', socket.remotePort ?? 0);
      connections.set(exit, (connections.get(exit) ?? 0) + 1);
      exits.set(socket, exit);
    },
    onUpgrade: (request, socket, head) => {
      requests += 1;
      echoMessages(request, socket, head);
    },
    answer: (request, response) => {
      requests += 1;
      return answerPage(request, response, {
        exit: exits.get(request.socket) ?? '',
        wait: (ms) => pause(clock, ms, server.signal),
      });
    },
  });
  return {
    url: server.url,
    host,
    port: server.port,
    connections,
    get requests() {
      return requests;
    },
    close: () => server.close(),
  };
}

interface Context {
  readonly exit: string;
  readonly wait: (ms: number) => Promise<void>;
}

async function answerPage(
  request: IncomingMessage,
  response: ServerResponse,
  { exit, wait }: Context,
): Promise<void> {
  const url = URL.parse(request.url ?? '/', 'http://target.example');
  const [, page = '', argument = ''] = url?.pathname.split('/') ?? [];
  const number = /^\d{1,13}$/.test(argument) ? Number(argument) : undefined;
  if (page === 'echo') return echo(request, response);
  request.resume();
  if (page === 'ip') return sendText(response, 200, `${exit}\n`);
  if (page === 'bytes' && number !== undefined && number <= MAX_BYTES) return sendBytes(response, number);
  if (page === 'status' && number !== undefined && number >= 200 && number <= 599) {
    return sendText(response, number, number === 204 || number === 304 ? '' : `${number}\n`);
  }
  if (page === 'delay' && number !== undefined) {
    await wait(number);
    return sendText(response, 200, `${number} ms\n`);
  }
  sendText(response, page === '' ? 200 : 404, PAGES);
}

function sendText(response: ServerResponse, status: number, body: string): void {
  send(response, status, { type: 'text/plain; charset=utf-8', body });
}

async function echo(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const body = await readBody(request, MAX_ECHO_BYTES);
  const { method, url, httpVersion, rawHeaders, rawTrailers } = request;
  const content = { method, url, httpVersion, rawHeaders, rawTrailers, body };
  send(response, 200, { type: 'application/json', body: JSON.stringify(content) });
}

async function sendBytes(response: ServerResponse, count: number): Promise<void> {
  response.writeHead(200, { 'Content-Type': 'application/octet-stream', 'Content-Length': count });
  await pipeline(chunksOf(count), response);
}

function* chunksOf(count: number): Generator<Buffer> {
  for (let left = count; left > 0; left -= CHUNK.length)
    yield CHUNK.subarray(0, Math.min(left, CHUNK.length));
}
