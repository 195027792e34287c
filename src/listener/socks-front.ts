/**
 * Serves one SOCKS client: its handshake, its wish, a way to its target, the reply; then the tunnel has it.
 *
 * Owns the socket from the call on, and every way dialed for it until the tunnel takes both. The bytes are
 * socks-wire.ts's; the handshake's deadline is the listener's. After a failure the reply is written, the connection is
 * ended in order, and what the client still sends is read away for a moment, since closing over unread bytes would
 * reset the connection and take the reply with it.
 */
import type { Socket } from 'node:net';
import type { Deadline } from '../core/deadlines.ts';
import { describeError, NoriaError } from '../core/faults.ts';
import { formatHostPort, type HostPort } from '../core/host-port.ts';
import type { Dialed, Dialing, DialResult } from '../dialer/dial.ts';
import type { Identity } from './access.ts';
import type { ConnectionContext } from './connection.ts';
import { refusedBy, socks5Reply } from './replies.ts';
import {
  credentialsReply,
  finalReply,
  METHOD,
  methodReply,
  REPLY,
  type SocksMessage,
  type SocksVersion,
  SocksWire,
  socks4AuthReply,
} from './socks-wire.ts';
import { readWish } from './wish.ts';

/** How long a refused client may take to read its reply and close. */
const FAREWELL_MS = 2000;
/** What a client may send ahead while a member is dialed; then it is not read from until the way stands. */
const MAX_EARLY_BYTES = 64 * 1024;
/** Stands in for an identity where none is asked: the request will be refused, whoever it is. */
const NOBODY: Identity = { user: '', wishText: '' };

interface Credentials {
  readonly username: string;
  readonly password: string;
}

