/**
 * The proxy protocols in which noria asks a member, or a front proxy, for a connection to a target: HTTP CONNECT, SOCKS5,
 * SOCKS4 and SOCKS4A. Each is a state machine that takes bytes and returns the next step, without a socket and a clock;
 * its user handles timeouts and closed connections. Sources: RFC 9110 §9.3.6 and §15, RFC 9112 §3.2.3, RFC 1928
 * (SOCKS5), RFC 1929 (user names and passwords), the SOCKS4 and SOCKS4A memos of NEC and Ylönen.
 */
import type { FaultCode } from '../core/faults.ts';
import type { HostPort } from '../core/host-port.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { Login, Secret } from '../core/secret.ts';
import type { PreparedLogin } from './source-memory.ts';

export interface HandshakeFailure {
  readonly kind: 'failed';
  readonly fault: Extract<FaultCode, 'member-auth' | 'member-refused' | 'member-protocol' | 'target-doubted'>;
  /** `status 502`, `reply 5`: nothing else from the member. */
  readonly detail: string;
  readonly targetRefused?: boolean;
  readonly status?: number;
  readonly isLoop?: boolean;
  /** Whether the member does not accept CONNECT to this target. It may accept a plain HTTP request in absolute form. */
  readonly noConnect?: boolean;
}

export type HandshakeStep =
  | { readonly kind: 'more' }
  | { readonly kind: 'send'; readonly bytes: Buffer }
  /** `rest`: what followed the member's answer, for the client. */
  | { readonly kind: 'accepted'; readonly rest: Buffer }
  | HandshakeFailure;

export interface Handshake {
  /** A string is in Latin-1. */
  readonly opening: Buffer | string;
  /** Takes the next bytes, split at any position. Do not call it after `accepted` or `failed`. */
  take(bytes: Buffer): HandshakeStep;
}

const MORE: HandshakeStep = { kind: 'more' };
export const NO_BYTES: Buffer = Buffer.alloc(0);

export function memberHandshake(
  protocol: MemberProtocol,
  target: HostPort,
  login: PreparedLogin | undefined,
  isPipelined: boolean,
): Handshake {
  switch (protocol) {
    case 'http':
    case 'https':
      return new ConnectHandshake(target, login?.authorization);
    case 'socks5':
      return new Socks5Handshake(target, login, isPipelined);
    case 'socks4':
      return new Socks4Handshake(target, login);
  }
}

function failed(fault: HandshakeFailure['fault'], detail: string): HandshakeFailure {
  return { kind: 'failed', fault, detail };
}

/** The maximum length of a response head, which limits the memory and the time that an endless head can cost. */
export const MAX_RESPONSE_HEAD_BYTES = 16 * 1024;

const PROXY_AUTHENTICATION_REQUIRED = 407;
/** The error token of Proxy-Status with which a proxy reports a loop (RFC 9209 §2.3.29). */
const LOOP_TOKEN = 'proxy_loop_detected';
const TARGET_UNREACHABLE = new Set([502, 503, 504]);
/** Perhaps only to this port: the member may still accept a plain request in absolute form. */
const NO_CONNECT = new Set([400, 403, 404, 405, 501]);

/** The request is sent in one write. The credentials are for the member and never enter the tunnel. */
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
      if (head === 'garbage') return failed('member-protocol', 'not an HTTP response');
      const headBytes = head === 'more' ? left.length : head.endBytes;
      if (this.#interimBytes + headBytes > MAX_RESPONSE_HEAD_BYTES) {
        return failed('member-protocol', `the response head is longer than ${MAX_RESPONSE_HEAD_BYTES} bytes`);
      }
      if (head === 'more') break;
      if (head.status >= 300) return connectRefusal(head.status, left.subarray(0, headBytes));
      if (head.status >= 200) return { kind: 'accepted', rest: left.subarray(headBytes) };
      left = left.subarray(headBytes);
      // 1xx responses precede the final response (RFC 9110 §15.2). Status 101 is an error, because noria never sends
      // Upgrade with CONNECT.
      if (head.status < 100 || head.status === 101) return failed('member-protocol', `status ${head.status}`);
      this.#interimBytes += headBytes;
      scanned = 0;
    }
    this.#buffered = left;
    return MORE;
  }
}

