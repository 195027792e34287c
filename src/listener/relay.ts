/**
 * The hot path: relays bytes between a client and a member until both directions have ended. Owns both sockets, which
 * must be created with `allowHalfOpen`. Forwards half-close and resets, applies back-pressure, counts bytes, enforces
 * the idle timeouts. Needs no error handlers: listener and dialer have added them.
 */
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { OpenRequest } from '../core/request-record.ts';
import { hasFailedWrite, lendChunks, TCP_KEEP_ALIVE_MS } from '../dialer/member-socket.ts';
import { isTlsRecord, TlsStart } from '../dialer/tls-start.ts';

interface RelayOptions {
  readonly deadlines: Deadlines;
  /** If no byte arrives in either direction for this time, noria destroys both sockets. */
  readonly idleTimeoutMs: number;
  /** Replaces `idleTimeoutMs` once one direction has ended, if it is shorter. */
  readonly lingerMs: number;
  /** The monotonic moment at which the relay starts. */
  readonly startedAt: number;
  /** Called once, when both sockets have closed. The caller then ends the lease. */
  readonly onEnd: (relay: Relay) => void;
  /** Gets the moment of the first byte from the target. */
  readonly record?: OpenRequest | undefined;
}

/**
 * After a member's reset, the client has this time to read the data sent before it. An immediate reset would discard
 * the data.
 */
const RESET_DELAY_MS = 2_000;
/** The bits of `#openSides`. */
const CLIENT = 1;
const MEMBER = 2;

const NO_BYTES = Buffer.alloc(0);

export class Relay {
  readonly #client: Socket;
  readonly #member: Socket;
  readonly #options: RelayOptions;
  readonly #deadlines: Deadlines;
  #idleTimeout: Deadline;
  readonly #keepAliveDelay: Deadline;
  bytesUp = 0;
  bytesDown = 0;
  #clientEnded = false;
  #memberEnded = false;
  #lingering = false;
  /**
   * The member's side ended before it sent a byte, although the client had sent data and had not ended its side.
   * `after-tls`: it sent the handshake of TLS, and no application data.
   */
  cut: boolean | 'after-tls' = false;
  /** Undefined before the target's first byte, and when it has sent more than a TLS handshake. */
  #tlsStart: TlsStart | undefined;
  /** The target's bytes are looked at while it has sent fewer than this. */
  #startBytes = 1;
  #openSides = CLIENT | MEMBER;

  constructor(client: Socket, member: Socket, options: RelayOptions) {
    this.#client = client;
    this.#member = member;
    this.#options = options;
    const { deadlines, idleTimeoutMs, startedAt } = options;
    this.#deadlines = deadlines;
    this.#idleTimeout = deadlines.set(idleTimeoutMs, this.#destroy, startedAt);
    this.#keepAliveDelay = deadlines.set(TCP_KEEP_ALIVE_MS, this.#enableKeepAlive, startedAt);
  }

  /** Neither socket may have a 'data' listener. The parameters are what client and member have already sent. */
  start(clientEarly: Buffer | undefined, memberEarly: Buffer): void {
    const [client, member] = [this.#client, this.#member];
    client.on('data', this.#sendUp).on('end', this.#onClientEnd).on('close', this.#onClientClose);
    member.on('data', this.#sendDown).on('end', this.#onMemberEnd).on('close', this.#onMemberClose);
    lendChunks(member, client);
    if (client.isPaused()) client.resume();
    if (member.isPaused()) member.resume();
    if (clientEarly !== undefined && clientEarly.length > 0) this.#sendUp(clientEarly);
    if (memberEarly.length > 0) this.#sendDown(memberEarly);
    // Each of these events may have been emitted before its listener was added.
    if (client.readableEnded) this.#onClientEnd();
    if (member.readableEnded) this.#onMemberEnd();
    if (client.destroyed) this.#onClientClose();
    if (member.destroyed) this.#onMemberClose();
  }

  readonly #sendUp = (chunk: Buffer): void => {
    this.bytesUp += chunk.length;
    this.#deadlines.refresh(this.#idleTimeout);
    forward(chunk, this.#client, this.#member);
  };

  readonly #sendDown = (chunk: Buffer): void => {
    if (this.bytesDown < this.#startBytes) this.#noteStart(chunk);
    this.bytesDown += chunk.length;
    this.#deadlines.refresh(this.#idleTimeout);
    forward(chunk, this.#member, this.#client);
  };

  #noteStart(chunk: Buffer): void {
    if (this.bytesDown === 0) {
      this.#options.record?.noteFirstByte();
      if (isTlsRecord(chunk)) this.#tlsStart = new TlsStart(this.bytesUp);
    }
    const isOver = this.#tlsStart?.take(chunk, this.bytesUp) ?? true;
    if (isOver) this.#tlsStart = undefined;
    this.#startBytes = isOver ? 0 : Number.POSITIVE_INFINITY;
  }

  /** Later than the start, to save system calls: most tunnels end before they need keep-alive. */
  readonly #enableKeepAlive = (): void => {
    this.#client.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
    this.#member.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
  };

  readonly #onClientEnd = (): void => {
    this.#clientEnded = true;
    this.#endWritable(this.#member);
  };

  readonly #onMemberEnd = (): void => {
    if (hasFailedWrite(this.#member)) {
      this.#member.destroy();
      return;
    }
    this.#noteCut();
    this.#memberEnded = true;
    this.#endWritable(this.#client);
  };

  #endWritable(side: Socket): void {
    const bothEnded = this.#clientEnded && this.#memberEnded;
    if (bothEnded && canDestroyAtEnd(side)) side.destroy();
    else side.end();
    this.#linger();
  }

