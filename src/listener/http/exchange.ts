/**
 * One HTTP request and its answer over one way.
 *
 * Owns the way from `start` until it is over: every ending ends the lease once, and either gives a clean connection back
 * for the next request or destroys it. What becomes of the answer, and whether another way is tried, is forwarding.ts's.
 */
import { NoriaError } from '../../core/faults.ts';
import type { DialOutcome, MemberConnection } from '../../dialer/dial.ts';
import { type Framing, formatFields, type HeaderField, hasConnectionOption } from './header-fields.ts';
import { type ResponseHead, type ResponsePart, ResponseReader } from './response-reader.ts';

/** What an exchange must know of the request that goes over it. */
export interface ExchangeRequest {
  readonly method: string;
  /** How its body is framed; `sendBody` and `finishBody` send it. */
  readonly body: Framing;
  /** It asks for another protocol: 101 is an answer to it, and to no other. */
  readonly upgrade: boolean;
}

/** What is told of the answer. Nothing more is after the `complete` part, `onSwitched` and `onFailed`. */
export interface ExchangeSink {
  onPart(part: ResponsePart): void;
  /** All that has arrived so far has been told. */
  onRead(): void;
  /** 101: the way's socket is the sink's, with what came behind the head back in it; so is the lease. */
  onSwitched(head: ResponseHead): void;
  /** The member takes more of the body again. */
  onDrain(): void;
  /** It ended without a whole answer. `silent`: without one byte of it. */
  onFailed(error: NoriaError, silent: boolean): void;
}

const SWITCHING_PROTOCOLS = 101;
const LAST_CHUNK = '0\r\n';

/** One request, one answer, one way. `start` begins it; it tells its sink how it goes. */
export class HttpExchange {
  readonly way: MemberConnection;
  readonly #request: ExchangeRequest;
  readonly #sink: ExchangeSink;
  readonly #reader: ResponseReader;
  /** The answer's head allows another request after it. */
  #keepable = false;
  #requestSent: boolean;
  #over = false;
  #bytesUp = 0;
  #bytesDown = 0;

  constructor(way: MemberConnection, request: ExchangeRequest, sink: ExchangeSink) {
    this.way = way;
    this.#request = request;
    this.#sink = sink;
    this.#reader = new ResponseReader(request.method);
    this.#requestSent = request.body.kind === 'none';
  }

  /** Handed to the member so far, heads and framing included. */
  get bytesUp(): number {
    return this.#bytesUp;
  }

  get bytesDown(): number {
    return this.#bytesDown;
  }

  /** Sends the request's head: its line and fields, with the empty line. */
  start(head: string): void {
    const { socket } = this.way;
    socket
      .on('data', this.#onData)
      .on('end', this.#onEnd)
      .on('close', this.#onClose)
      .on('drain', this.#onDrain);
    socket.resume();
    this.#write(head);
    if (this.way.head.length > 0)
      this.#fail(new NoriaError('member-protocol', 'an answer came before the request'));
    else if (socket.destroyed) this.#onClose();
    else if (socket.readableEnded) this.#onEnd();
  }

  /** @returns false when the member is slower than the client: wait for `onDrain`. */
  sendBody(chunk: Buffer): boolean {
    if (this.#over || chunk.length === 0) return true;
    if (this.#request.body.kind !== 'chunked') return this.#write(chunk);
    const { socket } = this.way;
    socket.cork();
    this.#write(`${chunk.length.toString(16)}\r\n`);
    this.#write(chunk);
    const taken = this.#write('\r\n');
    socket.uncork();
    return taken;
  }

  /** The request is whole. @param trailers - sent behind a chunked body alone. */
  finishBody(trailers: readonly HeaderField[]): void {
    if (this.#over || this.#requestSent) return;
    this.#requestSent = true;
    if (this.#request.body.kind === 'chunked') this.#write(`${LAST_CHUNK}${formatFields(trailers)}\r\n`);
  }

  /** The client reads too slowly: nothing more is told before `resume`. */
  pause(): void {
    if (!this.#over) this.way.socket.pause();
  }

  resume(): void {
    if (!this.#over) this.way.socket.resume();
  }

  /** Nobody wants the answer any more. Safe to call twice. */
  abort(): void {
    this.#end({ cut: false });
  }

  /** The member's 407 is its own question and no answer: ends as failed, and the dialer is told. */
  rejectChallenge(): void {
    this.#end({ cut: false, proxyAuthRequired: true });
    this.#sink.onFailed(new NoriaError('member-auth', 'the member asked for credentials'), false);
  }

  #write(data: string | Buffer): boolean {
    this.#bytesUp += data.length;
    return typeof data === 'string' ? this.way.socket.write(data, 'latin1') : this.way.socket.write(data);
  }

  readonly #onDrain = (): void => this.#sink.onDrain();

  readonly #onData = (chunk: Buffer): void => {
    this.#bytesDown += chunk.length;
    this.#reader.push(chunk);
    this.#guard(() => {
      for (let part = this.#reader.next(); part !== undefined; part = this.#reader.next()) {
        this.#take(part);
        if (this.#over) return;
      }
      this.#sink.onRead();
    });
  };

  readonly #onEnd = (): void => this.#guard(() => this.#take(this.#reader.finish()));

  readonly #onClose = (): void =>
    this.#fail(new NoriaError('member-closed', 'the connection to the member broke'));

  /** An answer that cannot be read fails the exchange. */
  #guard(read: () => void): void {
    try {
      read();
    } catch (error) {
      if (!(error instanceof NoriaError)) throw error;
      this.#fail(error);
    }
  }

  #take(part: ResponsePart): void {
    if (part.kind === 'head') {
      if (part.head.status === SWITCHING_PROTOCOLS) {
        if (!this.#request.upgrade) throw new NoriaError('member-protocol', 'a 101 that nobody asked for');
        this.#switch(part.head);
        return;
      }
      const { minorVersion, fields } = part.head;
      this.#keepable =
        minorVersion === 1 && part.body.kind !== 'until-close' && !hasConnectionOption(fields, 'close');
    }
    // Ended first: the sink may start the client's next request at once, and that may want this connection.
    if (part.kind === 'complete') {
      const clean = this.#keepable && this.#requestSent && this.#reader.rest.length === 0;
      this.#end(clean ? { cut: false, keep: true } : { cut: false });
    }
    this.#sink.onPart(part);
  }

  #switch(head: ResponseHead): void {
    this.#over = true;
    this.#letGo();
    const { socket } = this.way;
    socket.pause();
    if (this.#reader.rest.length > 0) socket.unshift(this.#reader.rest);
    this.#sink.onSwitched(head);
  }

  #fail(error: NoriaError): void {
    if (this.#over) return;
    const silent = this.#bytesDown === 0;
    // A connection that was used before may have died of age, which is nobody's fault.
    this.#end({ cut: silent && !this.way.reused });
    this.#sink.onFailed(error, silent);
  }

  #end(outcome: DialOutcome): void {
    if (this.#over) return;
    this.#over = true;
    this.#letGo();
    if (outcome.keep === true) this.way.socket.pause();
    else this.way.socket.destroy();
    this.way.end(outcome);
  }

  #letGo(): void {
    const { socket } = this.way;
    socket
      .off('data', this.#onData)
      .off('end', this.#onEnd)
      .off('close', this.#onClose)
      .off('drain', this.#onDrain);
  }
}
