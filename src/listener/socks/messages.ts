/**
 * What a SOCKS client says and is told, as bytes: SOCKS5 (RFC 1928), its username/password (RFC 1929), SOCKS4 and 4a.
 *
 * Pure: bytes go in as they come, in pieces of any size; a message, a fault, or the need for more comes out. It
 * decides nothing: whoever drives it says which message is expected next, and keeps what follows the request.
 */
import type { FaultCode } from '../../core/faults.ts';
import { type HostPort, hostPort } from '../../core/host-port.ts';

/** As the first byte of a connection says. */
export type SocksVersion = 4 | 5;

/** RFC 1928 §3: the ways a client can prove itself. */
export const AUTH_METHOD = { none: 0x00, password: 0x02, unacceptable: 0xff } as const;
/** RFC 1928 §6 replies that the wire itself knows. */
export const SOCKS5_REPLY = {
  succeeded: 0x00,
  failed: 0x01,
  commandUnknown: 0x07,
  addressUnknown: 0x08,
} as const;

/** What a client said, decoded; its target is canonical. */
export type SocksMessage =
  | { readonly kind: 'greeting'; readonly methods: readonly number[] }
  | { readonly kind: 'credentials'; readonly username: string; readonly password: string }
  /** CONNECT, the only command there is. `userId` is SOCKS4's. */
  | { readonly kind: 'request'; readonly target: HostPort; readonly userId: string };

/** The client is not to be understood. `reply` is what a SOCKS5 request is answered; `detail` is for the log. */
export interface SocksFault {
  readonly kind: 'fault';
  readonly code: Extract<FaultCode, 'bad-request' | 'not-implemented'>;
  readonly reply: number;
  readonly detail: string;
}

/** Which message comes next. With SOCKS4 it is always the request. */
export type ExpectedMessage = 'greeting' | 'credentials' | 'request';

const VERSION_5 = 0x05;
const VERSION_4 = 0x04;
const AUTH_VERSION = 0x01;
const CONNECT = 0x01;
const IPV4 = 0x01;
const NAME = 0x03;
const IPV6 = 0x04;
/** SOCKS4 strings have no length before them; the longest wish is far shorter. */
const MAX_USER_ID_BYTES = 512;
const MAX_NAME_BYTES = 255;
const COMMANDS: Readonly<Record<number, string>> = { 1: 'CONNECT', 2: 'BIND', 3: 'UDP ASSOCIATE' };

/**
 * Reads one message: yields how many bytes it wants next, and is given exactly these. So no message is longer than its
 * grammar lets it be, and what has come is never read twice.
 */
type Reading<Result> = Generator<number, Result, Buffer>;

/** One client's side of the handshake. */
export class SocksReader {
  readonly #version: SocksVersion;
  #bytes: Buffer = Buffer.alloc(0);
  /** The message under way, and the bytes it wants. */
  #reading: { readonly message: Reading<SocksMessage | SocksFault>; wants: number } | undefined;

  constructor(version: SocksVersion) {
    this.#version = version;
  }

