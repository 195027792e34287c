/**
 * A tunnel between a client and its target: dials while the client waits for its reply, then relays bytes until both
 * directions have ended. The relay is the hot path. It owns both sockets, which must be created with `allowHalfOpen`;
 * forwards half-close and resets, applies back-pressure, counts bytes, enforces the idle timeouts. It needs no error
 * handlers: listener and dialer have added them.
 */
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Deadline, Deadlines } from '../core/deadlines.ts';
import type { OpenRequest } from '../core/request-record.ts';
import type { DialRequest, DialResult, MemberConnection } from '../dialer/contract.ts';
import { hasFailedWrite, lendChunks, TCP_KEEP_ALIVE_MS } from '../dialer/member-socket.ts';
import type { ClientConnection } from './client-connection.ts';

/** A tunnel that got no byte back for this time may have a mute member. */
const MIN_MUTE_MS = 3_000;
/** While a client waits for a dial, noria stops reading from it after this number of bytes. */
const MAX_EARLY_BYTES = 64 * 1024;
/**
 * After a member's reset, the client has this time to read the data sent before it. An immediate reset would discard
 * the data.
 */
const RESET_DELAY_MS = 2_000;
/** The bits of `#openSides`. */
const CLIENT = 1;
const MEMBER = 2;

const NO_BYTES = Buffer.alloc(0);

const HEAD_BYTES = 5;
const ALERT = 21;
const HANDSHAKE = 22;
const APPLICATION_DATA = 23;
/** An encrypted alert of TLS 1.3: two bytes, the content type and the tag of the cipher. */
const TLS13_ALERT_BYTES = 19;
/** Session tickets of TLS 1.3 look like application data. Two of them have some 500 bytes with OpenSSL, one with Go. */
const MAX_TICKETS_BYTES = 1_024;
/** The client's Finished is longer; an alert with which it refuses the target's certificate is shorter. */
const MIN_FINISHED_BYTES = 50;

/**
 * The caller has removed its own listeners. During the dial, noria reads from the client, because only a read shows
 * that it has disconnected: its close cancels the dial, and so does its end before it has sent anything for the
 * target.
 * @param received - what the client has already sent after its request.
 * @param reply - sends the reply to the client; closes the connection if the dial has failed.
 */
export function openTunnel(
  connection: ClientConnection,
  request: DialRequest,
  received: Buffer,
  reply: (result: DialResult) => void,
): void {
  const { socket } = connection;
  const chunks: Buffer[] = received.length === 0 ? [] : [received];
  let earlyBytes = received.length;
  let isOver = false;

  const onData = (chunk: Buffer): void => {
    chunks.push(chunk);
    earlyBytes += chunk.length;
    if (earlyBytes >= MAX_EARLY_BYTES) socket.pause();
  };
  const onEnd = (): void => {
    if (earlyBytes === 0) connection.dialing?.cancel();
  };
  const onResult = (result: DialResult): void => {
    isOver = true;
    connection.dialing = undefined;
    // No data is lost: it can only arrive after this function has returned, and by then the relay listens for it.
    socket.off('data', onData).off('end', onEnd);
    try {
      if (result.ok) {
        reply(result);
        relayTunnel(connection, result.connection, chunks.length > 1 ? Buffer.concat(chunks) : chunks[0]);
      } else if (result.failure.code === 'client-gone') {
        socket.destroy();
      } else {
        connection.reportRefusal(result.failure.code, result.failure.reason, true);
        reply(result);
      }
    } catch (error) {
      connection.fail(error);
    }
  };

  socket.on('data', onData).on('end', onEnd);
  if (socket.isPaused()) socket.resume();
  // If `dial` throws, the caller closes the client's connection.
  const dialing = connection.options.dialer.dial(request, onResult);
  if (isOver) return;
  connection.dialing = dialing;
  if (socket.destroyed || (socket.readableEnded && earlyBytes === 0)) dialing.cancel();
}

/**
 * Ends the lease and emits `tunnel.closed` when both have ended. In the same tick before, the caller must reply to
 * the client and remove its own listeners. @param early - what the client has sent after its request.
 * @param switched - what the request and the answer to it, a 101, took on the member's connection.
 */
