/**
 * SOCKS clients: SOCKS5 (RFC 1928) with username/password authentication (RFC 1929), SOCKS4 and SOCKS4a. `SocksReader`
 * parses their messages: chunks of any size go in; a message, a fault or undefined comes out.
 */
import type { Socket } from 'node:net';
import { type FaultCode, NoriaError } from '../core/faults.ts';
import { type HostPort, hostPort } from '../core/host-port.ts';
import type { ClientCredentials, ClientIdentity } from './access.ts';
import type { ClientConnection } from './client-connection.ts';
import { DESK_HOST } from './http/client-desk.ts';
import { serveDesk } from './http/http-connection.ts';
import { refusalOf, socks5ReplyCode } from './refusal.ts';
import { openTunnel } from './relay.ts';

export type SocksVersion = 4 | 5;

export const AUTH_METHOD = { none: 0x00, password: 0x02, unacceptable: 0xff } as const;
/** The reply codes of RFC 1928 §6 that this file uses. */
export const SOCKS5_REPLY = {
  succeeded: 0x00,
  failed: 0x01,
  commandUnknown: 0x07,
  addressUnknown: 0x08,
} as const;

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

const VERSION_5 = 0x05;
const VERSION_4 = 0x04;
const AUTH_VERSION = 0x01;
const CONNECT = 0x01;
const IPV4 = 0x01;
const NAME = 0x03;
const IPV6 = 0x04;
/** The maximum length of a SOCKS4 user id, which has no length prefix. Routing options are far shorter. */
const MAX_USER_ID_BYTES = 512;
const MAX_NAME_BYTES = 255;
const COMMANDS: Readonly<Record<number, string>> = { 1: 'CONNECT', 2: 'BIND', 3: 'UDP ASSOCIATE' };

/** For a client whose request is refused anyway. */
const ANONYMOUS: ClientIdentity = { user: '', routingText: '' };

type Phase =
  | { readonly name: 'greeting' }
  | { readonly name: 'credentials' }
  | { readonly name: 'request'; readonly identity: ClientIdentity | undefined }
  /** A dial is in progress, or the client was refused or has disconnected. */
  | { readonly name: 'over' };

/** @param first - what has been read; starts with the version byte. */
export function serveSocks(first: Buffer, version: SocksVersion, connection: ClientConnection): void {
  new SocksHandshake(version, connection).start(first);
}

class SocksHandshake {
  readonly #version: SocksVersion;
  readonly #connection: ClientConnection;
  readonly #socket: Socket;
  readonly #reader: SocksReader;
  #phase: Phase;

  constructor(version: SocksVersion, connection: ClientConnection) {
    this.#version = version;
    this.#connection = connection;
    this.#socket = connection.socket;
    this.#reader = new SocksReader(version);
    // SOCKS4 has no greeting: the only message of the client is the request.
    this.#phase = version === 5 ? { name: 'greeting' } : { name: 'request', identity: undefined };
  }

  start(first: Buffer): void {
    this.#connection.protocol = this.#version === 5 ? 'socks5' : 'socks4';
    this.#socket.on('error', this.#onError).on('data', this.#onData).on('end', this.#onEnd);
    this.#onData(first);
  }

