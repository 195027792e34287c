/**
 * What a SOCKS client says and is told, as bytes: SOCKS5 (RFC 1928), its username/password (RFC 1929), SOCKS4 and 4a.
 *
 * Pure: bytes go in as they come, in pieces of any size; a message, a fault, or the need for more comes out. It
 * decides nothing: whoever drives it says which message is expected next, and keeps what follows the request.
 */
import type { FaultCode } from '../core/faults.ts';
import { type HostPort, hostPort } from '../core/host-port.ts';

export type SocksVersion = 4 | 5;

/** RFC 1928 §3: the ways a client can prove itself. */
export const METHOD = { none: 0x00, password: 0x02, unacceptable: 0xff } as const;
/** RFC 1928 §6 replies that the wire itself knows. */
export const REPLY = { succeeded: 0x00, failed: 0x01, commandUnknown: 0x07, addressUnknown: 0x08 } as const;

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

export type Expected = 'greeting' | 'credentials' | 'request';

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

/** One client's side of the handshake. */
export class SocksWire {
  readonly #version: SocksVersion;
  #bytes: Buffer = Buffer.alloc(0);

  constructor(version: SocksVersion) {
    this.#version = version;
  }

  push(bytes: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? bytes : Buffer.concat([this.#bytes, bytes]);
  }

  /**
   * Takes the expected message off what has come; undefined while it is not whole. No more than its longest form is
   * ever waited for: 257 bytes of greeting, 513 of credentials, 262 of a SOCKS5 request, 777 of a SOCKS4 one.
   */
  next(expected: Expected): SocksMessage | SocksFault | undefined {
    const reader = new Reader(this.#bytes);
    try {
      const message = this.#read(expected, reader);
      if (message.kind !== 'fault') this.#bytes = this.#bytes.subarray(reader.used);
      return message;
    } catch (error) {
      if (error === INCOMPLETE) return undefined; // handled: the rest has yet to come
      throw error;
    }
  }

  /** Everything that came after the messages taken so far: the first bytes for the target. */
  rest(): Buffer {
    return this.#bytes;
  }

  #read(expected: Expected, reader: Reader): SocksMessage | SocksFault {
    if (this.#version === 4) return readSocks4(reader);
    if (expected === 'greeting') return readGreeting(reader);
    return expected === 'credentials' ? readCredentials(reader) : readSocks5(reader);
  }
}

/** RFC 1928 §3: the method chosen. */
export function methodReply(method: number): Buffer {
  return Buffer.from([VERSION_5, method]);
}

/** RFC 1929 §2: 0 is success, anything else a failure after which the connection is closed. */
export function credentialsReply(ok: boolean): Buffer {
  return Buffer.from([AUTH_VERSION, ok ? 0x00 : 0x01]);
}

/** The last word of the handshake. The bound address is never told: all zeros, as RFC 1928 §6 leaves room for. */
export function finalReply(version: SocksVersion, reply: number): Buffer {
  if (version === 5) return Buffer.from([VERSION_5, reply, 0x00, IPV4, 0, 0, 0, 0, 0, 0]);
  const granted = 0x5a;
  const rejected = 0x5b;
  return Buffer.from([0x00, reply === REPLY.succeeded ? granted : rejected, 0, 0, 0, 0, 0, 0]);
}

/** SOCKS4: the user id is not enough to prove who the client is. */
export function socks4AuthReply(): Buffer {
  const userIdMismatch = 0x5d;
  return Buffer.from([0x00, userIdMismatch, 0, 0, 0, 0, 0, 0]);
}

function readGreeting(reader: Reader): SocksMessage | SocksFault {
  const version = reader.byte();
  if (version !== VERSION_5) return malformed(`SOCKS version ${version}`);
  return { kind: 'greeting', methods: [...reader.bytes(reader.byte())] };
}

function readCredentials(reader: Reader): SocksMessage | SocksFault {
  const version = reader.byte();
  if (version !== AUTH_VERSION) return malformed(`version ${version} of username/password`);
  // Empty ones are taken, though RFC 1929 says 1 to 255: clients send them where a password is not needed.
  const username = reader.text(reader.byte());
  const password = reader.text(reader.byte());
  return { kind: 'credentials', username, password };
}

function readSocks5(reader: Reader): SocksMessage | SocksFault {
  const version = reader.byte();
  if (version !== VERSION_5) return malformed(`SOCKS version ${version} in the request`);
  const command = reader.byte();
  if (command !== CONNECT) return unknownCommand(command);
  reader.byte(); // reserved; clients exist that do not send 0 here
  const host = readAddress(reader);
  if (typeof host !== 'string') return host;
  return request(host, reader.uint16(), '');
}

function readAddress(reader: Reader): string | SocksFault {
  const type = reader.byte();
  switch (type) {
    case IPV4:
      return reader.bytes(4).join('.');
    case NAME:
      // Some clients send an IPv6 literal as a name, with its brackets; it is that address all the same.
      return reader.text(reader.byte()).replace(/^\[(.*)\]$/, '$1');
    case IPV6:
      return ipv6Text(reader.bytes(16));
    default:
      return {
        kind: 'fault',
        code: 'not-implemented',
        reply: REPLY.addressUnknown,
        detail: `address type ${type}`,
      };
  }
}

/** SOCKS4 (`0x04 CMD PORT IP USERID NUL`), and 4a, where 0.0.0.x as the address says that a name follows. */
function readSocks4(reader: Reader): SocksMessage | SocksFault {
  const version = reader.byte();
  if (version !== VERSION_4) return malformed(`SOCKS version ${version}`);
  const command = reader.byte();
  if (command !== CONNECT) return unknownCommand(command);
  const port = reader.uint16();
  const address = reader.bytes(4);
  const userId = reader.textToNul(MAX_USER_ID_BYTES);
  if (userId === undefined) return malformed(`a user id of more than ${MAX_USER_ID_BYTES} bytes`);
  const named = address.readUInt32BE() > 0 && address.readUInt32BE() <= 0xff;
  const host = named ? reader.textToNul(MAX_NAME_BYTES) : address.join('.');
  if (host === undefined) return malformed(`a host name of more than ${MAX_NAME_BYTES} bytes`);
  return request(host, port, userId);
}

function request(host: string, port: number, userId: string): SocksMessage | SocksFault {
  const target = hostPort(host, port);
  return target === undefined
    ? malformed('a target that is no host and port')
    : { kind: 'request', target, userId };
}

function malformed(detail: string): SocksFault {
  return { kind: 'fault', code: 'bad-request', reply: REPLY.failed, detail };
}

function unknownCommand(command: number): SocksFault {
  const detail = `command ${COMMANDS[command] ?? command}`;
  return { kind: 'fault', code: 'not-implemented', reply: REPLY.commandUnknown, detail };
}

function ipv6Text(bytes: Buffer): string {
  return [0, 2, 4, 6, 8, 10, 12, 14].map((at) => bytes.readUInt16BE(at).toString(16)).join(':');
}

const INCOMPLETE = Symbol('more bytes needed');

/** Reads from the front of the bytes that have come, and throws INCOMPLETE at their end. */
class Reader {
  readonly #bytes: Buffer;
  used = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  byte(): number {
    return this.bytes(1).readUInt8();
  }

  uint16(): number {
    return this.bytes(2).readUInt16BE();
  }

  bytes(count: number): Buffer {
    const end = this.used + count;
    if (end > this.#bytes.length) throw INCOMPLETE;
    const taken = this.#bytes.subarray(this.used, end);
    this.used = end;
    return taken;
  }

  text(count: number): string {
    return this.bytes(count).toString('utf8');
  }

  /** Undefined when more than `most` bytes come before the NUL. */
  textToNul(most: number): string | undefined {
    const end = this.#bytes.indexOf(0, this.used);
    const length = (end < 0 ? this.#bytes.length : end) - this.used;
    if (length > most) return undefined;
    if (end < 0) throw INCOMPLETE;
    const text = this.text(length);
    this.used += 1;
    return text;
  }
}
