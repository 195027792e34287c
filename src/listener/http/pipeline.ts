/**
 * Serves the requests that node:http parses on one client connection one after another, also when the client sends several at
 * once (pipelining). A parse error is answered after the requests before it.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FaultCode } from '../../core/faults.ts';
import type { ClientConnection } from '../client-connection.ts';
import { formatRefusal } from './replies.ts';

/** A parse error as node:http reports it. */
export interface ParserError extends NodeJS.ErrnoException {
  readonly rawPacket?: Buffer;
}

/** Requests that may wait behind the current one. No real client sends more. */
const MAX_WAITING = 64;
/** Looks like a method, even if it is unknown. */
const METHOD_LIKE = /^[A-Z-]+ /;

/** The request being served. `abort` ends it without a reply. */
interface CurrentRequest {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly abort: () => void;
}

export class RequestPipeline {
  readonly connection: ClientConnection;
  readonly #waiting: (() => void)[] = [];
  #serving = false;
  #current: CurrentRequest | undefined;
  /** Set by the first parse error. Nothing after it is served. */
  #failure: FaultCode | undefined;

  constructor(connection: ClientConnection) {
    this.connection = connection;
  }

  /** Calls `serve` when the requests before this one have been answered. `serve` returns the function that aborts the request. */
  add(request: IncomingMessage, response: ServerResponse, serve: () => () => void): void {
    this.addLast(() => {
      this.connection.setProtocol('http');
      response.on('error', () => {}); // ignored: the client has left, and 'close' follows
      response.on('close', () => this.#next());
      this.#current = { request, response, abort: serve() };
    });
  }

  /** Calls `serve` when the requests before it have been answered. `serve` takes over the socket, so no request follows. */
  addLast(serve: () => void): void {
    const { socket } = this.connection;
    if (this.#failure !== undefined || socket.destroyed) return;
    if (this.#waiting.length >= MAX_WAITING) {
      this.connection.reportRefusal('bad-request', `more than ${MAX_WAITING} pipelined requests`);
      socket.destroy();
      return;
    }
    this.#waiting.push(serve);
    if (!this.#serving) this.#next();
  }

  /** Handles a parse error in a request head or in a body. */
  fail(error: ParserError): void {
    const { socket } = this.connection;
    if (this.#failure !== undefined) return;
    this.#failure = faultOf(error);
    if (!socket.writable || error.code === 'ECONNRESET' || error.code === 'EPIPE') {
      socket.destroy();
      return;
    }
    this.connection.reportRefusal(this.#failure, `node:http: ${error.code ?? error.message}`);
    const current = this.#current;
    if (current === undefined) {
      this.#refuse(this.#failure);
    } else if (!current.request.complete) {
      // The error is in the body of the current request, so the request as understood so far is not what the client meant.
      current.abort();
      if (current.response.headersSent) socket.destroy();
      else this.#refuse(this.#failure);
    }
  }

  #next(): void {
    this.#current = undefined;
    if (this.connection.socket.destroyed) return;
    const serve = this.#waiting.shift();
    this.#serving = serve !== undefined;
    if (serve === undefined) {
      if (this.#failure === undefined) this.connection.awaitRequest();
      else this.#refuse(this.#failure);
      return;
    }
    this.connection.beginRequest();
    try {
      serve();
    } catch (error) {
      this.connection.fail(error);
    }
  }

  #refuse(code: FaultCode): void {
    this.connection.sendAndClose(formatRefusal({ code }, false));
  }
}

function faultOf({ code, rawPacket }: ParserError): FaultCode {
  switch (code) {
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return 'request-timeout';
    case 'HPE_HEADER_OVERFLOW':
      return 'head-too-large';
    case 'HPE_INVALID_METHOD':
      return METHOD_LIKE.test(rawPacket?.toString('latin1', 0, 32) ?? '') ? 'not-implemented' : 'bad-request';
    default:
      return 'bad-request';
  }
}