  readonly #onData = (bytes: Buffer): void => {
    this.#reader.push(bytes);
    try {
      this.#advance();
    } catch (error) {
      this.#endHandshake();
      this.#connection.fail(error);
    }
  };

  /** Handles all complete messages, because a client may send its whole handshake at once. */
  #advance(): void {
    while (this.#phase.name !== 'over') {
      const message = this.#reader.next(this.#phase.name);
      if (message === undefined) return;
      if (message.kind === 'fault') {
        this.#refuse(new NoriaError(message.code, message.detail), message.reply);
        return;
      }
      const error =
        message.kind === 'greeting'
          ? this.#selectMethod(message.methods)
          : message.kind === 'credentials'
            ? this.#checkCredentials(message)
            : this.#serve(message);
      if (error !== undefined) this.#refuse(error);
    }
  }

  /**
   * User name and password if the client offers it: the user name has the routing options. A client that is refused
   * need not send them.
   */
  #selectMethod(methods: readonly number[]): NoriaError | undefined {
    const { refusalError, options } = this.#connection;
    const withoutPassword = methods.includes(AUTH_METHOD.none);
    if (methods.includes(AUTH_METHOD.password) && !(refusalError !== undefined && withoutPassword)) {
      this.#socket.write(methodSelection(AUTH_METHOD.password));
      this.#phase = { name: 'credentials' };
      return undefined;
    }
    if (!withoutPassword)
      return new NoriaError(
        'bad-request',
        `the client offers ${methodList(methods)}, but noria supports only 0 (no login) and 2 (user name and password)`,
      );
    if (refusalError === undefined && options.access.requiresCredentials) {
      return new NoriaError(
        'auth-required',
        `the client sends no credentials: it offers ${methodList(methods)}`,
      );
    }
    const identity = this.#identify(undefined);
    if (identity instanceof NoriaError) return identity;
    this.#socket.write(methodSelection(AUTH_METHOD.none));
    this.#phase = { name: 'request', identity };
    return undefined;
  }

  #checkCredentials(credentials: ClientCredentials): NoriaError | undefined {
    const identity = this.#identify(credentials);
    if (identity instanceof NoriaError) return identity;
    // Later, noria could not refuse the client with an authentication failure. `#serve` reads the options again,
    // because the session may depend on the target.
    const routing = this.#connection.readRoutingOptions(identity, '', []);
    if (routing instanceof NoriaError) return routing;
    this.#socket.write(authStatus(true));
    this.#phase = { name: 'request', identity };
    return undefined;
  }

  #identify(credentials: ClientCredentials | undefined): ClientIdentity | NoriaError {
    return this.#connection.refusalError === undefined ? this.#connection.identify(credentials) : ANONYMOUS;
  }

  /** A SOCKS4 user id contains routing options and does not authenticate the client. */
  #identifySocks4(userId: string): ClientIdentity | NoriaError {
    const { refusalError, options } = this.#connection;
    if (refusalError === undefined && options.access.requiresCredentials) {
      return new NoriaError(
        'auth-required',
        'SOCKS4 cannot send a password, but this listener has users and requires one',
      );
    }
    return this.#identify({ username: userId, password: '' });
  }

  #serve({ target, userId }: Extract<SocksMessage, { kind: 'request' }>): NoriaError | undefined {
    const { refusalError } = this.#connection;
    if (refusalError !== undefined) return refusalError;
    const known = this.#phase.name === 'request' ? this.#phase.identity : undefined;
    const identity = known ?? this.#identifySocks4(userId);
    if (identity instanceof NoriaError) return identity;
    const routing = this.#connection.authorize(identity, target, []);
    if (routing instanceof NoriaError) return routing;
    this.#endHandshake();
    this.#connection.beginRequest();
    const { rest } = this.#reader;
    if (target.host === DESK_HOST) {
      this.#accept();
      serveDesk(rest, this.#connection, routing);
      return undefined;
    }
    const { record } = this.#connection;
    openTunnel(this.#connection, { target, routing, use: 'tunnel', record }, rest, (result) => {
      if (result.ok) this.#accept();
      else this.#sendLast(requestReply(this.#version, socks5ReplyCode(result.failure)));
    });
    return undefined;
  }

  #accept(): void {
    this.#socket.off('error', this.#onError);
    this.#socket.write(requestReply(this.#version, SOCKS5_REPLY.succeeded));
  }

  #sendLast(reply: Buffer): void {
    this.#socket.off('error', this.#onError);
    this.#connection.sendAndClose(reply);
  }

  #refuse(error: NoriaError, replyCode = socks5ReplyCode(refusalOf(error))): void {
    const reply = this.#refusalReply(error, replyCode);
    this.#endHandshake();
    this.#connection.reportRefusal(error.code, error.message);
    this.#sendLast(reply);
  }

  #refusalReply(error: NoriaError, replyCode: number): Buffer {
    if (this.#phase.name === 'greeting') return methodSelection(AUTH_METHOD.unacceptable);
    if (this.#phase.name === 'credentials') return authStatus(false);
    if (this.#version === 4 && error.code === 'auth-required') return socks4AuthRejection();
    return requestReply(this.#version, replyCode);
  }

  #endHandshake(): void {
    this.#phase = { name: 'over' };
    this.#socket.off('data', this.#onData).off('end', this.#onEnd);
  }

  /** 'error' comes before 'close', so this sets the outcome before `connection.closed` is emitted. */
  readonly #onError = (): void => {
    this.#connection.outcome = 'client-gone';
  };

  readonly #onEnd = (): void => {
    this.#connection.outcome = 'client-gone';
    this.#socket.destroy();
  };
}

