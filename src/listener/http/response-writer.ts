/**
 * Writes a member's response to the client through node:http, with the fields as received and new framing.
 *
 * Each chunk is held until it is known whether another one follows, so that a small response leaves in one packet.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { endToEndFields, endToEndTrailers } from './end-to-end.ts';
import type { Framing } from './framing.ts';
import { formatFields, type HeaderField } from './header-fields.ts';
import type { ResponseHead } from './response-reader.ts';

const CONTINUE = 100;
const NO_CONTENT = 204;

/** The head of a response, as it will be written. */
interface WritableHead {
  readonly status: number;
  readonly reason: string;
  readonly fields: readonly HeaderField[];
}

/** The response to one request. Its head is written by `flush`, by a second chunk, or by `complete`. */
export class ResponseWriter {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  /** Undefined before `start` and once it has been written. */
  #head: WritableHead | undefined;
  #held: Buffer | undefined;
  #flushed = false;
  #continueSent = false;

  constructor(request: IncomingMessage, response: ServerResponse) {
    this.#request = request;
    this.#response = response;
    response.sendDate = false;
    // node:http would add Connection and Keep-Alive. `start` adds Connection where it differs from the version's default.
    response.removeHeader('connection');
  }

  /** Whether some of the final response has been sent, so that it can only be finished or cut off. */
  get begun(): boolean {
    return this.#response.headersSent;
  }

  /** Forwards an interim response. Clients of HTTP/1.0 do not understand them (RFC 9110 §15.2). */
  sendInterim(head: ResponseHead): void {
    if (this.#request.httpVersionMinor === 0) return;
    if (head.status === CONTINUE) {
      if (this.#request.headers.expect === undefined) return;
      this.#continueSent = true;
      this.#response.writeContinue();
      return;
    }
    const fields = withoutLength(endToEndFields(head.fields, { kind: 'none' }));
    this.#response.socket?.write(formatResponseHead(head, fields), 'latin1');
  }

  /**
   * Sets the head of the final response. It is not written yet, so a response whose first bytes turn out invalid can still be
   * replaced by a refusal.
   *
   * @param added - noria's own fields, which follow those of the target.
   * @param closing - the connection accepts no further request.
   */
  start(head: ResponseHead, body: Framing, added: readonly HeaderField[], closing: boolean): void {
    const isHttp10 = this.#request.httpVersionMinor === 0;
    const framing: Framing = isHttp10 && body.kind === 'chunked' ? { kind: 'until-close' } : body;
    const kept = endToEndFields(head.fields, framing);
    const fields = [...(head.status === NO_CONTENT ? withoutLength(kept) : kept), ...added];
    // A body announced with Expect, but never asked for by a 100, may come or not: the next request's start is unknown.
    const bodyUnclear = this.#request.headers.expect !== undefined && !this.#continueSent;
    const keepAlive = this.#response.shouldKeepAlive && !closing && !bodyUnclear;
    if (!keepAlive && !isHttp10) fields.push(['Connection', 'close']);
    if (keepAlive && isHttp10 && framing.kind !== 'until-close') fields.push(['Connection', 'keep-alive']);
    if (!keepAlive) this.#response.shouldKeepAlive = false;
    this.#head = { status: head.status, reason: head.reason, fields };
  }

  write(chunk: Buffer): void {
    this.#writeHeld();
    this.#held = chunk;
  }

  /**
   * Writes what is held, because no more has arrived for now.
   *
   * @returns false if the client reads too slowly: wait for 'drain'.
   */
  flush(): boolean {
    this.#writeHead();
    if (!this.begun) return true;
    if (this.#held === undefined && !this.#flushed) this.#response.flushHeaders();
    this.#writeHeld();
    this.#flushed = true;
    return !this.#response.writableNeedDrain;
  }

  /** Ends the response. node:http sends trailers only if the body is chunked. */
  complete(trailers: readonly HeaderField[]): void {
    this.#writeHead();
    const kept = endToEndTrailers(trailers);
    if (kept.length > 0)
      this.#response.addTrailers(kept.map(([name, value]): [string, string] => [name, value]));
    if (this.#held === undefined) this.#response.end();
    else this.#response.end(this.#held);
    this.#held = undefined;
  }

  #writeHead(): void {
    if (this.#head === undefined) return;
    const { status, reason, fields } = this.#head;
    this.#head = undefined;
    this.#response.writeHead(status, reason, fields.flat());
  }

  #writeHeld(): void {
    if (this.#held === undefined) return;
    this.#writeHead();
    this.#response.write(this.#held);
    this.#held = undefined;
  }
}

export function formatResponseHead(head: ResponseHead, fields: readonly HeaderField[]): string {
  return `HTTP/1.1 ${head.status} ${head.reason}\r\n${formatFields(fields)}\r\n`;
}

/** A response that never has a body must not have Content-Length (RFC 9110 §8.6): some clients would wait for the body. */
function withoutLength(fields: readonly HeaderField[]): HeaderField[] {
  return fields.filter(([name]) => name.toLowerCase() !== 'content-length');
}