/** Where the handshake is, and what is known there alone. */
type Phase =
  | { readonly name: 'greeting' }
  | { readonly name: 'credentials' }
  | { readonly name: 'request'; readonly identity: Identity | undefined }
  | { readonly name: 'dialing'; readonly dialing: Dialing; readonly early: Buffer[] }
  /** Handed to the tunnel, refused, or left by the client. */
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
  readonly #wire: SocksWire;
  #phase: Phase;
  #farewell: Deadline | undefined;

  constructor(socket: Socket, version: SocksVersion, context: ConnectionContext) {
    this.#socket = socket;
    this.#version = version;
    this.#context = context;
    this.#wire = new SocksWire(version);
    this.#phase = version === 5 ? { name: 'greeting' } : { name: 'request', identity: undefined };
  }

  start(first: Buffer): void {
    this.#context.speaks(this.#version === 5 ? 'socks5' : 'socks4');
    this.#socket.on('error', this.#onError);
    this.#socket.on('close', this.#onClose);
    this.#socket.on('end', this.#onEnd);
    this.#socket.on('data', this.#onData);
    this.#onData(first);
    if (this.#phase.name !== 'over') this.#socket.resume();
  }

  readonly #onData = (bytes: Buffer): void => {
    if (this.#phase.name === 'dialing') {
      this.#keepEarly(this.#phase.early, bytes);
      return;
    }
    this.#wire.push(bytes);
    try {
      this.#advance();
    } catch (error) {
      this.#failInside(error);
    }
  };

  /** Takes messages for as long as they are whole: a client may send its whole handshake at once. */
  #advance(): void {
    for (;;) {
      const phase = this.#phase;
      if (phase.name === 'dialing' || phase.name === 'over') return;
      const message = this.#wire.next(phase.name);
      if (message === undefined) return;
      if (message.kind === 'fault') {
        this.#refuse(new NoriaError(message.code, message.detail), message.reply);
        return;
      }
      const known = phase.name === 'request' ? phase.identity : undefined;
      const problem = this.#take(message, known);
      if (problem !== undefined) this.#refuse(problem);
    }
  }

  #take(message: SocksMessage, known: Identity | undefined): NoriaError | undefined {
    switch (message.kind) {
      case 'greeting':
        return this.#chooseMethod(message.methods);
      case 'credentials':
        return this.#checkCredentials(message);
      case 'request':
        return this.#serve(message.target, known ?? this.#identifySocks4(message.userId));
    }
  }

  /** Username/password wherever it is offered, since it carries the wish, unless the client is refused anyway. */
  #chooseMethod(methods: readonly number[]): NoriaError | undefined {
    const { refusal, options } = this.#context;
    const withoutPassword = methods.includes(METHOD.none);
    if (methods.includes(METHOD.password) && !(refusal !== undefined && withoutPassword)) {
      this.#socket.write(methodReply(METHOD.password));
      this.#phase = { name: 'credentials' };
      return undefined;
    }
    const offered = `offered ${methods.map((method) => `method ${method}`).join(', ') || 'no method'}`;
    if (!withoutPassword) return new NoriaError('bad-request', `no acceptable method: ${offered}`);
    if (refusal === undefined && options.access.asksForCredentials) {
      return new NoriaError('auth-required', `no credentials: ${offered}`);
    }
    const identity = refusal === undefined ? this.#identify(undefined) : NOBODY;
    if (identity instanceof NoriaError) return identity;
    this.#socket.write(methodReply(METHOD.none));
    this.#phase = { name: 'request', identity };
    return undefined;
  }

  #checkCredentials(credentials: Credentials): NoriaError | undefined {
    const identity = this.#context.refusal === undefined ? this.#identify(credentials) : NOBODY;
    if (identity instanceof NoriaError) return identity;
    // Read here to fail here; read again when the target is known, which a session may be named for.
    const wish = readWish(identity.wishText, [], this.#context.wishContext(identity, ''));
    if (wish instanceof NoriaError) return wish;
    this.#socket.write(credentialsReply(true));
    this.#phase = { name: 'request', identity };
    return undefined;
  }

  #identify(credentials: Credentials | undefined): Identity | NoriaError {
    return this.#context.options.access.identify(credentials, this.#context.remoteAddress);
  }

  /** A user id is a wish where anyone may come, and proves nothing where users are set. */
  #identifySocks4(userId: string): Identity | NoriaError {
    if (this.#context.refusal !== undefined) return NOBODY;
    if (!this.#context.options.access.asksForCredentials) {
      return this.#identify({ username: userId, password: '' });
    }
    return new NoriaError('auth-required', 'SOCKS4 carries no password, and this listener has users');
  }

  #serve(target: HostPort, identity: Identity | NoriaError): NoriaError | undefined {
    const { refusal, options } = this.#context;
    if (refusal !== undefined) return refusal;
    if (identity instanceof NoriaError) return identity;
    const denied = options.access.targets.denies(target);
    if (denied !== undefined) {
      const where = formatHostPort(target.host, target.port);
      return new NoriaError('forbidden', `target ${where} denied: ${denied}`);
    }
    const wish = readWish(identity.wishText, [], this.#context.wishContext(identity, target.host));
    if (wish instanceof NoriaError) return wish;

    this.#context.handshakeDone();
    const dialing = options.dialer.dial({ target, wish, use: 'tunnel' });
    const early = this.#wire.rest();
    this.#phase = { name: 'dialing', dialing, early: early.length > 0 ? [early] : [] };
    dialing.result.then((result) => this.#finish(result)).catch((error) => this.#failInside(error));
    return undefined;
  }

  #keepEarly(early: Buffer[], bytes: Buffer): void {
    early.push(bytes);
    const heldBytes = early.reduce((sum, piece) => sum + piece.length, 0);
    if (heldBytes >= MAX_EARLY_BYTES) this.#socket.pause();
  }

  #finish(result: DialResult): void {
    // Looked at again after the wait: the client may have left, and then nobody else owns the way.
    if (this.#phase.name !== 'dialing') {
      if (result.ok) abandon(result.way);
      return;
    }
    if (!result.ok) {
      const { failure } = result;
      this.#context.refused(failure.code, failure.reason);
      this.#sayFarewell(finalReply(this.#version, socks5Reply(failure)));
      return;
    }
    const { early } = this.#phase;
    this.#phase = { name: 'over' };
    this.#letGo();
    this.#socket.pause();
    this.#socket.write(finalReply(this.#version, REPLY.succeeded));
    this.#context.tunnel(this.#socket, result.way, early.length > 0 ? Buffer.concat(early) : undefined);
  }

  #refuse(problem: NoriaError, reply = socks5Reply(refusedBy(problem))): void {
    this.#context.refused(problem.code, problem.message);
    this.#sayFarewell(this.#lastWord(problem, reply));
  }

  /** How a refusal is told, which depends on how far the handshake has come. */
  #lastWord(problem: NoriaError, reply: number): Buffer {
    if (this.#phase.name === 'greeting') return methodReply(METHOD.unacceptable);
    if (this.#phase.name === 'credentials') return credentialsReply(false);
    if (this.#version === 4 && problem.code === 'auth-required') return socks4AuthReply();
    return finalReply(this.#version, reply);
  }

  #sayFarewell(lastWord: Buffer): void {
    this.#phase = { name: 'over' };
    this.#context.handshakeDone();
    this.#farewell = this.#context.options.deadlines.set(FAREWELL_MS, () => this.#socket.destroy());
    this.#socket.off('data', this.#onData);
    this.#socket.end(lastWord);
    this.#socket.resume();
  }

  /** A mistake of ours ends this connection and no other. */
  #failInside(error: unknown): void {
    this.#context.refused('internal', describeError(error));
    this.#socket.destroy();
  }

  /** Half-closed before anything was accepted: who still wants the answer has sent something to be answered. */
  readonly #onEnd = (): void => {
    if (this.#phase.name === 'over') return;
    if (this.#phase.name === 'dialing' && this.#phase.early.length > 0) return;
    this.#socket.destroy();
  };

  readonly #onError = (): void => {
    // ignored: 'close' follows, and whose fault it was is told there
  };

  readonly #onClose = (): void => {
    const phase = this.#phase;
    this.#phase = { name: 'over' };
    if (phase.name === 'dialing') phase.dialing.cancel();
    if (this.#farewell !== undefined) this.#context.options.deadlines.clear(this.#farewell);
  };

  #letGo(): void {
    this.#socket.off('data', this.#onData);
    this.#socket.off('end', this.#onEnd);
    this.#socket.off('close', this.#onClose);
    this.#socket.off('error', this.#onError);
  }
}

/** A way that stands and that nobody wants any more. */
function abandon(way: Dialed): void {
  way.socket.destroy();
  way.end({ cut: false });
}