function connectRefusal(status: number, head: Buffer): HandshakeFailure {
  const detail = `status ${status}`;
  if (status === PROXY_AUTHENTICATION_REQUIRED) return failed('member-auth', detail);
  if (TARGET_UNREACHABLE.has(status)) {
    const isLoop = status === 502 && head.includes(LOOP_TOKEN);
    return { kind: 'failed', fault: 'target-doubted', detail, ...(isLoop && { isLoop }) };
  }
  return { kind: 'failed', fault: 'member-refused', detail, status, noConnect: NO_CONNECT.has(status) };
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
  const unchecked = scanned <= STATUS_END ? Math.min(bytes.length, STATUS_LINE.length) : 0;
  for (let index = 0; index < unchecked; index += 1) {
    const byte = bytes[index] ?? 0;
    const wanted = STATUS_LINE[index];
    const isEnd = index === STATUS_END && (byte === CR || byte === LF);
    const isDigit = wanted === NINE && byte >= ZERO && byte <= NINE;
    if (byte !== wanted && !isEnd && !isDigit) return 'garbage';
  }
  const endBytes = findHeadEnd(bytes, Math.max(STATUS_END, scanned - 3));
  if (endBytes === undefined) return 'more';
  return { status: Number(bytes.toString('latin1', STATUS_AT, STATUS_END)), endBytes };
}

function findHeadEnd(bytes: Buffer, from: number): number | undefined {
  for (let lf = bytes.indexOf(LF, from); lf >= 0; lf = bytes.indexOf(LF, lf + 1)) {
    if (bytes[lf + 1] === LF) return lf + 2;
    if (bytes[lf + 1] === CR && bytes[lf + 2] === LF) return lf + 3;
  }
  return undefined;
}

const CONNECT = 0x01;
const SOCKS5_VERSION = 0x05;
const LOGIN_VERSION = 0x01;
const NO_AUTHENTICATION = 0x00;
const USERNAME_PASSWORD = 0x02;
const NO_ACCEPTABLE_METHOD = 0xff;
const ATYP_IPV4 = 0x01;
const ATYP_NAME = 0x03;
const ATYP_IPV6 = 0x04;

/** Offers one authentication method: some servers choose one of several offered methods, and then refuse it. */
const OFFER_NO_AUTHENTICATION = Buffer.from([SOCKS5_VERSION, 1, NO_AUTHENTICATION]);
const OFFER_LOGIN = Buffer.from([SOCKS5_VERSION, 1, USERNAME_PASSWORD]);

/** Of the replies to the method and to the login. */
const SHORT_REPLY_BYTES = 2;
/** VER, REP, RSV, ATYP, and the first byte of the address. If the address is a name, this byte is its length. */
const REPLY_START_BYTES = 5;
const PORT_BYTES = 2;

const SUCCEEDED = 0x00;
const CONNECTION_REFUSED = 0x05;
/** Network unreachable, host unreachable, connection refused, TTL expired. */
const TARGET_REPLIES = new Set([0x03, 0x04, CONNECTION_REFUSED, 0x06]);

export class Socks5Handshake implements Handshake {
  readonly opening: Buffer;
  #target: HostPort | undefined;
  readonly #login: Login | undefined;
  readonly #isPipelined: boolean;
  #phase: 'method' | 'login' | 'reply' = 'method';
  #buffered: Buffer = NO_BYTES;

  /** @param target - undefined: after the login, the handshake waits for `request`. */
  constructor(target: HostPort | undefined, login: Login | undefined, isPipelined = false) {
    this.#target = target;
    this.#login = login;
    this.#isPipelined = isPipelined && target !== undefined;
    const greeting = login === undefined ? OFFER_NO_AUTHENTICATION : OFFER_LOGIN;
    this.opening = greeting;
    if (isPipelined && target !== undefined) {
      const early = login === undefined ? NO_BYTES : loginMessage(login);
      this.opening = Buffer.concat([greeting, early, socks5Request(target)]);
    }
  }

  get isWaiting(): boolean {
    return this.#phase === 'reply' && this.#target === undefined;
  }

