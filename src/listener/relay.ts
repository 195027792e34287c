/**
 * The hot path: joins a client and a way until both directions have ended.
 *
 * Owns both sockets from the call on: half-close is carried both ways, a slow reader slows the writer, bytes are
 * counted, silence ends it. It adds no error handlers: the listener's and the dialer's stay on their sockets, and
 * 'close' follows every error. Both sockets must allow half-open.
 */
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import { TCP_KEEP_ALIVE_MS } from '../core/keep-alive.ts';
import type { MemberConnection } from '../dialer/dial.ts';
import { TunnelSocket } from '../dialer/tunnel-socket.ts';

/** When a relay ends by itself, and whom it tells. Durations in ms. */
export interface RelayOptions {
  readonly deadlines: Deadlines;
  /** Both directions silent for so long: both sockets are destroyed. */
  readonly idleTimeoutMs: number;
  /** The same once one direction has ended. */
  readonly lingerMs: number;
  /** Called once, when both sockets are closed. The way's lease is still the caller's to end. */
  readonly onEnd: (end: RelayResult) => void;
}

/** What came of a relay. */
export interface RelayResult {
  /** From the client to the target, handed to the member's socket. */
  readonly bytesUp: number;
  /** From the target to the client. */
  readonly bytesDown: number;
  /** The member ended it, or it failed, before its first byte, though the client had sent something and was still there. */
  readonly cut: boolean;
}

/**
 * Joins `client` and `way.socket`. Either may be paused or flowing, with no data listener of anyone else's on it.
 *
 * @param early - what the client has sent already: goes to the target first, as `way.head` goes to the client first.
 */
export function relay(
  client: Socket,
  way: MemberConnection,
  early: Buffer | undefined,
  options: RelayOptions,
): void {
  new Relay(client, way.socket, options).start(early, way.head);
}

/** Sides of a relay whose socket is open, as bits. */
const CLIENT = 1;
const MEMBER = 2;

class Relay {
  readonly #client: Socket;
  readonly #member: Socket;
  readonly #options: RelayOptions;
  readonly #deadlines: Deadlines;
  #silence: Deadline;
  readonly #lasting: Deadline;
  #bytesUp = 0;
  #bytesDown = 0;
  #clientEnded = false;
  #memberEnded = false;
  #lingers = false;
  #cut = false;
  #open = CLIENT | MEMBER;

  constructor(client: Socket, member: Socket, options: RelayOptions) {
    this.#client = client;
    this.#member = member;
    this.#options = options;
    this.#deadlines = options.deadlines;
    this.#silence = this.#deadlines.set(options.idleTimeoutMs, this.#destroy);
    this.#lasting = this.#deadlines.set(TCP_KEEP_ALIVE_MS, this.#onLasting);
  }

  start(early: Buffer | undefined, head: Buffer): void {
    const [client, member] = [this.#client, this.#member];
    client.on('data', this.#up).on('end', this.#onClientEnd).on('close', this.#onClientClose);
    member.on('data', this.#down).on('end', this.#onMemberEnd).on('close', this.#onMemberClose);
    client.on('drain', this.#onClientDrain);
    member.on('drain', this.#onMemberDrain);
    // A chunk of that size that is not written at once stops the member until 'drain', and by then it is.
    if (member instanceof TunnelSocket) member.lendFrom(client.writableHighWaterMark);
    client.resume();
    member.resume();
    if (early !== undefined && early.length > 0) this.#up(early);
    if (head.length > 0) this.#down(head);
    // What happened before the listeners were on may not be told again.
    if (client.readableEnded) this.#onClientEnd();
    if (member.readableEnded) this.#onMemberEnd();
    if (client.destroyed) this.#onClientClose();
    if (member.destroyed) this.#onMemberClose();
  }

  readonly #up = (chunk: Buffer): void => {
    this.#bytesUp += chunk.length;
    this.#deadlines.refresh(this.#silence);
    this.#member.write(chunk);
    if (this.#member.writableLength >= this.#member.writableHighWaterMark) this.#client.pause();
  };

  readonly #down = (chunk: Buffer): void => {
    this.#bytesDown += chunk.length;
    this.#deadlines.refresh(this.#silence);
    this.#client.write(chunk);
    if (this.#client.writableLength >= this.#client.writableHighWaterMark) this.#member.pause();
  };

  readonly #onClientDrain = (): void => {
    this.#member.resume();
  };

  readonly #onMemberDrain = (): void => {
    this.#client.resume();
  };

  /** Most tunnels are short: the system calls are for those that are not. */
  readonly #onLasting = (): void => {
    this.#client.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
    this.#member.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
  };

  readonly #onClientEnd = (): void => {
    this.#clientEnded = true;
    this.#passEnd(this.#member);
  };

  readonly #onMemberEnd = (): void => {
    this.#noteCut();
    this.#memberEnded = true;
    this.#passEnd(this.#client);
  };

  /** To a side that has ended too, with nothing left to be sent, closing says the same with fewer system calls. */
  #passEnd(side: Socket): void {
    const last = this.#clientEnded && this.#memberEnded;
    if (last && side.writableLength === 0 && !(side instanceof TLSSocket)) side.destroy();
    else side.end();
    this.#linger();
  }

  readonly #onClientClose = (): void => {
    if ((this.#open & CLIENT) === 0) return;
    // After two clean ends the member's socket is flushing what it was given, and closes by itself.
    if (!this.#clientEnded || !this.#memberEnded) this.#member.destroy();
    this.#onClose(CLIENT);
  };

  readonly #onMemberClose = (): void => {
    if ((this.#open & MEMBER) === 0) return;
    if (!this.#memberEnded) {
      this.#noteCut();
      this.#memberEnded = true;
      this.#letClientRead();
    }
    this.#onClose(MEMBER);
  };

  /**
   * The member's side is broken: the client still gets every byte that came before. Closing at once would reset the
   * connection if the client has sent something unread, and could cost it what it has not read yet.
   */
  #letClientRead(): void {
    const client = this.#client;
    client.off('data', this.#up);
    client.end();
    client.resume();
    this.#linger();
  }

  #noteCut(): void {
    if (this.#bytesDown === 0 && this.#bytesUp > 0 && !this.#clientEnded && !this.#client.destroyed)
      this.#cut = true;
  }

  /** One direction has ended: the other one has less time to be silent. */
  #linger(): void {
    if (this.#lingers || this.#open === 0) return;
    this.#lingers = true;
    this.#deadlines.clear(this.#silence);
    const ms = Math.min(this.#options.lingerMs, this.#options.idleTimeoutMs);
    this.#silence = this.#deadlines.set(ms, this.#destroy);
  }

  readonly #destroy = (): void => {
    this.#client.destroy();
    this.#member.destroy();
  };

  #onClose(side: number): void {
    this.#open &= ~side;
    if (this.#open !== 0) return;
    this.#deadlines.clear(this.#silence);
    this.#deadlines.clear(this.#lasting);
    this.#options.onEnd({ bytesUp: this.#bytesUp, bytesDown: this.#bytesDown, cut: this.#cut });
  }
}
