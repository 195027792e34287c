/**
 * CONNECT to an HTTP member: formats the request, which is sent in one write, and reads the head of the response. The
 * credentials are for the member and never enter the tunnel. Sources: RFC 9110 §9.3.6 and §15, RFC 9112 §3.2.3.
 */
import type { HostPort } from '../core/host-port.ts';
import type { Secret } from '../core/secret.ts';
import { type Handshake, type HandshakeFailure, type HandshakeStep, MORE, NO_BYTES } from './handshake.ts';

/** The maximum length of a response head, which limits the memory and the time that an endless head can cost. */
export const MAX_RESPONSE_HEAD_BYTES = 16 * 1024;

const PROXY_AUTHENTICATION_REQUIRED = 407;
/** The error token of Proxy-Status with which a proxy reports a loop (RFC 9209 §2.3.29). */
const LOOP_TOKEN = 'proxy_loop_detected';
const TARGET_UNREACHABLE = new Set([502, 503, 504]);
/** Perhaps only to this port: the member may still accept a plain request in absolute form. */
const NO_CONNECT = new Set([400, 403, 404, 405, 501]);

export class ConnectHandshake implements Handshake {
  readonly opening: string;
  #buffered: Buffer = NO_BYTES;
  #interimBytes = 0;

  /** @param fields - further fields, each with its line end. */
  constructor(target: HostPort, authorization: Secret | undefined, fields = '') {
    const authority = target.text;
    const credentials =
      authorization === undefined ? '' : `Proxy-Authorization: ${authorization.reveal()}\r\n`;
    this.opening = `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${credentials}${fields}\r\n`;
  }

  take(bytes: Buffer): HandshakeStep {
    let scanned = this.#buffered.length;
    let left = scanned === 0 ? bytes : Buffer.concat([this.#buffered, bytes]);
    while (left.length > 0) {
      const head = readResponseHead(left, scanned);
      if (head === 'garbage') return protocolFailure('not an HTTP response');
      const headBytes = head === 'more' ? left.length : head.endBytes;
      if (this.#interimBytes + headBytes > MAX_RESPONSE_HEAD_BYTES) {
        return protocolFailure(`the response head is longer than ${MAX_RESPONSE_HEAD_BYTES} bytes`);
      }
      if (head === 'more') break;
      if (head.status >= 200) return finalStep(head.status, left, headBytes);
      left = left.subarray(headBytes);
      // 1xx responses precede the final response (RFC 9110 §15.2). Status 101 is an error, because noria never sends
      // Upgrade with CONNECT.
      if (head.status < 100 || head.status === 101) return protocolFailure(`status ${head.status}`);
      this.#interimBytes += headBytes;
      scanned = 0;
    }
    this.#buffered = left;
    return MORE;
  }
}

function finalStep(status: number, bytes: Buffer, headBytes: number): HandshakeStep {
  if (status < 300) return { kind: 'accepted', rest: bytes.subarray(headBytes) };
  const detail = `status ${status}`;
  if (status === PROXY_AUTHENTICATION_REQUIRED) return { kind: 'failed', fault: 'member-auth', detail };
  if (TARGET_UNREACHABLE.has(status)) {
    const isLoop = status === 502 && bytes.subarray(0, headBytes).includes(LOOP_TOKEN);
    return { kind: 'failed', fault: 'target-doubted', detail, ...(isLoop && { isLoop }) };
  }
  return { kind: 'failed', fault: 'member-refused', detail, status, noConnect: NO_CONNECT.has(status) };
}

function protocolFailure(detail: string): HandshakeFailure {
  return { kind: 'failed', fault: 'member-protocol', detail };
}

const CR = 0x0d;
const LF = 0x0a;
const ZERO = 0x30;
const NINE = 0x39;
/** Each 9 stands for any digit. */
const STATUS_LINE = Buffer.from('HTTP/1.9 999 ', 'latin1');
const STATUS_AT = STATUS_LINE.indexOf(' ') + 1;
const STATUS_END = STATUS_AT + 3;

/**
 * Ignores header fields: after a 2xx the tunnel begins, whatever they say (RFC 9110 §9.3.6). Accepts a missing reason
 * phrase and bare LF (RFC 9112 §2.2). The caller limits the length.
 * @param scanned - what earlier calls have scanned, so that a head that arrives byte by byte is scanned once.
 */
export function readResponseHead(
  bytes: Buffer,
  scanned = 0,
): { readonly status: number; readonly endBytes: number } | 'more' | 'garbage' {
  if (scanned <= STATUS_END && !startsLikeStatusLine(bytes)) return 'garbage';
  const endBytes = findHeadEnd(bytes, Math.max(STATUS_END, scanned - 3));
  if (endBytes === undefined) return 'more';
  const digit = (index: number) => (bytes[STATUS_AT + index] ?? ZERO) - ZERO;
  return { status: digit(0) * 100 + digit(1) * 10 + digit(2), endBytes };
}

function startsLikeStatusLine(bytes: Buffer): boolean {
  const length = Math.min(bytes.length, STATUS_LINE.length);
  for (let index = 0; index < length; index += 1) {
    const byte = bytes[index] ?? 0;
    const wanted = STATUS_LINE[index];
    const isEnd = index === STATUS_END && (byte === CR || byte === LF);
    const isDigit = wanted === NINE && byte >= ZERO && byte <= NINE;
    if (byte !== wanted && !isEnd && !isDigit) return false;
  }
  return true;
}

function findHeadEnd(bytes: Buffer, from: number): number | undefined {
  for (let lf = bytes.indexOf(LF, from); lf >= 0; lf = bytes.indexOf(LF, lf + 1)) {
    if (bytes[lf + 1] === LF) return lf + 2;
    if (bytes[lf + 1] === CR && bytes[lf + 2] === LF) return lf + 3;
  }
  return undefined;
}