export function relayTunnel(
  connection: ClientConnection,
  memberConnection: MemberConnection,
  early: Buffer | undefined,
  switched?: { readonly bytesUp: number; readonly bytesDown: number },
): void {
  const { deadlines, idleTimeoutMs, lingerMs, clock, bus } = connection.options;
  const startedAt = clock.monotonic();
  const { source, member } = memberConnection.lease;
  const { record } = connection;
  const relay = new Relay(connection.socket, memberConnection.socket, {
    deadlines,
    idleTimeoutMs,
    lingerMs,
    startedAt,
    record,
    onEnd: () => {
      memberConnection.end({ cut: relay.cut, answered: relay.bytesDown > 0 });
      const bytesUp = relay.bytesUp + (switched?.bytesUp ?? 0);
      const bytesDown = relay.bytesDown + (switched?.bytesDown ?? 0);
      const ms = clock.monotonic() - startedAt;
      const request = record?.id;
      bus.emit('tunnel.closed', { source, member, kind: 'tunnel', bytesUp, bytesDown, ms, request });
      if (record !== undefined) {
        record.bytesUp += bytesUp;
        record.bytesDown += bytesDown;
      }
      connection.endRequest();
    },
  });
  connection.beginTunnel(relay, () => {
    const { bytesUp, bytesDown, cut } = relay;
    if (switched !== undefined || bytesUp === 0 || bytesDown > 0 || cut) return;
    if (clock.monotonic() - startedAt < MIN_MUTE_MS) return;
    const fault = memberConnection.end({ cut: false, answered: false, mute: true });
    if (fault !== undefined) connection.outcome = fault;
  });
  relay.start(early, memberConnection.early);
}

export class Relay {
  readonly #client: Socket;
  readonly #member: Socket;
  readonly #options: ConstructorParameters<typeof Relay>[2];
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

  constructor(
    client: Socket,
    member: Socket,
    options: {
      readonly deadlines: Deadlines;
      /** If no byte arrives in either direction for this time, noria destroys both sockets. */
      readonly idleTimeoutMs: number;
      /** Replaces `idleTimeoutMs` once one direction has ended, if it is shorter. */
      readonly lingerMs: number;
      readonly startedAt: number;
      /** Called once, when both sockets have closed. The caller then ends the lease. */
      readonly onEnd: (relay: Relay) => void;
      readonly record?: OpenRequest | undefined;
    },
  ) {
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
    if (clientEarly !== undefined) this.#sendUp(clientEarly);
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
      if (chunk[0] === HANDSHAKE) this.#tlsStart = new TlsStart(this.bytesUp);
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
      if (client.readableEnded) {
        this.#resetClientNow();
        return;
      }
      this.#deadlines.clear(this.#idleTimeout);
      this.#idleTimeout = this.#deadlines.set(RESET_DELAY_MS, this.#resetClientNow);
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
    const { lingerMs, idleTimeoutMs } = this.#options;
    this.#deadlines.clear(this.#idleTimeout);
    this.#idleTimeout = this.#deadlines.set(Math.min(lingerMs, idleTimeoutMs), this.#destroy);
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

/**
 * Recognises from a tunnel's first bytes that the target ended it right after the TLS handshake, before any application
 * data. It reads only the heads of the target's first records (RFC 8446 §5.1, RFC 5246 §6.2.1), and nothing inside.
 */
export class TlsStart {
  /** The length of the client's first flight. */
  readonly #helloBytes: number;
  readonly #head = Buffer.alloc(HEAD_BYTES);
  #headBytes = 0;
  #leftBytes = 0;
  #isTls13 = false;
  #isAlert = false;
  #bytesAfterHandshake = 0;

  constructor(bytesUp: number) {
    this.#helloBytes = bytesUp;
  }

  /**
   * Takes the next bytes of the target. @param bytesUp - what the client has sent so far.
   * @returns whether application data has come: no further call is necessary.
   */
  take(chunk: Buffer, bytesUp: number): boolean {
    const isAfterHandshake = bytesUp > this.#helloBytes;
    if (isAfterHandshake) this.#bytesAfterHandshake += chunk.length;
    if (this.#bytesAfterHandshake > MAX_TICKETS_BYTES) return true;
    for (let at = 0; at < chunk.length; ) {
      if (this.#leftBytes > 0) {
        const bytes = Math.min(this.#leftBytes, chunk.length - at);
        this.#leftBytes -= bytes;
        at += bytes;
        continue;
      }
      this.#head[this.#headBytes] = chunk[at] ?? 0;
      this.#headBytes += 1;
      at += 1;
      if (this.#headBytes < HEAD_BYTES) continue;
      this.#headBytes = 0;
      this.#leftBytes = this.#head.readUInt16BE(3);
      const type = this.#head[0];
      this.#isAlert = type === ALERT || (type === APPLICATION_DATA && this.#leftBytes === TLS13_ALERT_BYTES);
      if (type !== APPLICATION_DATA) continue;
      // Only TLS 1.3 sends its handshake in such records, before the client's second flight.
      if (!isAfterHandshake) this.#isTls13 = true;
      else if (!this.#isTls13) return true;
    }
    return false;
  }

  /** Whether the handshake was complete and the target said nothing since, not even why it ends. */
  hasEndedEarly(bytesUp: number): boolean {
    return bytesUp - this.#helloBytes >= MIN_FINISHED_BYTES && !this.#isAlert;
  }
}
