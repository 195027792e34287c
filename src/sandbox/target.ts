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

import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Clock } from '../core/clock.ts';
import type { Exits } from './exits.ts';
import { readBody, send, WebServer } from './web-server.ts';

const CHUNK = Buffer.alloc(65_536, 'noria ');
const MAX_BYTES = 2 ** 40;
const MAX_ECHO_BYTES = 2 ** 26;
const PAGES = 'Pages: /ip /bytes/N /echo /delay/MS /status/N, and a WebSocket echo at /ws\n';

export class Target extends WebServer {
  readonly connections = new Map<string, number>();
  requests = 0;

  constructor(host: string, port: number, clock: Clock, exits: Exits) {
    const exitOf = new WeakMap<object, string>();
    super(host, port, clock, (request, response) => {
      this.requests += 1;
      return answerPage(request, response, exitOf.get(request.socket) ?? '', this);
    });
    this.server.on('connection', (socket) => {
      const exit = exits.exitOf(socket.remoteAddress ?? '', socket.remotePort ?? 0);
      this.connections.set(exit, (this.connections.get(exit) ?? 0) + 1);
      exitOf.set(socket, exit);
    });
    this.server.on('upgrade', (request, socket, head) => {
      this.requests += 1;
      echoMessages(request, socket, head);
    });
  }
}

async function answerPage(
  request: IncomingMessage,
  response: ServerResponse,
  exit: string,
  server: WebServer,
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
    await server.pause(number);
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

/** The GUID of RFC 6455 §1.3. */
const ACCEPT_SALT = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const OPCODE_CLOSE = 0x8;
const OPCODE_PING = 0x9;
const OPCODE_PONG = 0xa;
const MAX_FRAME_BYTES = 2 ** 24;

export function echoMessages(request: IncomingMessage, socket: Duplex, head: Buffer): void {
  socket.on('error', () => {}); // ignored: the error ends only this connection
  const key = request.headers['sec-websocket-key'];
  if (key === undefined || request.url !== '/ws') {
    socket.end('HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n');
    return;
  }
  const accept = createHash('sha1')
    .update(key + ACCEPT_SALT)
    .digest('base64');
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`,
  );
  let buffered = head;
  const echo = () => {
    for (let frame = readFrame(buffered); frame !== undefined; frame = readFrame(buffered)) {
      buffered = buffered.subarray(frame.size);
      const opcode = frame.first & 0x0f;
      if (opcode === OPCODE_PONG) continue;
      // Each fragment is echoed separately, so a fragmented message stays fragmented.
      const sent = opcode === OPCODE_PING ? OPCODE_PONG : opcode;
      socket.write(Buffer.concat([Buffer.of((frame.first & 0xf0) | sent), frame.length, frame.payload]));
      if (opcode === OPCODE_CLOSE) socket.end();
    }
    if (buffered.length > MAX_FRAME_BYTES) socket.destroy();
  };
  socket.on('data', (chunk: Buffer) => {
    buffered = Buffer.concat([buffered, chunk]);
    echo();
  });
  socket.on('end', () => socket.end());
  echo();
}

/**
 * Reads one frame (RFC 6455 §5.2): its first byte, its length without the bit that says that the payload is masked, and the
 * payload without its mask.
 * @returns undefined if the frame is not yet complete.
 */
function readFrame(bytes: Buffer) {
  if (bytes.length < 2) return undefined;
  const second = bytes.readUInt8(1);
  const short = second & 0x7f;
  const maskAt = short === 126 ? 4 : short === 127 ? 10 : 2;
  const dataAt = maskAt + (second === short ? 0 : 4);
  if (bytes.length < dataAt) return undefined;
  const count =
    short === 126 ? bytes.readUInt16BE(2) : short === 127 ? Number(bytes.readBigUInt64BE(2)) : short;
  const size = dataAt + count;
  if (bytes.length < size) return undefined;
  const mask = bytes.subarray(maskAt, dataAt);
  const payload = bytes.subarray(dataAt, size).map((byte, at) => byte ^ (mask[at % 4] ?? 0));
  const length = Buffer.concat([Buffer.of(short), bytes.subarray(2, maskAt)]);
  return { first: bytes.readUInt8(0), length, payload, size };
}
