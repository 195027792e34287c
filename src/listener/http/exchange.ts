/**
 * One HTTP request and its response over one member connection. Owns the connection from `start` to the end of the
 * exchange. At the end it releases the lease exactly once, and either returns the connection for another request or
 * destroys it. forward.ts decides what to do with the response and whether to retry.
 */
import { NoriaError } from '../../core/faults.ts';
import type { ConnectionOutcome, MemberConnection } from '../../dialer/dial.ts';
import { hasFailedWrite } from '../../dialer/member-socket.ts';
import type { ForwardRequest } from './forward-request.ts';
import { isEmptyBody } from './framing.ts';
import { connectionOptions, formatFields, type HeaderField } from './header-fields.ts';
import { PartLimit } from './part-limit.ts';
import { type ResponseHead, type ResponsePart, ResponseReader } from './response-reader.ts';

type ExchangeRequest = Pick<ForwardRequest, 'method' | 'framing' | 'upgrade'>;

/**
 * The events of an exchange. The last event is the `complete` part, `onSwitched` or `onFailed`. After `abort`, the only
 * event is `onReleased`.
 */
interface ExchangeCallbacks {
  onPart(part: ResponsePart): void;
  /** Called after each read, when `onPart` has received all parts of this read. */
  onRead(): void;
  /**
   * Called when a 101 response has arrived. From then on, the owner of these callbacks owns the member connection and
   * its lease. noria has put the bytes after the head back into the socket.
   */
  onSwitched(head: ResponseHead): void;
  /** Called when the member can take more of the request body. */
  onDrain(): void;
  /** Called when the exchange has ended without a complete response. `silent`: no byte of the response has arrived. */
  onFailed(error: NoriaError, silent: boolean): void;
  /**
   * Called when the exchange has ended and has released its lease: before the `complete` part, before `onFailed`, or
   * because of `abort`. Not called after `onSwitched`.
   */
  onReleased(bytesUp: number, bytesDown: number): void;
}

const SWITCHING_PROTOCOLS = 101;
const LAST_CHUNK = '0\r\n';

export class HttpExchange {
  readonly memberConnection: MemberConnection;
  readonly #request: ExchangeRequest;
  readonly #callbacks: ExchangeCallbacks;
  readonly #reader: ResponseReader;
  /** Whether the response head allows another exchange on this connection. */
  #reusable = false;
  #requestSent: boolean;
  #over = false;
  /** Limits how many parts of the request body wait in the member's socket; undefined before the first part. */
  #partLimit: PartLimit | undefined;
  #keep: ((memberConnection: MemberConnection) => void) | undefined;
  /** The numbers of bytes sent to the member and received from it, including heads and framing. */
  #bytesUp = 0;
  #bytesDown = 0;

  constructor(memberConnection: MemberConnection, request: ExchangeRequest, callbacks: ExchangeCallbacks) {
    this.memberConnection = memberConnection;
    this.#request = request;
    this.#callbacks = callbacks;
    this.#reader = new ResponseReader(request.method);
    this.#requestSent = request.framing.kind === 'none';
  }