function methodList(methods: readonly number[]): string {
  return methods.length === 0 ? 'no method' : `methods ${methods.join(', ')}`;
}

interface Parsed {
  readonly message: SocksMessage;
  readonly endBytes: number;
}

/** A fault comes as soon as the bytes show one, so a message cannot become longer than its grammar allows. */
type Parser = (bytes: Buffer) => Parsed | SocksFault | undefined;

const SOCKS5_PARSERS: { readonly [Kind in SocksMessage['kind']]: Parser } = {
  greeting: parseGreeting,
  credentials: parseCredentials,
  request: parseSocks5Request,
};
const NO_BYTES: Buffer = Buffer.alloc(0);

export class SocksReader {
  readonly #version: SocksVersion;
  rest = NO_BYTES;

  constructor(version: SocksVersion) {
    this.#version = version;
  }

  /** Adds received bytes. They are not copied, so they must not change afterwards. */
  push(bytes: Buffer): void {
    this.rest = this.rest.length === 0 ? bytes : Buffer.concat([this.rest, bytes]);
  }

  /** While it returns undefined, the next call must expect the same message. */
  next(expected: SocksMessage['kind']): SocksMessage | SocksFault | undefined {
    const bytes = this.rest;
    const parsed = (this.#version === 4 ? parseSocks4Request : SOCKS5_PARSERS[expected])(bytes);
    if (parsed === undefined || 'kind' in parsed) return parsed;
    this.rest = parsed.endBytes === bytes.length ? NO_BYTES : bytes.subarray(parsed.endBytes);
    return parsed.message;
  }
}

export function methodSelection(method: number): Buffer {
  return Buffer.from([VERSION_5, method]);
}

/** The reply to credentials (RFC 1929 §2). If the status is not 0, noria closes the connection after the reply. */
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

export function socks4AuthRejection(): Buffer {
  const userIdMismatch = 0x5d;
  return Buffer.from([0x00, userIdMismatch, 0, 0, 0, 0, 0, 0]);
}

function parseGreeting(bytes: Buffer): Parsed | SocksFault | undefined {
  const version = bytes[0];
  const count = bytes[1];
  if (version !== undefined && version !== VERSION_5) return wrongVersion('the message', version);
  if (count === undefined || bytes.length < 2 + count) return undefined;
  const endBytes = 2 + count;
  return { message: { kind: 'greeting', methods: [...bytes.subarray(2, endBytes)] }, endBytes };
}

function parseCredentials(bytes: Buffer): Parsed | SocksFault | undefined {
  const version = bytes[0];
  if (version !== undefined && version !== AUTH_VERSION) {
    return malformed(`the login message has the unknown version ${version}`);
  }
  // RFC 1929 requires 1 to 255 bytes. Clients send empty ones where no password is needed.
  const usernameEnd = countedEnd(bytes, 1);
  const passwordEnd = usernameEnd === undefined ? undefined : countedEnd(bytes, usernameEnd);
  if (usernameEnd === undefined || passwordEnd === undefined) return undefined;
  const username = bytes.toString('utf8', 2, usernameEnd);
  const password = bytes.toString('utf8', usernameEnd + 1, passwordEnd);
  return { message: { kind: 'credentials', username, password }, endBytes: passwordEnd };
}

/** `0x05 COMMAND RESERVED ADDRESS-TYPE ADDRESS PORT`. Some clients do not send 0 as the reserved byte. */
function parseSocks5Request(bytes: Buffer): Parsed | SocksFault | undefined {
  const version = bytes[0];
  const command = bytes[1];
  const type = bytes[3];
  if (version !== undefined && version !== VERSION_5) return wrongVersion('the request', version);
  if (command !== undefined && command !== CONNECT) return unsupportedCommand(command);
  if (type === undefined) return undefined;
  if (type !== IPV4 && type !== NAME && type !== IPV6) {
    return unsupported(`the request has the unknown address type ${type}`, SOCKS5_REPLY.addressUnknown);
  }
  const hostEnd = type === NAME ? countedEnd(bytes, 4) : type === IPV4 ? 8 : 20;
  if (hostEnd === undefined || bytes.length < hostEnd + 2) return undefined;
  const target = hostPort(hostOf(type, bytes, hostEnd), bytes.readUInt16BE(hostEnd));
  return request(target, '', hostEnd + 2);
}

function hostOf(type: typeof IPV4 | typeof NAME | typeof IPV6, bytes: Buffer, hostEnd: number): string {
  if (type === IPV4) return ipv4Text(bytes, 4);
  if (type === IPV6) return ipv6Text(bytes.subarray(4, hostEnd));
  // Some clients send an IPv6 literal in brackets as a name.
  return bytes.toString('utf8', 5, hostEnd).replace(/^\[(.*)\]$/, '$1');
}

/** In SOCKS4a, the address 0.0.0.x announces a host name after the user id. */
function parseSocks4Request(bytes: Buffer): Parsed | SocksFault | undefined {
  const version = bytes[0];
  const command = bytes[1];
  if (version !== undefined && version !== VERSION_4) return wrongVersion('the message', version);
  if (command !== undefined && command !== CONNECT) return unsupportedCommand(command);
  if (bytes.length < 8) return undefined;
  const userIdEnd = nulAt(bytes, 8, MAX_USER_ID_BYTES);
  if (userIdEnd === undefined) return undefined;
  if (userIdEnd < 0) return malformed(`the user id is longer than ${MAX_USER_ID_BYTES} bytes`);
  const port = bytes.readUInt16BE(2);
  const userId = bytes.toString('utf8', 8, userIdEnd);
  const address = bytes.readUInt32BE(4);
  if (address === 0 || address > 0xff) {
    return request(hostPort(ipv4Text(bytes, 4), port), userId, userIdEnd + 1);
  }
  const nameEnd = nulAt(bytes, userIdEnd + 1, MAX_NAME_BYTES);
  if (nameEnd === undefined) return undefined;
  if (nameEnd < 0) return malformed(`the host name is longer than ${MAX_NAME_BYTES} bytes`);
  const name = bytes.toString('utf8', userIdEnd + 1, nameEnd);
  return request(hostPort(name, port), userId, nameEnd + 1);
}

function countedEnd(bytes: Buffer, at: number): number | undefined {
  const length = bytes[at];
  return length === undefined || bytes.length < at + 1 + length ? undefined : at + 1 + length;
}

/** -1 if the text is longer than `maxBytes`. */
function nulAt(bytes: Buffer, start: number, maxBytes: number): number | undefined {
  const nul = bytes.indexOf(0, start);
  const textBytes = (nul < 0 ? bytes.length : nul) - start;
  if (textBytes > maxBytes) return -1;
  return nul < 0 ? undefined : nul;
}

function request(target: HostPort | undefined, userId: string, endBytes: number): Parsed | SocksFault {
  return target === undefined
    ? malformed('the target is not a valid host and port')
    : { message: { kind: 'request', target, userId }, endBytes };
}

function wrongVersion(what: string, version: number): SocksFault {
  return malformed(`${what} has SOCKS version ${version}`);
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

function ipv4Text(bytes: Buffer, at: number): string {
  return `${bytes[at]}.${bytes[at + 1]}.${bytes[at + 2]}.${bytes[at + 3]}`;
}

function ipv6Text(bytes: Buffer): string {
  return [0, 2, 4, 6, 8, 10, 12, 14].map((at) => bytes.readUInt16BE(at).toString(16)).join(':');
}