  /** @returns the request, if the member waits for it. */
  request(target: HostPort): Buffer | undefined {
    const { isWaiting } = this;
    this.#target = target;
    return isWaiting ? socks5Request(target) : undefined;
  }

  take(bytes: Buffer): HandshakeStep {
    let all = this.#buffered.length === 0 ? bytes : Buffer.concat([this.#buffered, bytes]);
    for (;;) {
      const step = this.#read(all);
      if (typeof step !== 'string') {
        this.#buffered = all;
        return step;
      }
      all = all.subarray(SHORT_REPLY_BYTES);
      this.#phase = step;
      this.#buffered = NO_BYTES;
      if (!this.#isPipelined) {
        // A SOCKS server must wait for the client here, so further bytes break the protocol.
        if (all.length > 0) return failed('member-protocol', 'extra bytes after the reply');
        const message = this.#message(step);
        return message === undefined ? MORE : { kind: 'send', bytes: message };
      }
      if (all.length === 0) return MORE;
    }
  }

  /** @returns the next phase after a complete reply. */
  #read(all: Buffer): HandshakeStep | 'login' | 'reply' {
    switch (this.#phase) {
      case 'method':
        return this.#readMethod(all);
      case 'login':
        return readLoginReply(all);
      case 'reply':
        return readReply(all);
    }
  }

  #readMethod(all: Buffer): HandshakeStep | 'login' | 'reply' {
    if (all[0] !== SOCKS5_VERSION) return failed('member-protocol', 'not a SOCKS5 reply');
    if (all.length < SHORT_REPLY_BYTES) return MORE;
    const wanted = this.#login === undefined ? NO_AUTHENTICATION : USERNAME_PASSWORD;
    const method = all[1];
    if (method === NO_ACCEPTABLE_METHOD || (method === USERNAME_PASSWORD && method !== wanted)) {
      return failed('member-auth', `method ${method}`);
    }
    if (method !== wanted)
      return failed('member-protocol', `the member chose method ${method}, which noria did not offer`);
    return this.#login === undefined ? 'reply' : 'login';
  }

  /** Undefined while the target is not set. */
  #message(phase: 'login' | 'reply'): Buffer | undefined {
    if (phase === 'login' && this.#login !== undefined) return loginMessage(this.#login);
    return this.#target && socks5Request(this.#target);
  }
}

/** Ignores the version byte: RFC 1929 requires 1, but some servers send 5. */
function readLoginReply(all: Buffer): HandshakeStep | 'reply' {
  if (all.length < SHORT_REPLY_BYTES) return MORE;
  return all[1] === SUCCEEDED ? 'reply' : failed('member-auth', `login status ${all[1]}`);
}

/** The login message (RFC 1929 §2). The configuration limits user name and password to 255 bytes each. */
function loginMessage(login: Login): Buffer {
  const username = Buffer.from(login.username, 'utf8');
  const password = Buffer.from(login.password.reveal(), 'utf8');
  return Buffer.concat([
    Buffer.from([LOGIN_VERSION, username.length]),
    username,
    Buffer.from([password.length]),
    password,
  ]);
}

/** The CONNECT request (RFC 1928 §4). A name is sent as a name, so the member resolves it. */
function socks5Request(target: HostPort): Buffer {
  const address = socks5Address(target);
  const request = Buffer.allocUnsafe(3 + address.length + PORT_BYTES);
  request[0] = SOCKS5_VERSION;
  request[1] = CONNECT;
  request[2] = 0; // the reserved byte, which must be 0
  request.set(address, 3);
  request.writeUInt16BE(target.port, 3 + address.length);
  return request;
}

function socks5Address({ host, kind }: HostPort): Buffer {
  switch (kind) {
    case 'ipv4':
      return Buffer.from([ATYP_IPV4, ...ipv4Bytes(host)]);
    case 'ipv6':
      return Buffer.from([ATYP_IPV6, ...ipv6Bytes(host)]);
    case 'name': {
      // One byte is enough for the length, because a name has at most 253 ASCII characters.
      const address = Buffer.allocUnsafe(2 + host.length);
      address[0] = ATYP_NAME;
      address[1] = host.length;
      address.write(host, 2, 'latin1');
      return address;
    }
  }
}