  readonly #onClientClose = (): void => {
    if ((this.#openSides & CLIENT) === 0) return;
    // No reset is necessary after two clean ends: the member's socket flushes its buffer and closes by itself.
    if (!this.#clientEnded || !this.#memberEnded) reset(this.#member);
    this.#onClose(CLIENT);
  };

  readonly #onMemberClose = (): void => {
    if ((this.#openSides & MEMBER) === 0) return;
    if (!this.#memberEnded) {
      this.#noteCut();
      this.#memberEnded = true;
      this.#resetClient();
    }
    this.#onClose(MEMBER);
  };

  /**
   * A clean end would make the received data look complete, so the client is reset too, once it has had time to read.
   */
  #resetClient(): void {
    const client = this.#client;
    if (client.destroyed) return;
    if (this.bytesDown === 0) {
      reset(client);
      return;
    }
    client.off('data', this.#sendUp).on('end', this.#resetClientNow).resume();
    this.#linger();
    // An empty write: its callback runs when all earlier data has been written.
    client.write(NO_BYTES, () => {
      if (client.destroyed) return;
      if (client.readableEnded) this.#resetClientNow();
      else this.#setTimeout(RESET_DELAY_MS, this.#resetClientNow);
    });
  }

  readonly #resetClientNow = (): void => {
    if (this.#client.writableLength === 0) reset(this.#client);
  };

  #noteCut(): void {
    if (this.bytesUp === 0 || this.#clientEnded || this.#client.destroyed) return;
    if (this.bytesDown === 0) this.cut = true;
    else if (this.#tlsStart?.hasEndedEarly(this.bytesUp) === true) this.cut = 'after-tls';
  }

  /** One direction has ended: the shorter of the two idle timeouts applies. */
  #linger(): void {
    if (this.#lingering || this.#openSides === 0) return;
    this.#lingering = true;
    this.#setTimeout(Math.min(this.#options.lingerMs, this.#options.idleTimeoutMs), this.#destroy);
  }

  #setTimeout(ms: number, onTimeout: () => void): void {
    this.#deadlines.clear(this.#idleTimeout);
    this.#idleTimeout = this.#deadlines.set(ms, onTimeout);
  }

  readonly #destroy = (): void => {
    this.#client.destroy();
    this.#member.destroy();
  };

  #onClose(side: number): void {
    this.#openSides &= ~side;
    if (this.#openSides !== 0) return;
    this.#deadlines.clear(this.#idleTimeout);
    this.#deadlines.clear(this.#keepAliveDelay);
    this.#options.onEnd(this);
  }
}

/** If `sink` cannot send the chunk at once, `source` pauses. */
function forward(chunk: Buffer, source: Socket, sink: Socket): void {
  sink.write(chunk);
  if (sink.writableLength < sink.writableHighWaterMark) return;
  source.pause();
  sink.once('drain', () => source.resume());
}

/** The other side sees an error and not a clean end; in TLS, a missing close_notify. */
export function reset(socket: Socket): void {
  // libuv cannot reset a socket whose writable side is being shut down, so such a socket is destroyed.
  const ending = socket.writableEnded && !socket.writableFinished;
  if (ending || socket instanceof TLSSocket) {
    socket.destroy();
    return;
  }
  try {
    socket.resetAndDestroy();
  } catch {
    socket.destroy(); // a Unix socket cannot be reset
  }
}

/**
 * `destroy` in place of `end` saves system calls if nothing is left to write; TLS still has to send close_notify.
 * Only for a socket whose other direction has ended, because `destroy` discards data that still arrives.
 */
export function canDestroyAtEnd(socket: Socket): boolean {
  return socket.writableLength === 0 && !(socket instanceof TLSSocket);
}
