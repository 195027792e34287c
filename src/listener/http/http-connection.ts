/**
 * Reads the requests of one HTTP client connection and serves them in order; owns the reading side of the socket
 * until a tunnel takes it over. A request is parsed after the previous one was answered. Data that the client sends
 * early waits, up to MAX_AHEAD_BYTES; then reading pauses, so no byte is dropped.
 */
import type { Deadline } from '../../core/deadlines.ts';
import { NoriaError } from '../../core/faults.ts';
import { readMarks } from '../../core/front-proxy.ts';
import { parsePort } from '../../core/host-port.ts';
import type { DialRequest } from '../../dialer/contract.ts';
import { TCP_KEEP_ALIVE_MS } from '../../dialer/member-socket.ts';
import type { RoutingOptions } from '../../pool/lease.ts';
import type { ClientConnection } from '../client-connection.ts';
import { badRequest, type Refusal, refusalOf } from '../refusal.ts';
import { canDestroyAtEnd, openTunnel } from '../relay.ts';
import { BodyReader, type BodyRules } from './body.ts';
import { answerDesk, DESK_HOST } from './client-desk.ts';
import { Forward } from './forward.ts';
import { decrementMaxForwards, readForwardRequest } from './forward-request.ts';
import {
  type Framing,
  fieldValues,
  formatFields,
  type HeaderField,
  isEmptyBody,
  successHeaders,
} from './header-fields.ts';
import { PinnedConnection } from './pinned-connection.ts';
import { formatReply, type HttpReply, refusalReply } from './replies.ts';
import {
  emptyLinesBytes,
  MAX_REQUEST_HEAD_BYTES,
  parseRequestHead,
  type RequestHead,
} from './request-head.ts';
import { ResponseWriter } from './response-writer.ts';

const KEEP_ALIVE_MS = 60_000;
/** For so long, the rest of an answered request's body is discarded. Then the connection is destroyed. */
const MAX_DISCARD_MS = 2_000;
const MAX_AHEAD_BYTES = 64 * 1024;
const NO_BYTES = Buffer.alloc(0);
const LETTER_C = 0x43;
/** The end of the request is unclear: everything that follows on the connection is discarded. */
const UNCLEAR: Framing = { kind: 'until-close' };
const BODY_RULES: BodyRules = {
  maxTrailerBytes: MAX_REQUEST_HEAD_BYTES,
  fieldSyntax: 'request',
  invalid: badRequest,
};

interface CurrentRequest {
  readonly response: ResponseWriter;
  readonly body: BodyReader;
  /** Undefined before `#startForward` has returned, and if noria answers the request itself. */
  forward: Forward | undefined;
}

export function serveHttp(first: Buffer, connection: ClientConnection): void {
  // A complete and valid CONNECT needs no HttpConnection.
  const parsed = first[0] === LETTER_C ? parseRequestHead(first) : undefined;
  if (parsed === undefined || parsed instanceof NoriaError || parsed.head.method !== 'CONNECT')
    new HttpConnection(connection).start(first);
  else serveConnect(parsed.head, first.subarray(parsed.bytes), connection);
}

/** Serves a tunnel to noria itself: plain HTTP requests with the options of the tunnel. */
export function serveDesk(received: Buffer, connection: ClientConnection, routing: RoutingOptions): void {
  new HttpConnection(connection, routing).start(received);
}

class HttpConnection {
  readonly connection: ClientConnection;
  readonly pin: PinnedConnection;
  readonly #desk: RoutingOptions | undefined;
  #received: Buffer = NO_BYTES;
  #current: CurrentRequest | undefined;
  /** Whether a call of `#parse` is in progress. A nested call returns at once. */
  #parsing = false;
  #over = false;
  #deadline: Deadline | undefined;
  #awaitsHead = false;
  readonly #keepAliveDelay: Deadline;

