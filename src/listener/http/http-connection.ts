/**
 * Reads the requests of one HTTP client connection and serves them in order. Owns the reading side of the client's
 * socket until the last request, or until a tunnel takes the socket over. It parses a request only after the previous
 * one has been answered. Data that the client sends early (pipelined requests, or data after a request to switch
 * protocols) waits, up to MAX_AHEAD_BYTES; then reading pauses, so no byte is dropped.
 */
import type { Deadline } from '../../core/deadlines.ts';
import { NoriaError } from '../../core/faults.ts';
import { TCP_KEEP_ALIVE_MS } from '../../dialer/member-socket.ts';
import type { ClientConnection } from '../client-connection.ts';
import { badRequest, refusalOf } from '../refusal.ts';
import { canDestroyAtEnd } from '../reset.ts';
import { BodyReader, type BodyRules } from './body-reader.ts';
import { parseConnectHead, serveConnect } from './connect.ts';
import { type Forward, serveForward } from './forward.ts';
import type { Framing } from './framing.ts';
import { PinnedConnection } from './pinned-connection.ts';
import { formatRefusal } from './replies.ts';
import {
  emptyLinesBytes,
  MAX_REQUEST_HEAD_BYTES,
  parseRequestHead,
  type RequestHead,
} from './request-head.ts';
import { ResponseWriter } from './response-writer.ts';

/** How long a connection may be idle between two requests. */
const KEEP_ALIVE_MS = 60_000;
/**
 * The maximum time for which noria discards the rest of an answered request's body. Then it destroys the connection.
 */
const MAX_DISCARD_MS = 2_000;
const MAX_AHEAD_BYTES = 64 * 1024;
const NO_BYTES = Buffer.alloc(0);
/** Used if the end of a request is unclear: noria then discards everything that follows on the connection. */
const UNCLEAR: Framing = { kind: 'until-close' };
const BODY_RULES: BodyRules = {
  maxTrailerBytes: MAX_REQUEST_HEAD_BYTES,
  fieldSyntax: 'request',
  invalid: badRequest,
};

interface CurrentRequest {
  readonly response: ResponseWriter;
  readonly body: BodyReader;
  /** The forwarded request. Undefined before `serveForward` has returned, and if noria answers the request itself. */
  forward: Forward | undefined;
}

/** @param first - the bytes already read from the socket. */
export function serveHttp(first: Buffer, connection: ClientConnection): void {
  const request = parseConnectHead(first);
  if (request === undefined) new HttpConnection(connection).start(first);
  else serveConnect(request.head, first.subarray(request.bytes), connection, () => awaitNext(connection));
}

/** Waits for the next request after a refused CONNECT. */
function awaitNext(connection: ClientConnection): void {
  connection.becomeIdle(KEEP_ALIVE_MS);
  connection.readFirst((first) => serveHttp(first, connection));
}

class HttpConnection {
  readonly #connection: ClientConnection;
  readonly #pin: PinnedConnection;
  /** Bytes received but not yet parsed. */
  #received: Buffer = NO_BYTES;
  #current: CurrentRequest | undefined;
  /** Whether a call of `#parse` is in progress. A nested call returns at once. */
  #parsing = false;
  #over = false;
  /** Deadline for the head, for the rest of a body, or for the next request. */
  #deadline: Deadline | undefined;
  #awaitsHead = false;
  readonly #keepAliveDelay: Deadline;

  constructor(connection: ClientConnection) {
    this.#connection = connection;
    this.#pin = new PinnedConnection(connection.options.clock);
    this.#keepAliveDelay = connection.options.deadlines.set(TCP_KEEP_ALIVE_MS, this.#enableKeepAlive);
  }

