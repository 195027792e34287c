/**
 * A minimal WebSocket server (RFC 6455). It sends every message back (text, binary, fragments, close), and answers a
 * ping with a pong.
 */
import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';

/** The GUID of RFC 6455 §1.3. */
const ACCEPT_SALT = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const OPCODE_CLOSE = 0x8;
const OPCODE_PING = 0x9;
const OPCODE_PONG = 0xa;
const MAX_FRAME_BYTES = 2 ** 24;

/** Accepts an upgrade request at `/ws`. Answers 404 at any other path. */
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
  /** The first byte of the frame: the FIN bit, the reserved bits and the opcode. */
  readonly first: number;
  readonly opcode: number;
  readonly payload: Buffer;
  /** The size of the whole frame, in bytes. */
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

/** Encodes a frame without a mask, as servers must. */
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