  /** @param desk - the routing options of a tunnel to noria itself; absent for a client of the proxy. */
  constructor(connection: ClientConnection, desk?: RoutingOptions) {
    this.connection = connection;
    this.#desk = desk;
    this.pin = new PinnedConnection(connection.options.clock);
    this.#keepAliveDelay = connection.options.deadlines.set(TCP_KEEP_ALIVE_MS, this.#enableKeepAlive);
  }

  start(first: Buffer): void {
    const { socket } = this.connection;
    socket
      .on('data', this.#onData)
      .on('end', this.#onEnd)
      .on('close', this.#onClose)
      .on('drain', this.#onDrain);
    this.connection.protocol = 'http';
    this.connection.becomeIdle();
    this.#onData(first);
  }

  /** Some time after the start, to save system calls: most connections end before they need keep-alive. */
  readonly #enableKeepAlive = (): void => {
    this.connection.socket.setKeepAlive(true, TCP_KEEP_ALIVE_MS);
  };

  readonly #onData = (chunk: Buffer): void => {
    this.#safely(() => {
      const current = this.#current;
      if (current !== undefined && !current.body.complete) this.#readBody(current, chunk);
      else this.#received = this.#received.length === 0 ? chunk : Buffer.concat([this.#received, chunk]);
      this.#parse();
    });
  };

  /** A client that ends its side counts as disconnected: its pipelined requests get no answer. */
  readonly #onEnd = (): void => {
    const { socket } = this.connection;
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

