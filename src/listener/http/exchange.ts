/**
 * One HTTP request and its response over one member connection, which it owns. At the end it releases the lease
 * exactly once, and returns or destroys the connection. forward.ts decides about retries.
 */
import { NoriaError } from '../../core/faults.ts';
import type { ConnectionOutcome, MemberConnection } from '../../dialer/contract.ts';
import type { SiteResponse } from '../../dialer/evidence.ts';
import { hasFailedWrite } from '../../dialer/member-socket.ts';
import type { ClientConnection } from '../client-connection.ts';
import type { ForwardRequest } from './forward-request.ts';
import { connectionOptions, formatFields, type HeaderField, isEmptyBody } from './header-fields.ts';
import { type ResponseHead, type ResponsePart, ResponseReader } from './response-reader.ts';
import { PartLimit } from './response-writer.ts';

/** The last event is `complete`, `switched` or `failed`. There is none after `abort`. */
export type ExchangeEvent =
  | ResponsePart
  /** `read`: all parts of a read have been reported. `drained`: the member takes more of the body. */
  | { readonly kind: 'read' | 'drained' }
  /**
   * A 101 arrived. The receiver now owns the connection and its lease; the bytes after the head are in the socket.
   * `bytesUp` and `bytesDown` of the exchange count the others.
   */
  | { readonly kind: 'switched'; readonly head: ResponseHead }
  /** Ended without a complete response. `silent`: no byte of it has arrived. */
  | { readonly kind: 'failed'; readonly error: NoriaError; readonly silent: boolean };

const SWITCHING_PROTOCOLS = 101;
const LAST_CHUNK = '0\r\n';

export class HttpExchange {
  readonly memberConnection: MemberConnection;
  readonly #request: ForwardRequest;
  readonly #connection: ClientConnection;
  readonly #record: ClientConnection['record'];
  readonly #startedAt: number;
  readonly #onEvent: (exchange: HttpExchange, event: ExchangeEvent) => void;
  readonly #reader: ResponseReader;
  #reusable = false;
  #requestSent: boolean;
  #over = false;
  #partLimit: PartLimit | undefined;
  /** Reserves the connection for this client: it gets the connection with its lease instead of the dialer. */
  keep: ((memberConnection: MemberConnection) => void) | undefined;
  bytesUp = 0;
  bytesDown = 0;
  #firstByteMs: number | undefined;
  response: SiteResponse | undefined;

  constructor(
    memberConnection: MemberConnection,
    request: ForwardRequest,
    connection: ClientConnection,
    onEvent: (exchange: HttpExchange, event: ExchangeEvent) => void,
  ) {
    this.memberConnection = memberConnection;
    this.#request = request;
    this.#connection = connection;
    this.#record = connection.record;
    this.#startedAt = connection.options.clock.monotonic();
    this.#onEvent = onEvent;
    this.#reader = new ResponseReader(request.method);
    this.#requestSent = request.framing.kind === 'none';
  }

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

