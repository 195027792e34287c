import type { Socket } from 'node:net';
import { NoriaError } from '../../core/faults.ts';
import type { ClientCredentials, ClientIdentity } from '../access.ts';
import type { ClientConnection } from '../client-connection.ts';
import { deskPortError, isDesk } from '../http/client-desk.ts';
import { serveDesk } from '../http/http-connection.ts';
import { refusalOf, socks5ReplyCode } from '../refusal.ts';
import { openTunnel } from '../tunnel.ts';
import {
  AUTH_METHOD,
  authStatus,
  methodSelection,
  requestReply,
  SOCKS5_REPLY,
  type SocksMessage,
  SocksReader,
  type SocksVersion,
  socks4AuthRejection,
} from './messages.ts';

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
    this.#socket.resume();
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
      const error = this.#onMessage(message);
      if (error !== undefined) this.#refuse(error);
    }
  }

  #onMessage(message: SocksMessage): NoriaError | undefined {
    switch (message.kind) {
      case 'greeting':
        return this.#selectMethod(message.methods);
      case 'credentials':
        return this.#checkCredentials(message);
      case 'request':
        return this.#serve(message);
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
    const toDesk = isDesk(target);
    const routing = toDesk
      ? (deskPortError(target) ?? this.#connection.readRoutingOptions(identity, '', []))
      : this.#connection.authorize(identity, target, []);
    if (routing instanceof NoriaError) return routing;
    this.#endHandshake();
    this.#connection.beginRequest();
    const { rest } = this.#reader;
    if (toDesk) {
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
