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
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { type Clock, pause } from '../core/clock.ts';
import { openWebServer, readBody, send } from './web-server.ts';

interface TargetOptions {
  readonly host: string;
  readonly port: number;
  readonly clock: Clock;
  readonly exitOf: (address: string, port: number) => string;
}

export interface Target {
  readonly url: string;
  readonly host: string;
  readonly port: number;
  readonly connections: ReadonlyMap<string, number>;
  readonly requests: number;
  close(): Promise<void>;
}

const CHUNK = Buffer.alloc(65_536, 'noria ');
const MAX_BYTES = 2 ** 40;
const MAX_ECHO_BYTES = 2 ** 26;
const PAGES = 'Pages: /ip /bytes/N /echo /delay/MS /status/N, and a WebSocket echo at /ws\n';

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
      if (frame.opcode === OPCODE_PONG) continue;
      // Each fragment is echoed separately, so a fragmented message stays fragmented.
      const opcode = frame.opcode === OPCODE_PING ? OPCODE_PONG : frame.opcode;
      socket.write(printFrame((frame.first & 0xf0) | opcode, frame.payload));
      if (frame.opcode === OPCODE_CLOSE) socket.end();
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

interface Frame {
  readonly first: number;
  readonly opcode: number;
  readonly payload: Buffer;
  readonly size: number;
}

/**
 * Reads one frame (RFC 6455 §5.2).
 * @returns undefined if the frame is not yet complete.
 */
function readFrame(bytes: Buffer): Frame | undefined {
  if (bytes.length < 2) return undefined;
  const first = bytes.readUInt8(0);
  const second = bytes.readUInt8(1);
  const short = second & 0x7f;
  const lengthBytes = short === 126 ? 2 : short === 127 ? 8 : 0;
  const maskAt = 2 + lengthBytes;
  const dataAt = maskAt + ((second & 0x80) === 0 ? 0 : 4);
  if (bytes.length < dataAt) return undefined;
  const length =
    lengthBytes === 2 ? bytes.readUInt16BE(2) : lengthBytes === 8 ? Number(bytes.readBigUInt64BE(2)) : short;
  if (bytes.length < dataAt + length) return undefined;
  const mask = bytes.subarray(maskAt, dataAt);
  const payload = Buffer.from(bytes.subarray(dataAt, dataAt + length));
  if (mask.length === 4)
    for (let at = 0; at < length; at += 1) payload[at] = (payload[at] ?? 0) ^ (mask[at % 4] ?? 0);
  return { first, opcode: first & 0x0f, payload, size: dataAt + length };
}

function printFrame(first: number, payload: Buffer): Buffer {
  const { length } = payload;
  if (length < 126) return Buffer.concat([Buffer.from([first, length]), payload]);
  const head = Buffer.alloc(length < 65_536 ? 4 : 10);
  head.writeUInt8(first, 0);
  if (length < 65_536) {
    head.writeUInt8(126, 1);
    head.writeUInt16BE(length, 2);
  } else {
    head.writeUInt8(127, 1);
    head.writeBigUInt64BE(BigInt(length), 2);
  }
  return Buffer.concat([head, payload]);
}
