/**
 * Serves the HTTP clients of one listener. A plain CONNECT is parsed by connect.ts, everything else by node:http.
 *
 * Owns an http.Server that never listens: it receives sockets, and its timer finds clients that send their head too slowly.
 */
import { createServer, type IncomingMessage, type Server, ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import { NoriaError } from '../../core/faults.ts';
import { TCP_KEEP_ALIVE_MS } from '../../core/keep-alive.ts';
import type { ClientConnection } from '../client-connection.ts';
import { type ConnectHead, MAX_REQUEST_HEAD_BYTES, parseConnectHead, serveConnect } from './connect.ts';
import { serveForward } from './forward.ts';
import { checkHttpVersion, requestFraming } from './framing.ts';
import { fieldValues, type HeaderField, pairFields } from './header-fields.ts';
import { type ParserError, RequestPipeline } from './pipeline.ts';
import { refusalReply, sendReply } from './replies.ts';

/** How long a connection may be idle between two requests. */
const KEEP_ALIVE_MS = 60_000;
/** How often node:http checks for slow heads. */
const SLOW_HEAD_CHECK_MS = 5_000;
const H2C = /\bh2c\b/i;

export class HttpServer {
  readonly #server: Server;
  readonly #pipelines = new WeakMap<object, RequestPipeline>();

  /** @param options - `headerTimeoutMs`: for a whole request head. */
  constructor({ headerTimeoutMs }: { readonly headerTimeoutMs: number }) {
    this.#server = createServer({
      insecureHTTPParser: false,
      maxHeaderSize: MAX_REQUEST_HEAD_BYTES,
      requireHostHeader: false, // the URL contains the host, so a missing Host is harmless
      headersTimeout: headerTimeoutMs,
      requestTimeout: 0, // uploads may take long; the idle timeout ends silent ones
      connectionsCheckingInterval: Math.min(SLOW_HEAD_CHECK_MS, headerTimeoutMs),
      keepAliveTimeout: KEEP_ALIVE_MS,
      optimizeEmptyRequests: true,
      shouldUpgradeCallback: isUpgrade,
    });
    this.#server.maxHeadersCount = 0; // unlimited: above the limit node:http would drop fields silently
    this.#server.emit('listening'); // starts the timer for slow heads, which normally starts with listening
    this.#addListeners();
  }

  /** @param first - what has already been read from the socket. */
  serve(first: Buffer, connection: ClientConnection): void {
    const plain = parseConnectHead(first);
    if (plain !== undefined) {
      const received = first.subarray(plain.bytes);
      serveConnect(plain.head, received, connection, () => this.#awaitNext(connection));
      return;
    }
    const { socket } = connection;
    connection.setProtocol('http');
    connection.awaitRequest();
    socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
    this.#pipelines.set(socket, new RequestPipeline(connection));
    socket.unshift(first);
    this.#server.emit('connection', socket);
  }

  /** Stops the timer. The listener closes the connections. */
  close(): void {
    this.#server.close();
  }

  #addListeners(): void {
    const forward = (request: IncomingMessage, response: ServerResponse): void => {
      const pipeline = this.#pipelineOf(request.socket);
      pipeline.add(request, response, () => serveForward(request, response, pipeline.connection));
    };
    this.#server.on('request', forward);
    this.#server.on('checkContinue', forward); // the target decides whether the client continues
    this.#server.on('checkExpectation', (request, response) => {
      const pipeline = this.#pipelineOf(request.socket);
      const { connection } = pipeline;
      pipeline.add(request, response, () => {
        connection.reportRefusal('expectation-failed', 'Expect has a value other than 100-continue');
        sendReply(request, response, refusalReply({ code: 'expectation-failed' }), connection);
        return () => {};
      });
    });
    this.#server.on('connect', (request, socket: Socket, received) => {
      const pipeline = this.#pipelineOf(socket);
      const { connection } = pipeline;
      pipeline.addLast(() => {
        serveConnect(connectHead(request), received, connection, () => this.#awaitNext(connection));
      });
    });
    this.#server.on('upgrade', (request, socket: Socket, received) => {
      const pipeline = this.#pipelineOf(socket);
      pipeline.addLast(() => serveUpgrade(request, received, pipeline.connection));
    });
    this.#server.on('clientError', (error: ParserError, socket: Socket) =>
      this.#pipelines.get(socket)?.fail(error),
    );
  }

  #pipelineOf(socket: object): RequestPipeline {
    const pipeline = this.#pipelines.get(socket);
    if (pipeline === undefined) throw new TypeError('a request on a socket that serve() did not receive');
    return pipeline;
  }

  /** After a refused CONNECT: waits for the next request. */
  #awaitNext(connection: ClientConnection): void {
    connection.awaitRequest(KEEP_ALIVE_MS);
    connection.readFirst((first) => this.serve(first, connection));
  }
}

/** node:http has detached its parser: if the protocol is not switched, the connection ends after the response. */
function serveUpgrade(request: IncomingMessage, received: Buffer, connection: ClientConnection): void {
  const { socket } = connection;
  connection.setProtocol('upgrade');
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(socket);
  response.on('error', () => {}); // ignored: the client has left, and 'close' follows
  response.on('finish', () => {
    connection.awaitRequest();
    socket.destroySoon();
  });
  serveForward(request, response, connection, received);
}

function connectHead(request: IncomingMessage): ConnectHead {
  const fields = pairFields(request.rawHeaders);
  return {
    authority: request.url ?? '',
    fields,
    problem: checkHttpVersion(request.httpVersionMajor) ?? checkNoBody(fields),
    keepAlive: request.httpVersionMinor === 1 && !/\bclose\b/i.test(request.headers.connection ?? ''),
  };
}

/** CONNECT has no body (RFC 9110 §9.3.6). If one is announced, it is unclear whether its bytes are for noria or the target. */
function checkNoBody(fields: readonly HeaderField[]): NoriaError | undefined {
  const framing = requestFraming(fields, 1);
  if (framing instanceof NoriaError) return framing;
  const announced = framing.kind === 'chunked' || (framing.kind === 'length' && framing.bytes > 0);
  return announced ? new NoriaError('bad-request', 'CONNECT with a body') : undefined;
}

/**
 * Whether node:http detaches its parser for this request and emits 'upgrade'. Not for a request with a body, whose end only the
 * parser finds; and not for h2c, which curl offers with every request and which may be ignored.
 */
function isUpgrade(request: IncomingMessage): boolean {
  const fields = pairFields(request.rawHeaders);
  const framing = requestFraming(fields, request.httpVersionMinor);
  const hasNoBody = !(framing instanceof NoriaError) && framing.kind === 'none';
  return hasNoBody && !fieldValues(fields, 'upgrade').some((protocols) => H2C.test(protocols));
}
