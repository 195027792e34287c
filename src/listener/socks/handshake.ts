/**
 * Serves one SOCKS client: its handshake, its wish, a way to its target, the reply; then the tunnel has it.
 *
 * Owns the socket from the call on. The bytes are socks-wire.ts's, waiting for a member dial-for-client.ts's; the
 * handshake's time limit and the last moments of a refused connection are the connection's own.
 */
import type { Socket } from 'node:net';
import { NoriaError } from '../../core/faults.ts';
import type { HostPort } from '../../core/host-port.ts';
import type { DialRequest, DialResult } from '../../dialer/dial.ts';
import type { RoutingOptions } from '../../pool/lease.ts';
import type { ClientCredentials, ClientIdentity } from '../access.ts';
import type { ConnectionContext } from '../client-connection.ts';
import { dialForClient } from '../dial-for-client.ts';
import { refusedBy, socks5ReplyCode } from '../http/replies.ts';
import { readRoutingOptions } from '../routing-options.ts';
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

/** Stands in for an identity where none is asked: the request will be refused, whoever it is. */
const NOBODY: ClientIdentity = { user: '', routingText: '' };

/** Which message comes next, and what is known by then. */
type Phase =
  | { readonly name: 'greeting' }
  | { readonly name: 'credentials' }
  | { readonly name: 'request'; readonly identity: ClientIdentity | undefined }
  /** The handshake is over: a member is dialed, or the client was refused or has left. */
  | { readonly name: 'over' };

/**
 * @param first - what has been read from the socket already; begins with the version byte.
 * @param version - the protocol that byte stands for.
 */
export function serveSocks(
  socket: Socket,
  first: Buffer,
  version: SocksVersion,
  context: ConnectionContext,
): void {
  new SocksFront(socket, version, context).start(first);
}

class SocksFront {
  readonly #socket: Socket;
  readonly #version: SocksVersion;
  readonly #context: ConnectionContext;
  readonly #wire: SocksReader;
  #phase: Phase;

  constructor(socket: Socket, version: SocksVersion, context: ConnectionContext) {
    this.#socket = socket;
    this.#version = version;
    this.#context = context;
    this.#wire = new SocksReader(version);
    // SOCKS4 has no greeting: its one message is the request.
    this.#phase = version === 5 ? { name: 'greeting' } : { name: 'request', identity: undefined };
  }

  start(first: Buffer): void {
    this.#context.speaks(this.#version === 5 ? 'socks5' : 'socks4');
    this.#socket.on('error', this.#onError).on('data', this.#onData).on('end', this.#onEnd);
    this.#onData(first);
    this.#socket.resume();
  }

