/**
 * The hot path: relays bytes between a client and a member until both directions have ended. Owns both sockets.
 * Forwards half-close and resets in both directions, applies back-pressure, counts bytes, and enforces the idle
 * timeouts. Adds no error handlers: listener and dialer have already added error handlers, and 'close' follows every
 * error. Both sockets must be created with `allowHalfOpen`.
 */
import type { Socket } from 'node:net';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { MemberConnection } from '../dialer/dial.ts';
import { hasFailedWrite, lendChunks, TCP_KEEP_ALIVE_MS } from '../dialer/member-socket.ts';
import { canDestroyAtEnd, reset } from './reset.ts';

/** The options of a relay. Durations are in ms. */
export interface RelayOptions {
  readonly deadlines: Deadlines;
  /** If no byte arrives in either direction for this time, noria destroys both sockets. */
  readonly idleTimeoutMs: number;
  /** Replaces `idleTimeoutMs` once one direction has ended, if it is shorter. */
  readonly lingerMs: number;
  /** The monotonic moment at which the relay starts. */
  readonly startedAt: number;
  /** Called once, when both sockets have closed. The caller then ends the lease. */
  readonly onEnd: (result: RelayResult) => void;
}

export interface RelayResult {
  /** How many bytes from the client were written to the member's socket. */
  readonly bytesUp: number;
  /** How many bytes from the target were written to the client's socket. */
  readonly bytesDown: number;
  /**
   * Whether the member's side ended or failed before it sent a byte, although the client had sent data and had not
   * ended its side.
   */
  readonly cut: boolean;
}

/**
 * Relays between `client` and the member's socket. Each of the two sockets may be paused or flowing, but must not have
 * a 'data' listener.
 * @param early - what the client has already sent. It goes to the target before all other data. In the other direction,
 *   `memberConnection.early` goes to the client before all other data.
 */
export function relay(
  client: Socket,
  memberConnection: MemberConnection,
  early: Buffer | undefined,
  options: RelayOptions,
): void {
  new Relay(client, memberConnection.socket, options).start(early, memberConnection.early);
}

/**
 * If a member resets its connection, noria waits for this time before it resets the client's connection. In this time,
 * the client can read the data that the member sent before the reset. An immediate reset would discard this data, and a
 * client that is still sending would see the reset first.
 */
const RESET_DELAY_MS = 2_000;
/**
 * The bits of `#openSides`. CLIENT is set until the client's socket has closed; MEMBER is set until the member's socket
 * has closed.
 */
const CLIENT = 1;
const MEMBER = 2;

const NO_BYTES = Buffer.alloc(0);

class Relay {
  readonly #client: Socket;
  readonly #member: Socket;
  readonly #options: RelayOptions;
  readonly #deadlines: Deadlines;
  #idleTimeout: Deadline;
  readonly #keepAliveDelay: Deadline;
  #bytesUp = 0;
  #bytesDown = 0;
  #clientEnded = false;
  #memberEnded = false;
  #lingering = false;
  #cut = false;
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
    this.#bytesUp += chunk.length;
    this.#deadlines.refresh(this.#idleTimeout);
    forward(chunk, this.#client, this.#member);
  };

  readonly #sendDown = (chunk: Buffer): void => {
    this.#bytesDown += chunk.length;
    this.#deadlines.refresh(this.#idleTimeout);
    forward(chunk, this.#member, this.#client);
  };

  /** Called TCP_KEEP_ALIVE_MS after the start, to save system calls: most tunnels end before they need keep-alive. */
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

  /** Half-closes a side, or closes it if both sides have ended. */
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
   * The member's connection failed or was reset. A clean end would make the received data look complete, so the
   * client's connection is reset as well, after the client has had time to read the data. Data from the client is
   * discarded.
   */
  #resetClient(): void {
    const client = this.#client;
    if (client.destroyed) return;
    if (this.#bytesDown === 0) {
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
    if (this.#bytesDown === 0 && this.#bytesUp > 0 && !this.#clientEnded && !this.#client.destroyed)
      this.#cut = true;
  }

  /** Call it when one direction has ended: from now on, the shorter of the two idle timeouts applies. */
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
    this.#options.onEnd({ bytesUp: this.#bytesUp, bytesDown: this.#bytesDown, cut: this.#cut });
  }
}

/**
 * Writes a chunk from `source` to `sink`. If `sink` cannot send it at once, pauses `source` until `sink` has sent
 * everything.
 */
function forward(chunk: Buffer, source: Socket, sink: Socket): void {
  sink.write(chunk);
  if (sink.writableLength < sink.writableHighWaterMark) return;
  source.pause();
  sink.once('drain', () => source.resume());
}