  start(first: Buffer): void {
    const { socket } = this.#connection;
    socket
      .on('data', this.#onData)
      .on('end', this.#onEnd)
      .on('close', this.#onClose)
      .on('drain', this.#onDrain);
    this.#connection.setProtocol('http');
    this.#connection.becomeIdle();
    this.#onData(first);
    if (socket.readableEnded && !this.#over) this.#onEnd();
  }

  /**
   * Enables TCP keep-alive. Called some time after the start, to save system calls: most connections end before they
   * need keep-alive.
   */
  readonly #enableKeepAlive = (): void => {
    this.#connection.socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
  };

  readonly #onData = (chunk: Buffer): void => {
    this.#safely(() => {
      const body = this.#current?.body;
      if (body !== undefined && !body.complete) this.#readBody(body, chunk);
      else this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
      this.#parse();
    });
  };

  /** A client that ends its side counts as disconnected: its pipelined requests get no answer. */
  readonly #onEnd = (): void => {
    const { socket } = this.#connection;
    if (this.#current === undefined && this.#received.length > 0 && !socket.writableNeedDrain) {
      this.#refuse(badRequest('the request head is incomplete: the client closed its side'));
      return;
    }
    this.#abort();
    this.#release();
    const isAnswered = this.#current === undefined || this.#current.response.completed;
    if (isAnswered && !canDestroyAtEnd(socket)) socket.destroySoon();
    else socket.destroy();
  };

