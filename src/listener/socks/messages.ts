/**
 * Parses the messages of SOCKS clients and formats the replies: SOCKS5 (RFC 1928), its username/password authentication
 * (RFC 1929), SOCKS4 and SOCKS4a.
 *
 * Pure, without I/O: chunks of any size go in; a message, a fault or undefined (more bytes needed) comes out. The caller decides
 * which message it expects next.
 */
import type { FaultCode } from '../../core/faults.ts';
import { type HostPort, hostPort } from '../../core/host-port.ts';

/** The protocol version, which the first byte of a connection selects. */
export type SocksVersion = 4 | 5;

/** Authentication methods of RFC 1928 §3. */
export const AUTH_METHOD = { none: 0x00, password: 0x02, unacceptable: 0xff } as const;
/** The reply codes of RFC 1928 §6 that this file uses. */
export const SOCKS5_REPLY = {
  succeeded: 0x00,
  failed: 0x01,
  commandUnknown: 0x07,
  addressUnknown: 0x08,
} as const;

/** A message of the client, decoded. Its target is canonical. */
export type SocksMessage =
  | { readonly kind: 'greeting'; readonly methods: readonly number[] }
  | { readonly kind: 'credentials'; readonly username: string; readonly password: string }
  /** CONNECT: other commands are faults. `userId` is '' in SOCKS5. */
  | { readonly kind: 'request'; readonly target: HostPort; readonly userId: string };

/** A message that cannot be parsed or is not supported. `reply` is the SOCKS5 reply code; `detail` is for the log. */
export interface SocksFault {
  readonly kind: 'fault';
  readonly code: Extract<FaultCode, 'bad-request' | 'not-implemented'>;
  readonly reply: number;
  readonly detail: string;
}

/** A SOCKS4 client sends only a request. */
export type ExpectedMessage = 'greeting' | 'credentials' | 'request';

const VERSION_5 = 0x05;
const VERSION_4 = 0x04;
const AUTH_VERSION = 0x01;
const CONNECT = 0x01;
const IPV4 = 0x01;
const NAME = 0x03;
const IPV6 = 0x04;
/** SOCKS4 strings have no length prefix. Routing options are far shorter. */
const MAX_USER_ID_BYTES = 512;
const MAX_NAME_BYTES = 255;
const COMMANDS: Readonly<Record<number, string>> = { 1: 'CONNECT', 2: 'BIND', 3: 'UDP ASSOCIATE' };

/**
 * Parses one message: yields the number of bytes it needs next, and receives exactly these. So a message cannot be longer than
 * its grammar allows, and no byte is parsed twice.
 */
type Parser<Result> = Generator<number, Result, Buffer>;

export class SocksReader {
  readonly #version: SocksVersion;
  #bytes: Buffer = Buffer.alloc(0);
  /** The parser of an incomplete message, and how many bytes it needs next. */
  #current: { readonly parser: Parser<SocksMessage | SocksFault>; needed: number } | undefined;

  constructor(version: SocksVersion) {
    this.#version = version;
  }