  readonly #onData = (bytes: Buffer): void => {
    this.#wire.push(bytes);
    try {
      this.#advance();
    } catch (error) {
      this.#leaveHandshake();
      this.#context.broke(error);
    }
  };

  /** Takes messages for as long as they are whole: a client may send its whole handshake at once. */
  #advance(): void {
    while (this.#phase.name !== 'over') {
      const message = this.#wire.next(this.#phase.name);
      if (message === undefined) return;
      if (message.kind === 'fault') {
        this.#refuse(new NoriaError(message.code, message.detail), message.reply);
        return;
      }
      const problem = this.#take(message);
      if (problem !== undefined) this.#refuse(problem);
    }
  }

  #take(message: SocksMessage): NoriaError | undefined {
    switch (message.kind) {
      case 'greeting':
        return this.#chooseMethod(message.methods);
      case 'credentials':
        return this.#checkCredentials(message);
      case 'request':
        return this.#serve(message);
    }
  }

  /** Username/password wherever it is offered, since it carries the wish, unless the client is refused anyway. */
  #chooseMethod(methods: readonly number[]): NoriaError | undefined {
    const { refusal, options } = this.#context;
    const withoutPassword = methods.includes(AUTH_METHOD.none);
    if (methods.includes(AUTH_METHOD.password) && !(refusal !== undefined && withoutPassword)) {
      this.#socket.write(methodSelection(AUTH_METHOD.password));
      this.#phase = { name: 'credentials' };
      return undefined;
    }
    if (!withoutPassword) return new NoriaError('bad-request', `client offers ${listed(methods)}`);
    if (refusal === undefined && options.access.asksForCredentials) {
      return new NoriaError('auth-required', `no credentials: client offers ${listed(methods)}`);
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
    // Read here to fail here; read again when the target is known, which a session may be named for.
    const routing = this.#readRoutingOptions(identity, '');
    if (routing instanceof NoriaError) return routing;
    this.#socket.write(authStatus(true));
    this.#phase = { name: 'request', identity };
    return undefined;
  }

  #identify(credentials: ClientCredentials | undefined): ClientIdentity | NoriaError {
    if (this.#context.refusal !== undefined) return NOBODY;
    return this.#context.identify(credentials);
  }

  /** A user id is a wish where anyone may come, and proves nothing where users are set. */
  #identifySocks4(userId: string): ClientIdentity | NoriaError {
    if (this.#context.refusal === undefined && this.#context.options.access.asksForCredentials) {
      return new NoriaError('auth-required', 'SOCKS4 carries no password, and this listener has users');
    }
    return this.#identify({ username: userId, password: '' });
  }

  #serve(request: { readonly target: HostPort; readonly userId: string }): NoriaError | undefined {
    const { refusal, options } = this.#context;
    if (refusal !== undefined) return refusal;
    const known = this.#phase.name === 'request' ? this.#phase.identity : undefined;
    const identity = known ?? this.#identifySocks4(request.userId);
    if (identity instanceof NoriaError) return identity;
    const { target } = request;
    const denied = options.access.targets.denies(target);
    if (denied !== undefined) return denied;
    const routing = this.#readRoutingOptions(identity, target.host);
    if (routing instanceof NoriaError) return routing;
    this.#dial(target, routing);
    return undefined;
  }

  #readRoutingOptions(identity: ClientIdentity, targetHost: string): RoutingOptions | NoriaError {
    return readRoutingOptions(identity.routingText, [], this.#context.routingContext(identity, targetHost));
  }

  #dial(target: HostPort, routing: RoutingOptions): void {
    this.#leaveHandshake();
    this.#context.handshakeDone();
    const request: DialRequest = { target, routing, use: 'tunnel' };
    dialForClient(this.#socket, this.#wire.rest(), this.#context, request, this.#finish);
  }

  readonly #finish = (result: DialResult, early: Buffer | undefined): void => {
    this.#socket.off('error', this.#onError);
    if (result.ok) {
      this.#socket.write(requestReply(this.#version, SOCKS5_REPLY.succeeded));
      this.#context.tunnel(this.#socket, result.connection, early);
      return;
    }
    const { failure } = result;
    if (failure.code === 'client-gone') {
      this.#context.endedWith(failure.code);
      this.#socket.destroy();
      return;
    }
    this.#context.dialFailed(failure);
    this.#context.farewell(requestReply(this.#version, socks5ReplyCode(failure)));
  };

  #refuse(problem: NoriaError, reply = socks5ReplyCode(refusedBy(problem))): void {
    const lastWord = this.#lastWord(problem, reply);
    this.#leaveHandshake();
    this.#socket.off('error', this.#onError);
    this.#context.refused(problem.code, problem.message);
    this.#context.farewell(lastWord);
  }

  /** How a refusal is told, which depends on how far the handshake has come. */
  #lastWord(problem: NoriaError, reply: number): Buffer {
    if (this.#phase.name === 'greeting') return methodSelection(AUTH_METHOD.unacceptable);
    if (this.#phase.name === 'credentials') return authStatus(false);
    if (this.#version === 4 && problem.code === 'auth-required') return socks4AuthRejection();
    return requestReply(this.#version, reply);
  }

  #leaveHandshake(): void {
    this.#phase = { name: 'over' };
    this.#socket.off('data', this.#onData).off('end', this.#onEnd);
  }

  /** Until a member has accepted. An error is told before 'close', and so before the connection tells how it ended. */
  readonly #onError = (): void => {
    this.#context.endedWith('client-gone');
  };

  /** In the middle of its handshake nobody half-closes to wait for an answer: the client has left. */
  readonly #onEnd = (): void => {
    this.#context.endedWith('client-gone');
    this.#socket.destroy();
  };
}

function listed(methods: readonly number[]): string {
  return methods.length === 0 ? 'no method' : `methods ${methods.join(', ')}`;
}