function ipv4Bytes(host: string): number[] {
  return host.split('.').map(Number);
}

/** @param host - in canonical form: groups of hexadecimal digits, with at most one `::`. */
function ipv6Bytes(host: string): number[] {
  const [left = '', right] = host.split('::');
  const groups = (part: string) =>
    part === '' ? [] : part.split(':').map((group) => Number.parseInt(group, 16));
  const head = groups(left);
  const tail = right === undefined ? [] : groups(right);
  const zeros = new Array<number>(8 - head.length - tail.length).fill(0);
  return [...head, ...zeros, ...tail].flatMap((group) => [group >> 8, group & 0xff]);
}

function readReply(all: Buffer): HandshakeStep {
  const code = all[1];
  if (all[0] !== SOCKS5_VERSION) return failed('member-protocol', 'not a SOCKS5 reply');
  if (code === undefined) return MORE;
  // A nonzero reply code (REP) is a refusal, even if the server omits the rest of the reply.
  if (code !== SUCCEEDED) return refusal(code);
  if (all.length < REPLY_START_BYTES) return MORE;
  const addressBytes = boundAddressBytes(all);
  if (addressBytes === undefined)
    return failed('member-protocol', `the reply has the unknown address type ${all[3]}`);
  const replyBytes = REPLY_START_BYTES - 1 + addressBytes + PORT_BYTES;
  return all.length < replyBytes ? MORE : { kind: 'accepted', rest: all.subarray(replyBytes) };
}

/** Of BND.ADDR, including the length byte of a name. */
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

const SOCKS4_VERSION = 0x04;
/** SOCKS4A: an address `0.0.0.x` whose x is not 0 announces that a name follows. */
const NAME_FOLLOWS = [0, 0, 0, 1];
const SOCKS4_REPLY_BYTES = 8;
const SOCKS4_GRANTED = 0x5a;
/** "Request rejected or failed": either the target or the member is the cause. */
const SOCKS4_FAILED = 0x5b;
/** The member found no identd on this machine, or one that names another user. */
const SOCKS4_IDENT = new Set([0x5c, 0x5d]);

export function socks4CanReach(target: HostPort): boolean {
  return target.kind !== 'ipv6';
}

export class Socks4Handshake implements Handshake {
  readonly opening: Buffer;
  #buffered: Buffer = NO_BYTES;

  constructor(target: HostPort, login: Login | undefined) {
    if (!socks4CanReach(target)) throw new TypeError('SOCKS4 has no IPv6 addresses');
    this.opening = socks4Request(target, login?.username ?? '');
  }

  take(bytes: Buffer): HandshakeStep {
    const all = this.#buffered.length === 0 ? bytes : Buffer.concat([this.#buffered, bytes]);
    // The first byte of a reply (VN) is 0, but some servers send 4.
    if (all[0] !== 0x00 && all[0] !== SOCKS4_VERSION) return failed('member-protocol', 'not a SOCKS4 reply');
    const code = all[1];
    if (code !== undefined && code !== SOCKS4_GRANTED) return socks4Refusal(code);
    if (all.length >= SOCKS4_REPLY_BYTES) return { kind: 'accepted', rest: all.subarray(SOCKS4_REPLY_BYTES) };
    this.#buffered = all;
    return MORE;
  }
}

function socks4Request(target: HostPort, userId: string): Buffer {
  const isName = target.kind === 'name';
  return Buffer.concat([
    Buffer.from([SOCKS4_VERSION, CONNECT, target.port >> 8, target.port & 0xff]),
    Buffer.from(isName ? NAME_FOLLOWS : ipv4Bytes(target.host)),
    Buffer.from(`${userId}\0`, 'utf8'),
    Buffer.from(isName ? `${target.host}\0` : '', 'latin1'),
  ]);
}

function socks4Refusal(code: number): HandshakeFailure {
  const detail = `reply ${code}`;
  if (code === SOCKS4_FAILED) return failed('target-doubted', detail);
  return failed(SOCKS4_IDENT.has(code) ? 'member-auth' : 'member-protocol', detail);
}