  /** Adds received bytes. They are not copied, so they must not change afterwards. */
  push(bytes: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? bytes : Buffer.concat([this.#bytes, bytes]);
  }

  /**
   * Returns the expected message once it is complete. While it returns undefined, the next call must expect the same message.
   * After a fault it must not be called again.
   */
  next(expected: ExpectedMessage): SocksMessage | SocksFault | undefined {
    this.#current ??= { parser: this.#parserFor(expected), needed: 0 };
    while (this.#bytes.length >= this.#current.needed) {
      const taken = this.#bytes.subarray(0, this.#current.needed);
      this.#bytes = this.#bytes.subarray(this.#current.needed);
      const step = this.#current.parser.next(taken);
      if (step.done) {
        this.#current = undefined;
        return step.value;
      }
      this.#current.needed = step.value;
    }
    return undefined;
  }

  /** Everything received after the messages returned so far: the first bytes for the target. */
  rest(): Buffer {
    return this.#bytes;
  }

  #parserFor(expected: ExpectedMessage): Parser<SocksMessage | SocksFault> {
    if (this.#version === 4) return parseSocks4Request();
    switch (expected) {
      case 'greeting':
        return parseGreeting();
      case 'credentials':
        return parseCredentials();
      case 'request':
        return parseSocks5Request();
    }
  }
}

/** The reply to a greeting (RFC 1928 §3). */
export function methodSelection(method: number): Buffer {
  return Buffer.from([VERSION_5, method]);
}

/** The reply to credentials (RFC 1929 §2). After anything but 0, the server closes the connection. */
export function authStatus(ok: boolean): Buffer {
  return Buffer.from([AUTH_VERSION, ok ? 0x00 : 0x01]);
}

/** The reply to a request. The bound address is always zeros, so that it reveals nothing about the member. */
export function requestReply(version: SocksVersion, reply: number): Buffer {
  if (version === 5) return Buffer.from([VERSION_5, reply, 0x00, IPV4, 0, 0, 0, 0, 0, 0]);
  const granted = 0x5a;
  const rejected = 0x5b;
  return Buffer.from([0x00, reply === SOCKS5_REPLY.succeeded ? granted : rejected, 0, 0, 0, 0, 0, 0]);
}

/** The SOCKS4 reply that says that the user id does not authenticate the client. */
export function socks4AuthRejection(): Buffer {
  const userIdMismatch = 0x5d;
  return Buffer.from([0x00, userIdMismatch, 0, 0, 0, 0, 0, 0]);
}

function* parseGreeting(): Parser<SocksMessage | SocksFault> {
  const version = yield* byte();
  if (version !== VERSION_5) return malformed(`the message has SOCKS version ${version}`);
  return { kind: 'greeting', methods: [...(yield yield* byte())] };
}

function* parseCredentials(): Parser<SocksMessage | SocksFault> {
  const version = yield* byte();
  if (version !== AUTH_VERSION) return malformed(`the message has username/password version ${version}`);
  // RFC 1929 requires 1 to 255 bytes. noria accepts empty texts, because clients send them where no password is needed.
  const username = yield* countedText();
  const password = yield* countedText();
  return { kind: 'credentials', username, password };
}

function* parseSocks5Request(): Parser<SocksMessage | SocksFault> {
  const version = yield* byte();
  if (version !== VERSION_5) return malformed(`the request has SOCKS version ${version}`);
  const command = yield* byte();
  if (command !== CONNECT) return unsupportedCommand(command);
  yield* byte(); // reserved; some clients do not send 0
  const host = yield* parseAddress();
  return typeof host === 'string' ? request(host, yield* uint16(), '') : host;
}

function* parseAddress(): Parser<string | SocksFault> {
  const type = yield* byte();
  switch (type) {
    case IPV4:
      return (yield 4).join('.');
    case NAME:
      // Some clients send an IPv6 literal in brackets as a name.
      return (yield* countedText()).replace(/^\[(.*)\]$/, '$1');
    case IPV6:
      return ipv6Text(yield 16);
    default:
      return unsupported(`the message has address type ${type}`, SOCKS5_REPLY.addressUnknown);
  }
}

/** SOCKS4 (`0x04 CMD PORT IP USERID NUL`) and SOCKS4a, in which the address 0.0.0.x announces a host name after the user id. */
function* parseSocks4Request(): Parser<SocksMessage | SocksFault> {
  const version = yield* byte();
  if (version !== VERSION_4) return malformed(`the message has SOCKS version ${version}`);
  const command = yield* byte();
  if (command !== CONNECT) return unsupportedCommand(command);
  const port = yield* uint16();
  const address = yield 4;
  const userId = yield* textToNul(MAX_USER_ID_BYTES);
  if (userId === undefined) return malformed(`the user id is longer than ${MAX_USER_ID_BYTES} bytes`);
  const named = address.readUInt32BE() > 0 && address.readUInt32BE() <= 0xff;
  const host = named ? yield* textToNul(MAX_NAME_BYTES) : address.join('.');
  if (host === undefined) return malformed(`the host name is longer than ${MAX_NAME_BYTES} bytes`);
  return request(host, port, userId);
}

function* byte(): Parser<number> {
  return (yield 1).readUInt8();
}

function* uint16(): Parser<number> {
  return (yield 2).readUInt16BE();
}

/** Parses a length byte and a text of that length. */
function* countedText(): Parser<string> {
  return (yield yield* byte()).toString('utf8');
}

/** Parses text up to a NUL. Returns undefined if the text is longer than `maxBytes`. */
function* textToNul(maxBytes: number): Parser<string | undefined> {
  const bytes: number[] = [];
  for (;;) {
    const next = yield* byte();
    if (next === 0) return Buffer.from(bytes).toString('utf8');
    if (bytes.length === maxBytes) return undefined;
    bytes.push(next);
  }
}

function request(host: string, port: number, userId: string): SocksMessage | SocksFault {
  const target = hostPort(host, port);
  return target === undefined
    ? malformed('the target is not a valid host and port')
    : { kind: 'request', target, userId };
}

function malformed(detail: string): SocksFault {
  return { kind: 'fault', code: 'bad-request', reply: SOCKS5_REPLY.failed, detail };
}

function unsupported(detail: string, reply: number): SocksFault {
  return { kind: 'fault', code: 'not-implemented', reply, detail };
}

function unsupportedCommand(command: number): SocksFault {
  return unsupported(`command ${COMMANDS[command] ?? command}`, SOCKS5_REPLY.commandUnknown);
}

function ipv6Text(bytes: Buffer): string {
  return [0, 2, 4, 6, 8, 10, 12, 14].map((at) => bytes.readUInt16BE(at).toString(16)).join(':');
}
