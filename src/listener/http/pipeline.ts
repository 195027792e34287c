/**
 * One client connection while node:http reads it: its requests are served one after the other, and what cannot be read
 * is answered when its turn has come.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { FaultCode } from '../../core/faults.ts';
import type { ConnectionContext } from '../client-connection.ts';
import { refusalText } from './refusal.ts';

/** As node:http reports what it could not read. */
export interface ParserError extends NodeJS.ErrnoException {
  readonly rawPacket?: Buffer;
}

/** Requests a client may send ahead; more is no client but a flood. */
const MAX_PIPELINED = 64;
/** A first word that could be a method, known to us or not. */
const METHOD_LIKE = /^[A-Z-]+ /;

/** A request under way, and how to give it up. */
interface Current {
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly giveUp: () => void;
}

/** The requests of one connection, in their order. */
export class RequestPipeline {
  readonly context: ConnectionContext;
  readonly #socket: Socket;
  readonly #waiting: (() => void)[] = [];
  #serving = false;
  #current: Current | undefined;
  /** What came behind the requests so far could not be read. */
  #failure: FaultCode | undefined;

  constructor(socket: Socket, context: ConnectionContext) {
    this.#socket = socket;
    this.context = context;
  }

  /** Calls `serve` when the requests before it have been answered. It gives back how to give the request up. */
  answer(request: IncomingMessage, response: ServerResponse, serve: () => () => void): void {
    this.takeOver(() => {
      this.context.speaks('http');
      response.on('error', ignored);
      response.on('close', () => this.#next());
      this.#current = { request, response, giveUp: serve() };
    });
  }

  /** Calls `serve` when the requests before it have been answered: it takes the socket, and no request follows. */
  takeOver(serve: () => void): void {
    if (this.#failure !== undefined || this.#socket.destroyed) return;
    if (this.#waiting.length >= MAX_PIPELINED) {
      this.context.refused('bad-request', `more than ${MAX_PIPELINED} requests sent ahead`);
      this.#socket.destroy();
      return;
    }
    this.#waiting.push(serve);
    if (!this.#serving) this.#next();
  }

  /** Something that is no request, or the rest of one, could not be read. */
  fail(error: ParserError): void {
    if (this.#failure !== undefined) return;
    this.#failure = faultOf(error);
    if (!this.#socket.writable || error.code === 'ECONNRESET' || error.code === 'EPIPE') {
      this.#socket.destroy();
      return;
    }
    this.context.refused(this.#failure, `node:http: ${error.code ?? error.message}`);
    const current = this.#current;
    if (current === undefined) {
      this.#sayFailure(this.#failure);
    } else if (!current.request.complete) {
      // The body of the request under way: what was understood of it is not what the client meant.
      current.giveUp();
      if (current.response.headersSent) this.#socket.destroy();
      else this.#sayFailure(this.#failure);
    }
  }

  #next(): void {
    this.#current = undefined;
    if (this.#socket.destroyed) return; // who sent the others is gone
    const serve = this.#waiting.shift();
    this.#serving = serve !== undefined;
    if (serve === undefined) {
      if (this.#failure === undefined) this.context.awaitsRequest();
      else this.#sayFailure(this.#failure);
      return;
    }
    this.context.handshakeDone();
    try {
      serve();
    } catch (error) {
      this.context.broke(error);
    }
  }

  #sayFailure(code: FaultCode): void {
    this.context.farewell(refusalText({ code }, false));
  }
}

/** What an error about a request's bytes is to the client. */
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

/** ignored: a response fails when its client has left, which its 'close' tells too. */
export function ignored(): void {}