  /** No request begins while one is in progress, or while the client reads the answers too slowly. */
  #parse(): void {
    if (this.#parsing) return;
    this.#parsing = true;
    const { socket } = this.connection;
    while (!this.#over && this.#current === undefined && this.#received.length > 0) {
      if (socket.writableNeedDrain || !this.#parseHead()) break;
    }
    this.#parsing = false;
    if (!this.#over) this.adjustReading();
  }

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
    const { headerTimeoutMs } = this.connection.options;
    this.#setDeadline(headerTimeoutMs, () => {
      this.#refuse(
        new NoriaError('request-timeout', `no complete request head within ${headerTimeoutMs} ms`),
      );
    });
  }

  #serve(head: RequestHead, rest: Buffer): void {
    const connection = this.connection;
    this.#awaitsHead = false;
    this.connection.options.deadlines.clear(this.#deadline);
    if (head.method === 'CONNECT' && this.#desk === undefined) {
      this.#release();
      serveConnect(head, rest, connection);
      return;
    }
    connection.protocol = 'http';
    connection.beginRequest();
    const response = new ResponseWriter(head, connection, () => this.#onAnswered(current), this.#onDrain);
    const framing = head.framing instanceof NoriaError ? UNCLEAR : head.framing;
    const current: CurrentRequest = {
      response,
      body: new BodyReader(framing, BODY_RULES),
      forward: undefined,
    };
    this.#current = current;
    if (current.body.complete) this.#received = rest;
    if (this.#desk !== undefined)
      replyOfDesk({ ...head, path: deskPath(head.target) }, this.#desk, connection, response);
    else current.forward = this.#startForward(head, response);
    if (!this.#over && !current.body.complete) this.#readBody(current, rest);
  }

  /** @returns undefined if noria has answered the request itself. */
  #startForward(head: RequestHead, response: ResponseWriter): Forward | undefined {
    const { connection } = this;
    const request = readForwardRequest(head, connection);
    if (request instanceof NoriaError) {
      connection.reportRefusal(request.code, request.message);
      response.reply(refusalReply(refusalOf(request), head.fields));
      return undefined;
    }
    const { method, url, routing } = request;
    if (url.target.host === DESK_HOST) {
      replyOfDesk({ ...request, path: url.path }, routing, connection, response);
      return undefined;
    }
    const fields = decrementMaxForwards(method, request.fields);
    if (fields === undefined) {
      response.reply(finalReply(method, connection));
      return undefined;
    }
    if (request.upgrade) connection.protocol = 'upgrade';
    const forward = new Forward(this, response, { ...request, fields });
    forward.start();
    return forward;
  }

  #readBody(current: CurrentRequest, chunk: Buffer): void {
    const { body, forward } = current;
    try {
      const data = body.decode(chunk);
      if (data.length > 0) forward?.onBody(data);
    } catch (error) {
      if (!(error instanceof NoriaError)) throw error;
      this.#failBody(current.response, error);
      return;
    }
    if (!body.complete) return;
    this.#received = body.rest;
    forward?.body.end(body.trailers);
    this.#advance(current);
  }

  /** The end of such a request is unclear. */
  #failBody(response: ResponseWriter, error: NoriaError): void {
    this.#abort();
    if (response.completed) {
      this.#close(false);
    } else if (response.begun) {
      this.connection.reportRefusal(error.code, error.message);
      this.connection.socket.destroy();
    } else {
      this.#refuse(error);
    }
  }

  #onAnswered(current: CurrentRequest): void {
    const { response, body } = current;
    if (!response.keepAlive) {
      this.#close(body.complete && this.#received.length === 0);
      return;
    }
    // The rest of the body must be discarded, because the next request begins after it.
    if (!body.complete) this.#setDeadline(MAX_DISCARD_MS, () => this.connection.socket.destroy());
    this.#advance(current);
  }

  #advance({ body, response }: CurrentRequest): void {
    if (!body.complete || !response.completed) return;
    this.#current = undefined;
    const { socket, options, draining } = this.connection;
    // While noria still sends the response, `idleTimeoutMs` applies and not KEEP_ALIVE_MS: the client may read slowly.
    const idleMs = socket.writableLength > 0 ? options.idleTimeoutMs : KEEP_ALIVE_MS;
    this.#setDeadline(idleMs, () => socket.destroy());
    if (draining) this.#release();
    this.connection.becomeIdle();
    if (!draining) this.#parse();
  }

  /** @param allRead - false if the client may have sent more, which is discarded before the connection closes. */
  #close(allRead: boolean): void {
    this.#release();
    this.connection.becomeIdle();
    if (allRead) this.connection.socket.destroySoon();
    else this.connection.close();
  }

  #refuse(error: NoriaError): void {
    this.#release();
    this.connection.reportRefusal(error.code, error.message);
    this.connection.sendAndClose(formatReply(refusalReply(refusalOf(error)), false));
  }

  #abort(): void {
    this.#current?.forward?.abort();
  }

  detach(): Buffer | undefined {
    const early = this.#received;
    this.#release();
    return early.length === 0 ? undefined : early;
  }

  adjustReading(): void {
    const { socket } = this.connection;
    const current = this.#current;
    const wantsMore =
      current !== undefined && !current.body.complete
        ? current.forward?.body.wantsMore !== false
        : this.#received.length < MAX_AHEAD_BYTES;
    if (wantsMore) socket.resume();
    else socket.pause();
  }

  #release(): void {
    this.#over = true;
    this.connection.options.deadlines.clear(this.#deadline);
    this.connection.options.deadlines.clear(this.#keepAliveDelay);
    this.pin.close();
    this.connection.socket
      .off('data', this.#onData)
      .off('end', this.#onEnd)
      .off('close', this.#onClose)
      .off('drain', this.#onDrain);
  }

  #setDeadline(ms: number, fn: () => void): void {
    this.connection.options.deadlines.clear(this.#deadline);
    this.#deadline = this.connection.options.deadlines.set(ms, fn);
  }

  #safely(work: () => void): void {
    try {
      work();
    } catch (error) {
      this.#abort();
      this.connection.fail(error);
    }
  }
}

function replyOfDesk(
  request: { readonly method: string; readonly path: string; readonly fields: readonly HeaderField[] },
  routing: RoutingOptions,
  connection: ClientConnection,
  response: ResponseWriter,
): void {
  const send = (answer: HttpReply | NoriaError) => {
    if (!connection.socket.writable) return; // the client has gone while other processes were asked
    if (answer instanceof NoriaError) {
      connection.reportRefusal(answer.code, answer.message);
      response.reply(refusalReply(refusalOf(answer), request.fields));
    } else response.reply(answer);
  };
  const answer = answerDesk(request, routing, connection.options.desk);
  if (answer instanceof Promise) void answer.then(send);
  else send(answer);
}

/** A request with Max-Forwards: 0 ends at noria. */
function finalReply(method: string, connection: ClientConnection): HttpReply {
  if (method !== 'TRACE')
    return { status: 200, reasonPhrase: 'OK', headers: [['Content-Length', '0']], body: '' };
  connection.reportRefusal('not-implemented', 'TRACE with Max-Forwards: 0');
  const reason = 'a TRACE with Max-Forwards: 0 ends at noria, which does not reflect requests';
  return refusalReply({ code: 'not-implemented', reason });
}

function serveConnect(head: RequestHead, received: Buffer, connection: ClientConnection): void {
  const { socket } = connection;
  connection.protocol = 'connect';
  connection.beginRequest();
  const refuse = (refusal: Refusal): void => {
    // After a refused CONNECT, further bytes may be meant for the target, so they must not be parsed as a request.
    const keepAlive = refusal.code === 'auth-required' && head.keepAlive && received.length === 0;
    const reply = formatReply(refusalReply(refusal, head.fields, connection.record), keepAlive);
    if (!keepAlive) connection.sendAndClose(reply);
    else {
      socket.write(reply);
      connection.becomeIdle(KEEP_ALIVE_MS);
      connection.readFirst((first) => serveHttp(first, connection));
    }
  };

  const request = readDialRequest(head, connection);
  if (request instanceof NoriaError) {
    connection.reportRefusal(request.code, request.message);
    refuse(refusalOf(request));
    return;
  }
  if (request.target.host === DESK_HOST) {
    socket.write('HTTP/1.1 200 Connection established\r\n\r\n');
    serveDesk(received, connection, request.routing);
    return;
  }
  openTunnel(connection, request, received, (result) => {
    if (!result.ok) refuse(result.failure);
    else {
      const { lease, attempts } = result.connection;
      const fields = formatFields(successHeaders(lease, attempts));
      socket.write(`HTTP/1.1 200 Connection established\r\n${fields}\r\n`, 'latin1');
    }
  });
}

function readDialRequest(head: RequestHead, connection: ClientConnection): DialRequest | NoriaError {
  const { framing } = head;
  if (framing instanceof NoriaError) return framing;
  // CONNECT has no body (RFC 9110 §9.3.6), and noria cannot know whether it is meant for the target.
  if (!isEmptyBody(framing)) return badRequest('the CONNECT request announces a body');
  const identity = connection.identifyRequest(head.fields);
  if (identity instanceof NoriaError) return identity;
  const target = connection.options.access.readTarget(head.target);
  if (target === undefined) return badRequest(whyNoTarget(head.target));
  const marks = readMarks(fieldValues(head.fields, 'via'));
  const loop = marks && connection.options.access.checkMarks(marks);
  if (loop !== undefined) return loop;
  const routing = connection.authorize(identity, target, head.fields);
  const { record } = connection;
  return routing instanceof NoriaError ? routing : { target, routing, use: 'tunnel', marks, record };
}

function whyNoTarget(target: string): string {
  const port = /:(\d+)$/.exec(target)?.[1];
  if (port === undefined) return 'the CONNECT target is not HOST:PORT, for example example.com:443';
  return parsePort(port) === undefined
    ? 'the port of the CONNECT target is not between 1 and 65535'
    : 'the host of the CONNECT target is not a host name or an IP address';
}

/** The path of a request in a tunnel to noria itself, in origin form or in absolute form. */
function deskPath(target: string): string {
  return target.replace(/^http:\/\/[^/?]*/i, '').replace(/^(?!\/)/, '/');
}