  sendBody(chunk: Buffer): boolean {
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

  finishBody(trailers: readonly HeaderField[]): void {
    this.#requestSent = true;
    if (this.#request.framing.kind === 'chunked') this.#write(`${LAST_CHUNK}${formatFields(trailers)}\r\n`);
  }

  pause(): void {
    this.memberConnection.socket.pause();
  }

  resume(): void {
    this.memberConnection.socket.resume();
  }

  /** @param mute - whether another member has answered the same request sooner. */
  abort(mute = false): void {
    this.#end(mute ? { cut: false, mute } : { cut: false });
  }

  /** The dialer handles a member's 407; the client never gets it. */
  rejectChallenge(): void {
    this.#end({ cut: false, proxyAuthRequired: true });
    const error = new NoriaError('member-auth', 'the member required credentials');
    this.#onEvent(this, { kind: 'failed', error, silent: false });
  }

  rejectMemberError(status: number): void {
    this.#end({ cut: false });
    const error = new NoriaError(
      'member-refused',
      `the member answered with its own error, status ${status}`,
    );
    this.#onEvent(this, { kind: 'failed', error, silent: false });
  }

  #write(data: string | Buffer): void {
    const { socket } = this.memberConnection;
    this.bytesUp += data.length;
    if (typeof data === 'string') socket.write(data, 'latin1');
    else socket.write(data);
  }

  readonly #onDrain = (): void => {
    if (!this.#over) this.#onEvent(this, { kind: 'drained' });
  };

  readonly #onData = (chunk: Buffer): void => {
    this.bytesDown += chunk.length;
    this.#reader.push(chunk);
    this.#failOnError(() => {
      for (let part = this.#reader.next(); part !== undefined; part = this.#reader.next()) {
        this.#onPart(part);
        if (this.#over) return;
      }
      this.#onEvent(this, { kind: 'read' });
    });
  };

  readonly #onEnd = (): void => {
    // A response that ends with its connection is complete only if the connection was not reset.
    if (hasFailedWrite(this.memberConnection.socket)) this.#onClose();
    else this.#failOnError(() => this.#onPart(this.#reader.finish()));
  };

  readonly #onClose = (): void =>
    this.#fail(new NoriaError('member-closed', 'the connection to the member closed unexpectedly'));

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
    // Ends first, because the callback may start the client's next request and reuse this connection.
    if (part.kind === 'complete') {
      // A target that ignored a body would read it as the next request, and another client would get its response.
      const mayShare = isEmptyBody(this.#request.framing);
      const keep =
        this.#reusable &&
        this.#requestSent &&
        (mayShare || this.keep !== undefined) &&
        this.#reader.rest.length === 0 &&
        !hasFailedWrite(this.memberConnection.socket);
      this.#end(keep ? { cut: false, keep } : { cut: false });
    }
    this.#firstByteMs ??= this.#connection.options.clock.monotonic() - this.#startedAt;
    this.#onEvent(this, part);
  }

  #switch(head: ResponseHead): void {
    this.#over = true;
    this.#removeListeners();
    const { socket } = this.memberConnection;
    const { rest } = this.#reader;
    socket.unshift(rest);
    this.bytesDown -= rest.length;
    this.#onEvent(this, { kind: 'switched', head });
  }

  #fail(error: NoriaError): void {
    if (this.#over) return;
    const silent = this.bytesDown === 0;
    this.#end({ cut: silent });
    this.#onEvent(this, { kind: 'failed', error, silent });
  }

  #end(outcome: ConnectionOutcome): void {
    if (this.#over) return;
    this.#over = true;
    this.#removeListeners();
    if (outcome.keep === true) this.memberConnection.socket.pause();
    else this.memberConnection.socket.destroy();
    if (outcome.keep === true && this.keep !== undefined) this.keep(this.memberConnection);
    else {
      const { response } = this;
      const firstByteMs = this.#firstByteMs;
      this.memberConnection.end({
        answered: this.bytesDown > 0,
        ...(firstByteMs !== undefined && { firstByteMs }),
        ...(response !== undefined && { response }),
        ...outcome,
      });
    }
    const { clock, bus } = this.#connection.options;
    const { source, member } = this.memberConnection.lease;
    const { bytesUp, bytesDown } = this;
    const record = this.#record;
    const ms = clock.monotonic() - this.#startedAt;
    const request = record?.id;
    bus.emit('tunnel.closed', { source, member, kind: 'forward', bytesUp, bytesDown, ms, request });
    if (record === undefined) return;
    record.bytesUp += bytesUp;
    record.bytesDown += bytesDown;
  }

  #removeListeners(): void {
    this.memberConnection.socket
      .off('data', this.#onData)
      .off('end', this.#onEnd)
      .off('close', this.#onClose)
      .off('drain', this.#onDrain);
  }
}