  /** @param head - request line and fields, with the empty line. */
  start(head: string): void {
    const { socket } = this.memberConnection;
    socket
      .on('data', this.#onData)
      .on('end', this.#onEnd)
      .on('close', this.#onClose)
      .on('drain', this.#onDrain);
    socket.resume();
    this.#write(head);
    if (this.memberConnection.early.length > 0)
      this.#fail(new NoriaError('member-protocol', 'the member sent bytes before the request'));
    else if (socket.destroyed) this.#onClose();
    else if (socket.readableEnded) this.#onEnd();
  }

  /** @returns false if the member cannot take more for now: wait for `onDrain`. */
  sendBody(chunk: Buffer): boolean {
    if (this.#over || chunk.length === 0) return true;
    const { socket } = this.memberConnection;
    if (this.#request.framing.kind === 'chunked') {
      socket.cork();
      this.#write(`${chunk.length.toString(16)}\r\n`);
      this.#write(chunk);
      this.#write('\r\n');
      socket.uncork();
    } else {
      this.#write(chunk);
    }
    this.#partLimit ??= new PartLimit(socket, this.#onDrain);
    return this.#partLimit.mayWrite();
  }

  /**
   * Ends the request body.
   * @param trailers - sent only after a chunked body.
   */
  finishBody(trailers: readonly HeaderField[]): void {
    if (this.#over || this.#requestSent) return;
    this.#requestSent = true;
    if (this.#request.framing.kind === 'chunked') this.#write(`${LAST_CHUNK}${formatFields(trailers)}\r\n`);
  }

  /** Pauses the response, because the client reads too slowly. */
  pause(): void {
    if (!this.#over) this.memberConnection.socket.pause();
  }

  resume(): void {
    if (!this.#over) this.memberConnection.socket.resume();
  }

  /**
   * Reserves the connection for this client. If the connection can serve another request after this exchange, `keep`
   * receives it with its lease. Without a call of `pin`, the connection goes back to the dialer.
   */
  pin(keep: (memberConnection: MemberConnection) => void): void {
    this.#keep = keep;
  }

  /** Ends the exchange, because its response is no longer needed. Idempotent. */
  abort(): void {
    this.#end({ cut: false });
  }

  /**
   * Fails the exchange because the member required credentials with a 407. The dialer handles the 407; the client never
   * gets it.
   */
  rejectChallenge(): void {
    this.#end({ cut: false, proxyAuthRequired: true });
    this.#callbacks.onFailed(new NoriaError('member-auth', 'the member required credentials'), false);
  }

  /** Fails the exchange because the response is an error of the member itself. */
  rejectMemberError(status: number): void {
    this.#end({ cut: false });
    const message = `the member answered with its own error, status ${status}`;
    this.#callbacks.onFailed(new NoriaError('member-refused', message), false);
  }

  #write(data: string | Buffer): void {
    const { socket } = this.memberConnection;
    this.#bytesUp += data.length;
    if (typeof data === 'string') socket.write(data, 'latin1');
    else socket.write(data);
  }

  readonly #onDrain = (): void => {
    if (!this.#over) this.#callbacks.onDrain();
  };

  readonly #onData = (chunk: Buffer): void => {
    this.#bytesDown += chunk.length;
    this.#reader.push(chunk);
    this.#failOnError(() => {
      for (let part = this.#reader.next(); part !== undefined; part = this.#reader.next()) {
        this.#onPart(part);
        if (this.#over) return;
      }
      this.#callbacks.onRead();
    });
  };

  readonly #onEnd = (): void => {
    // A response that ends with its connection is complete only if the connection was not reset.
    if (hasFailedWrite(this.memberConnection.socket)) this.#onClose();
    else this.#failOnError(() => this.#onPart(this.#reader.finish()));
  };

  readonly #onClose = (): void =>
    this.#fail(new NoriaError('member-closed', 'the connection to the member closed unexpectedly'));

  /** Fails the exchange if the response cannot be parsed. Rethrows other errors. */
  #failOnError(read: () => void): void {
    try {
      read();
    } catch (error) {
      if (!(error instanceof NoriaError)) throw error;
      this.#fail(error);
    }
  }

  #onPart(part: ResponsePart): void {
    if (part.kind === 'head') {
      if (part.head.status === SWITCHING_PROTOCOLS) {
        if (!this.#request.upgrade)
          throw new NoriaError(
            'member-protocol',
            'the response has status 101, but the request has no Upgrade',
          );
        this.#switch(part.head);
        return;
      }
      const { minorVersion, fields } = part.head;
      this.#reusable =
        minorVersion === 1 &&
        part.framing.kind !== 'until-close' &&
        !connectionOptions(fields).includes('close');
    }
    // The exchange must end before the callback, because the callback may start the client's next request and reuse
    // this connection.
    if (part.kind === 'complete') {
      // After a request with a body, no other client may use the connection. Reason: a target that ignored the body
      // would read the body as the next request, and the other client would get the response to the body.
      const mayShare = isEmptyBody(this.#request.framing);
      const keep =
        this.#reusable &&
        this.#requestSent &&
        (mayShare || this.#keep !== undefined) &&
        this.#reader.rest.length === 0 &&
        !hasFailedWrite(this.memberConnection.socket);
      this.#end(keep ? { cut: false, keep } : { cut: false });
    }
    this.#callbacks.onPart(part);
  }

  #switch(head: ResponseHead): void {
    this.#over = true;
    this.#removeListeners();
    const { socket } = this.memberConnection;
    socket.pause();
    if (this.#reader.rest.length > 0) socket.unshift(this.#reader.rest);
    this.#callbacks.onSwitched(head);
  }

  #fail(error: NoriaError): void {
    if (this.#over) return;
    const silent = this.#bytesDown === 0;
    // The member is not at fault if it closes a reused connection, which may have been idle for too long.
    this.#end({ cut: silent && !this.memberConnection.reused });
    this.#callbacks.onFailed(error, silent);
  }

  #end(outcome: ConnectionOutcome): void {
    if (this.#over) return;
    this.#over = true;
    this.#removeListeners();
    if (outcome.keep === true) this.memberConnection.socket.pause();
    else this.memberConnection.socket.destroy();
    if (outcome.keep === true && this.#keep !== undefined) this.#keep(this.memberConnection);
    else this.memberConnection.end({ answered: this.#bytesDown > 0, ...outcome });
    this.#callbacks.onReleased(this.#bytesUp, this.#bytesDown);
  }

  #removeListeners(): void {
    this.memberConnection.socket
      .off('data', this.#onData)
      .off('end', this.#onEnd)
      .off('close', this.#onClose)
      .off('drain', this.#onDrain);
  }
}
