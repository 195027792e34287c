/**
 * HTTP clients: a plain CONNECT is read by hand, everything else by node:http; both end up in the same two places.
 *
 * Owns one http.Server that never listens: it is handed sockets, and its timer looks after slow heads. Requests of one
 * connection are served one after the other, also when they were pipelined.
 */
import { createServer, type IncomingMessage, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { NoriaError } from '../../core/faults.ts';
import { TCP_KEEP_ALIVE_MS } from '../../core/keep-alive.ts';
import type { ConnectionContext } from '../client-connection.ts';
import { awaitFirst } from '../first-bytes.ts';
import { serveConnect } from './connect.ts';
import { type ConnectHead, MAX_REQUEST_HEAD_BYTES, parseConnectHead } from './connect-request.ts';
import type { Upgrade } from './forward.ts';
import { serveForward } from './forward-request.ts';
import {
  checkHttpVersion,
  fieldValues,
  type HeaderField,
  pairFields,
  requestFraming,
} from './header-fields.ts';
import { ignored, type ParserError, RequestPipeline } from './pipeline.ts';
import { refuseRequest } from './refusal.ts';

/** Serves HTTP clients of one listener. */
export interface HttpServer {
  /** @param first - what has been read from the socket already. */
  serve(socket: Socket, first: Buffer, context: ConnectionContext): void;
  /** Stops its timer. Connections are the listener's to end. */
  close(): void;
}

/** Between two requests on one connection. */
const KEEP_ALIVE_MS = 60_000;
/** How often slow heads are looked for. */
const SLOW_HEAD_CHECK_MS = 5_000;
const H2C = /\bh2c\b/i;

/** @param options - `headerTimeoutMs`: for a whole request head. */
export function createHttpFront(options: { readonly headerTimeoutMs: number }): HttpServer {
  const { headerTimeoutMs } = options;
  const sessions = new WeakMap<object, RequestPipeline>();
  const server = createServer({
    insecureHTTPParser: false,
    maxHeaderSize: MAX_REQUEST_HEAD_BYTES,
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

  const sessionOf = (socket: object): RequestPipeline => {
    const session = sessions.get(socket);
    if (session === undefined) throw new TypeError('a request on a socket that was never handed over');
    return session;
  };

  const serve = (socket: Socket, first: Buffer, context: ConnectionContext): void => {
    const plain = parseConnectHead(first);
    const again = (): void => awaitNext(socket, context, serve);
    if (plain !== undefined) {
      serveConnect(socket, plain.head, first.subarray(plain.bytes), context, again);
      return;
    }
    context.speaks('http');
    context.awaitsRequest();
    socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
    sessions.set(socket, new RequestPipeline(socket, context));
    socket.unshift(first);
    server.emit('connection', socket);
  };

  const onRequest = (request: IncomingMessage, response: ServerResponse): void => {
    const session = sessionOf(request.socket);
    session.answer(request, response, () => serveForward(request, response, session.context));
  };
  server.on('request', onRequest);
  server.on('checkContinue', onRequest); // the target says whether to continue
  server.on('checkExpectation', (request, response) => {
    const session = sessionOf(request.socket);
    session.answer(request, response, () => {
      session.context.refused('expectation-failed', 'it expects something other than 100-continue');
      refuseRequest(request, response, { code: 'expectation-failed' }, session.context);
      return () => {};
    });
  });
  server.on('connect', (request, socket: Socket, early) => {
    const session = sessionOf(socket);
    session.takeOver(() => {
      const again = (): void => awaitNext(socket, session.context, serve);
      serveConnect(socket, connectHead(request), early, session.context, again);
    });
  });
  server.on('upgrade', (request, socket: Socket, head) => {
    const session = sessionOf(socket);
    session.takeOver(() => serveUpgrade(request, { socket, head }, session.context));
  });
  server.on('clientError', (error: ParserError, socket: Socket) => sessions.get(socket)?.fail(error));

  return { serve, close: () => void server.close() };
}

function connectHead(request: IncomingMessage): ConnectHead {
  const fields = pairFields(request.rawHeaders);
  return {
    authority: request.url ?? '',
    fields,
    problem: checkHttpVersion(request.httpVersionMajor) ?? bodyProblem(fields),
    keepAlive: request.httpVersionMinor === 1 && !/\bclose\b/i.test(request.headers.connection ?? ''),
  };
}

/** CONNECT has no body (RFC 9110 §9.3.6): one that announces it could mean its bytes for us or for the target. */
function bodyProblem(fields: readonly HeaderField[]): NoriaError | undefined {
  const framing = requestFraming(fields, 1);
  if (framing instanceof NoriaError) return framing;
  const announced = framing.kind === 'chunked' || (framing.kind === 'length' && framing.bytes > 0);
  return announced ? new NoriaError('bad-request', 'CONNECT with a body') : undefined;
}

/** Its parser is gone: if the protocol is not changed, the connection ends with the answer. */
function serveUpgrade(request: IncomingMessage, upgrade: Upgrade, context: ConnectionContext): void {
  const { socket } = upgrade;
  context.speaks('upgrade');
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  response.on('error', ignored);
  response.on('finish', () => {
    context.awaitsRequest();
    socket.destroySoon();
  });
  serveForward(request, response, context, upgrade);
}

/** After a refused CONNECT: the connection waits for another request. */
function awaitNext(socket: Socket, context: ConnectionContext, serve: HttpServer['serve']): void {
  context.awaitsRequest(KEEP_ALIVE_MS);
  awaitFirst(socket, context, (first) => serve(socket, first, context));
}

/**
 * Whether node:http should let go of the socket for this request. Not where a body comes with it, whose end only a
 * parser finds; and not for h2c, which curl offers with every request and nobody misses.
 */
function asksForAnotherProtocol(request: IncomingMessage): boolean {
  const fields = pairFields(request.rawHeaders);
  const framing = requestFraming(fields, request.httpVersionMinor);
  const bodiless = !(framing instanceof NoriaError) && framing.kind === 'none';
  return bodiless && !fieldValues(fields, 'upgrade').some((protocols) => H2C.test(protocols));
}