  readonly #onClose = (): void => {
    this.#abort();
    this.#release();
  };

  readonly #onDrain = (): void => {
    this.#safely(() => {
      this.#current?.forward?.onClientDrain();
      if (this.#current === undefined) this.#parse();
    });
  };

  /**
   * Serves the received requests one after the other. Begins no further request while one is in progress, or while the
   * client reads the answers too slowly.
   */
  #parse(): void {
    if (this.#parsing) return;
    this.#parsing = true;
    const { socket } = this.#connection;
    while (!this.#over && this.#current === undefined && this.#received.length > 0) {
      if (socket.writableNeedDrain || !this.#parseHead()) break;
    }
    this.#parsing = false;
    if (!this.#over) this.#adjustReading();
  }

  /** @returns false if the head is incomplete. */
  #parseHead(): boolean {
    const parsed = parseRequestHead(this.#received);
    if (parsed === undefined) {
      // Skips empty lines before a request: some clients send one after a body (RFC 9112 §2.2).
      this.#received = this.#received.subarray(emptyLinesBytes(this.#received));
      if (this.#received.length > 0 || this.#deadline === undefined) this.#awaitHead();
      return false;
    }
    if (parsed instanceof NoriaError) {
      this.#refuse(parsed);
      return false;
    }
    const rest = this.#received.subarray(parsed.bytes);
    this.#received = NO_BYTES;
    this.#serve(parsed.head, rest);
    return true;
  }

  #awaitHead(): void {
    if (this.#awaitsHead) return;
    this.#awaitsHead = true;
    const { headerTimeoutMs } = this.#connection.options;
    this.#setDeadline(headerTimeoutMs, () => {
      this.#refuse(
        new NoriaError('request-timeout', `no complete request head within ${headerTimeoutMs} ms`),
      );
    });
  }

  #serve(head: RequestHead, rest: Buffer): void {
    const connection = this.#connection;
    this.#awaitsHead = false;
    this.#clearDeadline();
    if (head.method === 'CONNECT') {
      this.#release();
      serveConnect(head, rest, connection, () => awaitNext(connection));
      return;
    }
    connection.setProtocol('http');
    connection.beginRequest();
    const response = new ResponseWriter(head, connection, {
      onComplete: () => this.#onAnswered(),
      onWritten: this.#onDrain,
    });
    const framing = head.framing instanceof NoriaError ? UNCLEAR : head.framing;
    const current: CurrentRequest = {
      response,
      body: new BodyReader(framing, BODY_RULES),
      forward: undefined,
    };
    this.#current = current;
    if (current.body.complete) this.#received = rest;
    current.forward = serveForward(head, {
      connection,
      response,
      pin: this.#pin,
      resumeBody: () => this.#adjustReading(),
      detach: () => this.#detach(),
    });
    if (!this.#over && !current.body.complete && rest.length > 0) this.#readBody(current.body, rest);
  }

  #readBody(body: BodyReader, chunk: Buffer): void {
    const forward = this.#current?.forward;
    try {
      const data = body.decode(chunk);
      if (data.length > 0) forward?.onBody(data);
    } catch (error) {
      if (!(error instanceof NoriaError)) throw error;
      this.#failBody(error);
      return;
    }
    if (!body.complete) return;
    this.#received = body.rest;
    forward?.onBodyEnd(body.trailers);
    this.#advance();
  }

  /**
   * Refuses a request with a malformed body, because the end of such a request is unclear. If the response has begun,
   * the connection is destroyed instead.
   */
  #failBody(error: NoriaError): void {
    const response = this.#current?.response;
    this.#abort();
    if (response?.completed === true) {
      this.#close(false);
    } else if (response?.begun === true) {
      this.#connection.reportRefusal(error.code, error.message);
      this.#connection.destroy();
    } else {
      this.#refuse(error);
    }
  }

  #onAnswered(): void {
    const current = this.#current;
    if (current === undefined || this.#over) return;
    const { response, body } = current;
    if (!response.keepAlive) {
      this.#close(body.complete && this.#received.length === 0);
      return;
    }
    // The rest of the body must be discarded, because the next request begins after it.
    if (!body.complete) this.#setDeadline(MAX_DISCARD_MS, () => this.#connection.destroy());
    this.#advance();
  }

  /** Waits for the next request if the current request has been read and answered. */
  #advance(): void {
    const current = this.#current;
    if (this.#over || current === undefined || !current.body.complete || !current.response.completed) return;
    this.#current = undefined;
    const { socket, options, draining } = this.#connection;
    // While noria still sends the response, `idleTimeoutMs` applies and not KEEP_ALIVE_MS: the client may read slowly.
    const idleMs = socket.writableLength > 0 ? options.idleTimeoutMs : KEEP_ALIVE_MS;
    this.#setDeadline(idleMs, () => socket.destroy());
    if (draining) this.#release();
    this.#connection.becomeIdle();
    if (!draining) this.#parse();
  }

  /**
   * @param allRead - false if the client may have sent data that noria has not read. noria then discards this data
   * before it closes the connection.
   */
  #close(allRead: boolean): void {
    this.#release();
    this.#connection.becomeIdle();
    if (allRead) this.#connection.socket.destroySoon();
    else this.#connection.close();
  }

  #refuse(error: NoriaError): void {
    this.#release();
    this.#connection.reportRefusal(error.code, error.message);
    this.#connection.sendAndClose(formatRefusal(refusalOf(error), false));
  }

  #abort(): void {
    this.#current?.forward?.abort();
  }

  #detach(): Buffer | undefined {
    const early = this.#received;
    this.#release();
    this.#connection.socket.pause();
    return early.length === 0 ? undefined : early;
  }

  #adjustReading(): void {
    const { socket } = this.#connection;
    const current = this.#current;
    const wantsMore =
      current !== undefined && !current.body.complete
        ? current.forward?.wantsBody !== false
        : this.#received.length < MAX_AHEAD_BYTES;
    if (wantsMore) socket.resume();
    else socket.pause();
  }

  /** Stops reading from the client. Idempotent. */
  #release(): void {
    if (this.#over) return;
    this.#over = true;
    this.#clearDeadline();
    this.#connection.options.deadlines.clear(this.#keepAliveDelay);
    this.#pin.close();
    this.#connection.socket
      .off('data', this.#onData)
      .off('end', this.#onEnd)
      .off('close', this.#onClose)
      .off('drain', this.#onDrain);
  }

  #setDeadline(ms: number, fn: () => void): void {
    this.#clearDeadline();
    this.#deadline = this.#connection.options.deadlines.set(ms, fn);
  }

  #clearDeadline(): void {
    if (this.#deadline !== undefined) this.#connection.options.deadlines.clear(this.#deadline);
  }

  /** An unexpected error closes only this connection. */
  #safely(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#abort();
      this.#connection.fail(error);
    }
  }
}