  /** Adds what has come. The bytes are kept, not copied: they must not change any more. */
  push(bytes: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? bytes : Buffer.concat([this.#bytes, bytes]);
  }

  /**
   * Takes the expected message off what has come; undefined while it is not whole, and then the same one has to be
   * expected again. After a fault there is nothing more to be read.
   */
  next(expected: ExpectedMessage): SocksMessage | SocksFault | undefined {
    this.#reading ??= { message: this.#read(expected), wants: 0 };
    while (this.#bytes.length >= this.#reading.wants) {
      const taken = this.#bytes.subarray(0, this.#reading.wants);
      this.#bytes = this.#bytes.subarray(this.#reading.wants);
      const step = this.#reading.message.next(taken);
      if (step.done) {
        this.#reading = undefined;
        return step.value;
      }
      this.#reading.wants = step.value;
    }
    return undefined;
  }

  /** Everything that came after the messages taken so far: the first bytes for the target. */
  rest(): Buffer {
    return this.#bytes;
  }

  #read(expected: ExpectedMessage): Reading<SocksMessage | SocksFault> {
    if (this.#version === 4) return readSocks4();
    switch (expected) {
      case 'greeting':
        return readGreeting();
      case 'credentials':
        return readCredentials();
      case 'request':
        return readSocks5();
    }
  }
}

/** RFC 1928 §3: the method chosen. */
export function methodSelection(method: number): Buffer {
  return Buffer.from([VERSION_5, method]);
}

/** RFC 1929 §2: 0 is success, anything else a failure after which the connection is closed. */
export function authStatus(ok: boolean): Buffer {
  return Buffer.from([AUTH_VERSION, ok ? 0x00 : 0x01]);
}

/** The last word of the handshake. The bound address is never told: all zeros, as RFC 1928 §6 leaves room for. */
export function requestReply(version: SocksVersion, reply: number): Buffer {
  if (version === 5) return Buffer.from([VERSION_5, reply, 0x00, IPV4, 0, 0, 0, 0, 0, 0]);
  const granted = 0x5a;
  const rejected = 0x5b;
  return Buffer.from([0x00, reply === SOCKS5_REPLY.succeeded ? granted : rejected, 0, 0, 0, 0, 0, 0]);
}

/** SOCKS4: the user id is not enough to prove who the client is. */
export function socks4AuthRejection(): Buffer {
  const userIdMismatch = 0x5d;
  return Buffer.from([0x00, userIdMismatch, 0, 0, 0, 0, 0, 0]);
}

function* readGreeting(): Reading<SocksMessage | SocksFault> {
  const version = yield* byte();
  if (version !== VERSION_5) return malformed(`SOCKS version ${version}`);
  return { kind: 'greeting', methods: [...(yield yield* byte())] };
}

function* readCredentials(): Reading<SocksMessage | SocksFault> {
  const version = yield* byte();
  if (version !== AUTH_VERSION) return malformed(`version ${version} of username/password`);
  // Empty ones are taken, though RFC 1929 says 1 to 255: clients send them where a password is not needed.
  const username = yield* countedText();
  const password = yield* countedText();
  return { kind: 'credentials', username, password };
}

function* readSocks5(): Reading<SocksMessage | SocksFault> {
  const version = yield* byte();
  if (version !== VERSION_5) return malformed(`SOCKS version ${version} in the request`);
  const command = yield* byte();
  if (command !== CONNECT) return unknownCommand(command);
  yield* byte(); // reserved; clients exist that do not send 0 here
  const host = yield* readAddress();
  return typeof host === 'string' ? request(host, yield* uint16(), '') : host;
}

function* readAddress(): Reading<string | SocksFault> {
  const type = yield* byte();
  switch (type) {
    case IPV4:
      return (yield 4).join('.');
    case NAME:
      // Some clients send an IPv6 literal as a name, with its brackets; it is that address all the same.
      return (yield* countedText()).replace(/^\[(.*)\]$/, '$1');
    case IPV6:
      return ipv6Text(yield 16);
    default:
      return unknownAddressType(type);
  }
}

/** SOCKS4 (`0x04 CMD PORT IP USERID NUL`), and 4a, where 0.0.0.x as the address says that a name follows. */
function* readSocks4(): Reading<SocksMessage | SocksFault> {
  const version = yield* byte();
  if (version !== VERSION_4) return malformed(`SOCKS version ${version}`);
  const command = yield* byte();
  if (command !== CONNECT) return unknownCommand(command);
  const port = yield* uint16();
  const address = yield 4;
  const userId = yield* textToNul(MAX_USER_ID_BYTES);
  if (userId === undefined) return malformed(`a user id of more than ${MAX_USER_ID_BYTES} bytes`);
  const named = address.readUInt32BE() > 0 && address.readUInt32BE() <= 0xff;
  const host = named ? yield* textToNul(MAX_NAME_BYTES) : address.join('.');
  if (host === undefined) return malformed(`a host name of more than ${MAX_NAME_BYTES} bytes`);
  return request(host, port, userId);
}

function* byte(): Reading<number> {
  return (yield 1).readUInt8();
}

function* uint16(): Reading<number> {
  return (yield 2).readUInt16BE();
}

/** A byte that counts, and so many bytes of text. */
function* countedText(): Reading<string> {
  return (yield yield* byte()).toString('utf8');
}

/** Text up to a NUL; undefined when more than `most` bytes come before it. */
function* textToNul(most: number): Reading<string | undefined> {
  const bytes: number[] = [];
  for (;;) {
    const next = yield* byte();
    if (next === 0) return Buffer.from(bytes).toString('utf8');
    if (bytes.length === most) return undefined;
    bytes.push(next);
  }
}

function request(host: string, port: number, userId: string): SocksMessage | SocksFault {
  const target = hostPort(host, port);
  return target === undefined
    ? malformed('a target that is no host and port')
    : { kind: 'request', target, userId };
}

function malformed(detail: string): SocksFault {
  return { kind: 'fault', code: 'bad-request', reply: SOCKS5_REPLY.failed, detail };
}

function unknownCommand(command: number): SocksFault {
  const detail = `command ${COMMANDS[command] ?? command}`;
  return { kind: 'fault', code: 'not-implemented', reply: SOCKS5_REPLY.commandUnknown, detail };
}

function unknownAddressType(type: number): SocksFault {
  return {
    kind: 'fault',
    code: 'not-implemented',
    reply: SOCKS5_REPLY.addressUnknown,
    detail: `address type ${type}`,
  };
}

function ipv6Text(bytes: Buffer): string {
  return [0, 2, 4, 6, 8, 10, 12, 14].map((at) => bytes.readUInt16BE(at).toString(16)).join(':');
}
