/**
 * HTTP clients: a plain CONNECT is read by hand, everything else by node:http; both end up in the same two places.
 *
 * Owns one http.Server that never listens: it is handed sockets, and its timer looks after slow heads. Requests of one
 * connection are served one after the other, also when they were pipelined.
 */
import { createServer, type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { FaultCode } from '../core/faults.ts';
import { serveConnect } from './connect-front.ts';
import { MAX_HEAD_BYTES, readConnectHead } from './connect-head.ts';
import type { ConnectionContext } from './connection.ts';
import { awaitFirst } from './first-bytes.ts';
import { forward } from './forward.ts';
import { fieldValues, pairFields, requestFraming } from './http-fields.ts';
import { refusalText, refuseRequest } from './http-refusal.ts';

export interface HttpFront {
  /** @param first - what has been read from the socket already. */
  serve(socket: Socket, first: Buffer, context: ConnectionContext): void;
  /** Stops its timer. Connections are the listener's to end. */
  close(): void;
}

/** Between two requests on one connection. */
const KEEP_ALIVE_MS = 60_000;
/** How often slow heads are looked for. */
const SLOW_HEAD_CHECK_MS = 5_000;
/** Requests a client may send ahead; more is no client but a flood. */
const MAX_PIPELINED = 64;
const SWITCHABLE = /^(?!.*\bh2c\b)./i;

/** A first word that could be a method, known to us or not. */
const METHOD_LIKE = /^[A-Z-]+ /;

/** As node:http reports what it could not read. */
interface ParserError extends NodeJS.ErrnoException {
  readonly rawPacket?: Buffer;
}

/** One client connection while node:http reads it. */
interface Session {
  readonly context: ConnectionContext;
  readonly socket: Socket;
  /** A request is being served. */
  serving: boolean;
  readonly waiting: (() => void)[];
  failed: boolean;
}

/** @param options - `headerTimeoutMs`: for a whole request head. */
export function createHttpFront(options: { readonly headerTimeoutMs: number }): HttpFront {
  const { headerTimeoutMs } = options;
  const sessions = new WeakMap<object, Session>();
  const server = createServer({
    insecureHTTPParser: false,
    maxHeaderSize: MAX_HEAD_BYTES,
    requireHostHeader: false, // the URL names the host; a missing Host is no reason to refuse
    headersTimeout: headerTimeoutMs,
    requestTimeout: 0, // an upload may take long; silence is what ends it
    connectionsCheckingInterval: Math.min(SLOW_HEAD_CHECK_MS, headerTimeoutMs),
    keepAliveTimeout: KEEP_ALIVE_MS,
    optimizeEmptyRequests: true,
    shouldUpgradeCallback: asksForAnotherProtocol,
  });
  server.maxHeadersCount = 0; // no field is dropped unread; their size is limited
  server.emit('listening'); // it never listens itself, and this starts its check for slow heads

  const sessionOf = (socket: object): Session => {
    const session = sessions.get(socket);
    if (session === undefined) throw new TypeError('a request on a socket that was never handed over');
    return session;
  };

  const serve = (socket: Socket, first: Buffer, context: ConnectionContext): void => {
    const plain = readConnectHead(first);
    const again = (): void => awaitNext(socket, context, serve);
    if (plain !== undefined) {
      serveConnect(socket, plain.head, first.subarray(plain.bytes), context, again);
      return;
    }
    context.speaks('http');
    context.awaitsRequest();
    sessions.set(socket, { context, socket, serving: false, waiting: [], failed: false });
    socket.unshift(first);
    server.emit('connection', socket);
  };

  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    const session = sessionOf(request.socket);
    inTurn(session, () => {
      answerTo(session, response);
      forward(request, response, session.context);
    });
  };
  server.on('request', onRequest);
  server.on('checkContinue', onRequest); // the target says whether to continue
  server.on('checkExpectation', (request, response) => {
    const session = sessionOf(request.socket);
    inTurn(session, () => {
      answerTo(session, response);
      session.context.refused('expectation-failed', 'it expects something other than 100-continue');
      refuseRequest(request, response, { code: 'expectation-failed' }, session.context);
    });
  });

  server.on('connect', (request, socket: Socket, early) => {
    const session = sessionOf(socket);
    inTurn(session, () => {
      const head = {
        authority: request.url ?? '',
        fields: pairFields(request.rawHeaders),
        keepAlive: request.httpVersionMinor === 1 && !/\bclose\b/i.test(request.headers.connection ?? ''),
      };
      const { context } = session;
      serveConnect(socket, head, early, context, () => awaitNext(socket, context, serve));
    });
  });

  server.on('upgrade', (request, socket: Socket, head) => {
    const session = sessionOf(socket);
    inTurn(session, () => {
      const { context } = session;
      context.speaks('upgrade');
      context.handshakeDone();
      // Its parser is gone: if the protocol is not changed, the connection ends with the answer.
      const response = new ServerResponse(request);
      response.shouldKeepAlive = false;
      response.assignSocket(socket);
      response.on('finish', () => {
        context.awaitsRequest();
        socket.destroySoon();
      });
      response.on('error', ignored);
      forward(request, response, context, { socket, head });
    });
  });

  server.on('clientError', (error: ParserError, socket: Socket) => {
    const session = sessions.get(socket);
    if (session === undefined || session.failed) return;
    session.failed = true;
    if (!socket.writable || error.code === 'ECONNRESET' || error.code === 'EPIPE') {
      socket.destroy();
      return;
    }
    const code = faultOf(error);
    session.context.refused(code, `node:http: ${error.code ?? error.message}`);
    // In the middle of an answer there is no place for another one.
    if (session.serving) socket.destroy();
    else session.context.farewell(refusalText({ code }, false));
  });

  return { serve, close: () => void server.close() };
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

/** Runs `serveOne` when the requests before it have been answered. */
function inTurn(session: Session, serveOne: () => void): void {
  const { socket } = session;
  if (session.failed || socket.destroyed) return;
  if (session.waiting.length >= MAX_PIPELINED) {
    session.context.refused('bad-request', `more than ${MAX_PIPELINED} requests sent ahead`);
    socket.destroy();
    return;
  }
  session.waiting.push(serveOne);
  if (!session.serving) serveNext(session);
}

function serveNext(session: Session): void {
  if (session.socket.destroyed) return; // who sent the others is gone
  const next = session.waiting.shift();
  session.serving = next !== undefined;
  if (next === undefined) {
    session.context.awaitsRequest();
    return;
  }
  session.context.handshakeDone();
  try {
    next();
  } catch (error) {
    session.context.broke(error);
  }
}

/** The next request's turn comes when this response is done with, whichever way. */
function answerTo(session: Session, response: ServerResponse): void {
  session.context.speaks('http');
  response.on('error', ignored);
  response.on('close', () => serveNext(session));
}

/** ignored: a response fails when its client has left, which its 'close' tells too. */
function ignored(): void {}

/** After a refused CONNECT: the connection waits for another request. */
function awaitNext(socket: Socket, context: ConnectionContext, serve: HttpFront['serve']): void {
  context.awaitsRequest(KEEP_ALIVE_MS);
  awaitFirst(socket, (first) => serve(socket, first, context));
}

/**
 * Whether node:http should let go of the socket for this request. Not where a body comes with it, whose end only a
 * parser finds; and not for h2c, which curl offers with every request and nobody misses.
 */
function asksForAnotherProtocol(request: IncomingMessage): boolean {
  const framing = requestFraming(pairFields(request.rawHeaders), request.httpVersionMinor);
  const [protocol] = fieldValues(pairFields(request.rawHeaders), 'upgrade');
  return 'kind' in framing && framing.kind === 'none' && protocol !== undefined && SWITCHABLE.test(protocol);
}
