/**
 * SOCKS5, SOCKS4 and SOCKS4A to a member: replies are read by the length they need, across whatever splits.
 *
 * Sources: RFC 1928 §3 and §6, RFC 1929 §2, the SOCKS4 memo.
 */
import type { HostPort } from '../core/host-port.ts';
import {
  type Handshake,
  type HandshakeFailure,
  type HandshakeStep,
  type Login,
  MORE,
  NO_BYTES,
} from './handshake.ts';
import {
  ATYP_IPV4,
  ATYP_IPV6,
  ATYP_NAME,
  loginMessage,
  NO_ACCEPTABLE_METHOD,
  NO_AUTHENTICATION,
  OFFER_LOGIN,
  OFFER_NO_AUTHENTICATION,
  SOCKS5_VERSION,
  socks4Request,
  socks5Request,
  USERNAME_PASSWORD,
} from './socks-wire.ts';

type Socks5Phase = 'method' | 'login' | 'reply';

const METHOD_REPLY_BYTES = 2;
const LOGIN_REPLY_BYTES = 2;
/** VER, REP, RSV, ATYP, and the first byte of the address, which is its length when it is a name. */
const REPLY_START_BYTES = 5;
const PORT_BYTES = 2;

const SUCCEEDED = 0x00;
const CONNECTION_REFUSED = 0x05;
/** Replies that speak of the target, not of the member: unreachable network or host, refused, TTL expired. */
const TARGET_REPLIES = new Set([0x03, 0x04, CONNECTION_REFUSED, 0x06]);

export class Socks5Handshake implements Handshake {
  readonly opening: Buffer;
  readonly #target: HostPort;
  readonly #login: Login | undefined;
  #phase: Socks5Phase = 'method';
  #held: Buffer = NO_BYTES;

  constructor(target: HostPort, login: Login | undefined) {
    this.#target = target;
    this.#login = login;
    this.opening = login === undefined ? OFFER_NO_AUTHENTICATION : OFFER_LOGIN;
  }

  take(bytes: Buffer): HandshakeStep {
    const all = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes]);
    const step = this.#read(all);
    // Nobody may speak before his turn: bytes behind a method or login reply are no SOCKS server's.
    this.#held = step.kind === 'more' ? all : NO_BYTES;
    return step;
  }

  #read(all: Buffer): HandshakeStep {
    switch (this.#phase) {
      case 'method':
        return this.#readMethod(all);
      case 'login':
        return this.#readLogin(all);
      case 'reply':
        return readReply(all);
    }
  }

  #readMethod(all: Buffer): HandshakeStep {
    if (all[0] !== SOCKS5_VERSION) return failed('member-protocol', 'not a SOCKS5 answer');
    if (all.length < METHOD_REPLY_BYTES) return MORE;
    if (all.length > METHOD_REPLY_BYTES) return spokeTooSoon();
    const wanted = this.#login === undefined ? NO_AUTHENTICATION : USERNAME_PASSWORD;
    const method = all[1];
    if (method === NO_ACCEPTABLE_METHOD || (method === USERNAME_PASSWORD && method !== wanted)) {
      return failed('member-auth', `method ${method}`);
    }
    if (method !== wanted) return failed('member-protocol', `method ${method} was not offered`);
    if (this.#login === undefined) return this.#request();
    this.#phase = 'login';
    return { kind: 'send', bytes: loginMessage(this.#login) };
  }

  /** The version byte is not looked at: servers send 1 as RFC 1929 wants, or 5, and mean the same. */
  #readLogin(all: Buffer): HandshakeStep {
    if (all.length < LOGIN_REPLY_BYTES) return MORE;
    if (all.length > LOGIN_REPLY_BYTES) return spokeTooSoon();
    return all[1] === SUCCEEDED ? this.#request() : failed('member-auth', `login status ${all[1]}`);
  }

  #request(): HandshakeStep {
    this.#phase = 'reply';
    return { kind: 'send', bytes: socks5Request(this.#target) };
  }
}

function readReply(all: Buffer): HandshakeStep {
  const code = all[1];
  if (all[0] !== SOCKS5_VERSION) return failed('member-protocol', 'not a SOCKS5 answer');
  if (code === undefined) return MORE;
  // A refusal is known by its second byte; not every server sends the rest of it.
  if (code !== SUCCEEDED) return refusal(code);
  if (all.length < REPLY_START_BYTES) return MORE;
  const addressBytes = boundAddressBytes(all);
  if (addressBytes === undefined) return failed('member-protocol', `address type ${all[3]}`);
  const replyBytes = REPLY_START_BYTES - 1 + addressBytes + PORT_BYTES;
  return all.length < replyBytes ? MORE : { kind: 'accepted', rest: all.subarray(replyBytes) };
}

/** How many bytes BND.ADDR takes, the length byte of a name included. */
function boundAddressBytes(reply: Buffer): number | undefined {
  switch (reply[3]) {
    case ATYP_IPV4:
      return 4;
    case ATYP_IPV6:
      return 16;
    case ATYP_NAME:
      return 1 + (reply[4] ?? 0);
    default:
      return undefined;
  }
}

function refusal(code: number): HandshakeFailure {
  const detail = `reply ${code}`;
  if (!TARGET_REPLIES.has(code)) return failed('member-refused', detail);
  return { ...failed('target-doubted', detail), targetRefused: code === CONNECTION_REFUSED };
}

const SOCKS4_REPLY_BYTES = 8;
const SOCKS4_GRANTED = 0x5a;
/** "Request rejected or failed": it may be the target's fault or the member's. */
const SOCKS4_FAILED = 0x5b;
/** No identd at the client, or another user there: this server wants to know who asks. */
const SOCKS4_IDENT = new Set([0x5c, 0x5d]);

/** Whether SOCKS4 can name a target: it has no IPv6 addresses. */
export function socks4CanReach(target: HostPort): boolean {
  return target.kind !== 'ipv6';
}

export class Socks4Handshake implements Handshake {
  readonly opening: Buffer;
  #held: Buffer = NO_BYTES;

  /** @throws TypeError for a target that `socks4CanReach` denies. */
  constructor(target: HostPort, login: Login | undefined) {
    const request = socks4Request(target, login?.username ?? '');
    if (request === undefined) throw new TypeError('SOCKS4 cannot name an IPv6 address');
    this.opening = request;
  }

  take(bytes: Buffer): HandshakeStep {
    const all = this.#held.length === 0 ? bytes : Buffer.concat([this.#held, bytes]);
    // VN of a reply is 0; some servers repeat the 4.
    if (all[0] !== 0x00 && all[0] !== 0x04) return failed('member-protocol', 'not a SOCKS4 answer');
    const code = all[1];
    if (code !== undefined && code !== SOCKS4_GRANTED) return socks4Refusal(code);
    if (all.length >= SOCKS4_REPLY_BYTES) return { kind: 'accepted', rest: all.subarray(SOCKS4_REPLY_BYTES) };
    this.#held = all;
    return MORE;
  }
}

function socks4Refusal(code: number): HandshakeFailure {
  const detail = `reply ${code}`;
  if (code === SOCKS4_FAILED) return failed('target-doubted', detail);
  return failed(SOCKS4_IDENT.has(code) ? 'member-auth' : 'member-protocol', detail);
}

function spokeTooSoon(): HandshakeFailure {
  return failed('member-protocol', 'bytes before they were asked for');
}

function failed(fault: HandshakeFailure['fault'], detail: string): HandshakeFailure {
  return { kind: 'failed', fault, detail };
}
