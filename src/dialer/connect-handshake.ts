/**
 * CONNECT to an HTTP member: one write, and its answer read by hand.
 *
 * The credentials go on this hop alone, never into the tunnel. Sources: RFC 9110 §9.3.6 and §15, RFC 9112 §3.2.3.
 */
import type { HostPort } from '../core/host-port.ts';
import type { Secret } from '../core/secret.ts';
import { readResponseHead } from './connect-response.ts';
import { type Handshake, type HandshakeFailure, type HandshakeStep, MORE, NO_BYTES } from './handshake.ts';

/** More than any honest proxy sends; the endless head of a broken one ends here. */
export const MAX_RESPONSE_HEAD_BYTES = 16 * 1024;

const PROXY_AUTHENTICATION_REQUIRED = 407;
/** The member says that it could not get through to the target. */
const TARGET_DOUBTED = new Set([502, 503, 504]);
/** The member does not CONNECT, or not to this port; it may still take a plain HTTP request in absolute form. */
const NO_CONNECT = new Set([400, 403, 404, 405, 501]);

export class ConnectHandshake implements Handshake {
  readonly opening: string;
  /** The beginning of a head that came in pieces. */
  #held: Buffer = NO_BYTES;
  /** Bytes of interim answers before it: they count against the limit too. */
  #interimBytes = 0;

  /** @param authorization - the value of Proxy-Authorization, when the member is to be given one. */
  constructor(target: HostPort, authorization: Secret | undefined) {
    const authority = target.text;
    const credentials =
      authorization === undefined ? '' : `Proxy-Authorization: ${authorization.reveal()}\r\n`;
    this.opening = `CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${credentials}\r\n`;
  }

  take(bytes: Buffer): HandshakeStep {
    let scanned = this.#held.length;
    let left = scanned === 0 ? bytes : Buffer.concat([this.#held, bytes]);
    while (left.length > 0) {
      const head = readResponseHead(left, scanned);
      if (head === 'garbage') return protocolFailure('not an HTTP answer');
      const headBytes = head === 'more' ? left.length : head.endBytes;
      if (this.#interimBytes + headBytes > MAX_RESPONSE_HEAD_BYTES) {
        return protocolFailure(`a head of more than ${MAX_RESPONSE_HEAD_BYTES} bytes`);
      }
      if (head === 'more') break;
      left = left.subarray(headBytes);
      if (head.status >= 200) return verdict(head.status, left);
      // A 1xx comes before the answer proper (RFC 9110 §15.2); 101 would be a switch that nobody asked for.
      if (head.status < 100 || head.status === 101) return protocolFailure(`status ${head.status}`);
      this.#interimBytes += headBytes;
      scanned = 0;
    }
    this.#held = left;
    return MORE;
  }
}

function verdict(status: number, rest: Buffer): HandshakeStep {
  if (status < 300) return { kind: 'accepted', rest };
  const detail = `status ${status}`;
  if (status === PROXY_AUTHENTICATION_REQUIRED) return { kind: 'failed', fault: 'member-auth', detail };
  if (TARGET_DOUBTED.has(status)) return { kind: 'failed', fault: 'target-doubted', detail };
  return { kind: 'failed', fault: 'member-refused', detail, noConnect: NO_CONNECT.has(status) };
}

function protocolFailure(detail: string): HandshakeFailure {
  return { kind: 'failed', fault: 'member-protocol', detail };
}
