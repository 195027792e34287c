/**
 * Writes the response to one request to the client's socket: that of a member, with new framing, or a reply of noria itself.
 *
 * The data of a read is held until it is known whether the response ends with it, so that a small response leaves in one write.
 */
import type { ClientConnection } from '../client-connection.ts';
import { reset } from '../reset.ts';
import { endToEndFields, endToEndTrailers } from './end-to-end.ts';
import type { Framing } from './framing.ts';
import { formatFields, type HeaderField } from './header-fields.ts';
import { PartLimit } from './part-limit.ts';
import type { HttpReply } from './replies.ts';
import { expectsContinue, type RequestHead } from './request-head.ts';
import type { ResponseHead } from './response-reader.ts';

const CONTINUE = 100;
const NO_CONTENT = 204;

interface ResponseCallbacks {
  /** Called once, when the whole response has been passed to the socket. */
  onComplete(): void;
  /** The client can take more, after `flush` has returned false. */
  readonly onWritten: () => void;
}

/** The response to one request. Its head is written by `flush` or `complete`. */
export class ResponseWriter {
  readonly #request: RequestHead;
  readonly #connection: ClientConnection;
  readonly #callbacks: ResponseCallbacks;
  /** Undefined until the first part that is not the last. */
  #partLimit: PartLimit | undefined;
  /** Undefined before `start` and once it has been written. */
  #head: string | undefined;
  #held: Buffer | undefined;
  #chunked = false;
  /** Neither a length nor chunks show the client where the body ends. */
  #endsWithConnection = false;
  #begun = false;
  #completed = false;
  #continueSent = false;
  #keepAlive: boolean;
  #closesAfter = false;

  constructor(request: RequestHead, connection: ClientConnection, callbacks: ResponseCallbacks) {
    this.#request = request;
    this.#connection = connection;
    this.#callbacks = callbacks;
    this.#keepAlive = request.keepAlive;
  }

  /** Whether some of the final response has been sent, so that it can only be finished or cut off. */
  get begun(): boolean {
    return this.#begun;
  }

  get completed(): boolean {
    return this.#completed;
  }

  /** Whether another request may follow on the connection. */
  get keepAlive(): boolean {
    return this.#keepAlive;
  }

  /** The connection closes after the response, which says so. Call it before `start`. */
  closeAfter(): void {
    this.#closesAfter = true;
  }

  /** Forwards an interim response. Clients of HTTP/1.0 do not understand them (RFC 9110 §15.2). */
  sendInterim(head: ResponseHead): void {
    if (this.#request.minorVersion === 0) return;
    if (head.status === CONTINUE) {
      if (!expectsContinue(this.#request)) return;
      this.#continueSent = true;
      this.#write('HTTP/1.1 100 Continue\r\n\r\n');
      return;
    }
    const fields = withoutLength(endToEndFields(head.fields, { kind: 'none' }));
    this.#write(formatResponseHead(head, fields));
  }

  /**
   * Sets the head of the final response. It is not written yet, so a response whose first bytes turn out invalid can still be
   * replaced by a refusal.
   *
   * @param added - noria's own fields, which follow those of the target.
   */
  start(head: ResponseHead, body: Framing, added: readonly HeaderField[]): void {
    const isHttp10 = this.#request.minorVersion === 0;
    const hasLength = body.kind === 'none' || body.kind === 'length';
    this.#chunked = !hasLength && !isHttp10;
    const kept = endToEndFields(head.fields, isHttp10 && !hasLength ? { kind: 'until-close' } : body);
    const fields = [...(head.status === NO_CONTENT ? withoutLength(kept) : kept), ...added];
    if (body.kind === 'until-close' && this.#chunked) fields.push(['Transfer-Encoding', 'chunked']);
    this.#endsWithConnection = !hasLength && !this.#chunked;
    this.#keepAlive = this.#mayKeepAlive() && !this.#endsWithConnection;
    // A client of HTTP/1.0 sees a response of HTTP/1.1, which without this field announces that the connection stays open.
    if (!this.#keepAlive) fields.push(['Connection', 'close']);
    else if (isHttp10) fields.push(['Connection', 'keep-alive']);
    this.#head = formatResponseHead(head, fields);
  }

  write(chunk: Buffer): void {
    this.#writeHeld();
    this.#held = chunk;
  }

  /**
   * Writes what is held, because no more has arrived for now.
   *
   * @returns false if the client reads too slowly: wait for `onWritten` or for the socket's 'drain'.
   */
  flush(): boolean {
    const { socket } = this.#connection;
    socket.cork();
    this.#writeHead();
    this.#writeHeld();
    socket.uncork();
    this.#partLimit ??= new PartLimit(socket, this.#callbacks.onWritten);
    return this.#partLimit.mayWrite();
  }

  /** Ends the response. Trailers are sent only if the body is chunked. */
  complete(trailers: readonly HeaderField[]): void {
    const { socket } = this.#connection;
    socket.cork();
    this.#writeHead();
    this.#writeHeld();
    if (this.#chunked) this.#write(`0\r\n${formatFields(endToEndTrailers(trailers))}\r\n`);
    socket.uncork();
    this.#complete();
  }

  /** Closes the connection so that the client sees that something is missing. */
  cutOff(): void {
    const { socket } = this.#connection;
    if (this.#endsWithConnection) reset(socket);
    else socket.destroy();
  }

  /** Sends a reply of noria itself as the whole response. */
  reply({ status, reasonPhrase, headers, body }: HttpReply): void {
    this.#head = undefined;
    this.#held = undefined;
    this.#keepAlive = this.#mayKeepAlive();
    const fields = formatFields([...headers, ['Connection', this.#keepAlive ? 'keep-alive' : 'close']]);
    const content = this.#request.method === 'HEAD' ? '' : body;
    this.#begun = true;
    this.#connection.socket.write(`HTTP/1.1 ${status} ${reasonPhrase}\r\n${fields}\r\n${content}`);
    this.#complete();
  }

  /** A body announced with Expect, but never asked for by a 100, may come or not: the next request's start is unknown. */
  #mayKeepAlive(): boolean {
    const { draining, refusal } = this.#connection;
    const bodyUnclear = expectsContinue(this.#request) && !this.#continueSent;
    return (
      this.#request.keepAlive && !this.#closesAfter && !draining && refusal === undefined && !bodyUnclear
    );
  }

  #writeHead(): void {
    if (this.#head === undefined) return;
    this.#begun = true;
    this.#write(this.#head);
    this.#head = undefined;
  }

  #writeHeld(): void {
    const held = this.#held;
    if (held === undefined) return;
    this.#held = undefined;
    this.#writeHead();
    if (this.#chunked) this.#write(`${held.length.toString(16)}\r\n`);
    this.#connection.socket.write(held);
    if (this.#chunked) this.#write('\r\n');
  }

  #write(text: string): void {
    this.#connection.socket.write(text, 'latin1');
  }

  #complete(): void {
    this.#completed = true;
    this.#callbacks.onComplete();
  }
}

export function formatResponseHead(head: ResponseHead, fields: readonly HeaderField[]): string {
  return `HTTP/1.1 ${head.status} ${head.reason}\r\n${formatFields(fields)}\r\n`;
}

/** A response that never has a body must not have Content-Length (RFC 9110 §8.6): some clients would wait for the body. */
function withoutLength(fields: readonly HeaderField[]): HeaderField[] {
  return fields.filter(([name]) => name.toLowerCase() !== 'content-length');
}
