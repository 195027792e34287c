/**
 * Writes a member's answer to the client, through node:http's response: fields as they came, framing decided anew.
 *
 * A chunk is held until it is known whether another follows, so that a small answer leaves in one piece.
 */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { MemberConnection } from '../../dialer/dial.ts';
import {
  endToEndFields,
  endToEndTrailers,
  type Framing,
  formatFields,
  type HeaderField,
} from './header-fields.ts';
import { successHeaders } from './replies.ts';
import type { ResponseHead } from './response-reader.ts';

const CONTINUE = 100;
const NO_CONTENT = 204;

/** An answer that never has a body announces none (RFC 9110 §8.6): some clients would wait for it. */
function withoutLength(fields: readonly HeaderField[]): HeaderField[] {
  return fields.filter(([name]) => name.toLowerCase() !== 'content-length');
}

/** The head of an answer, ready to be written. */
interface ForwardedHead {
  readonly status: number;
  readonly reason: string;
  readonly fields: readonly HeaderField[];
}

/** The answer to one request. Its head waits for `flush`, more than one chunk, or `complete`. */
export class ResponseWriter {
  readonly #request: IncomingMessage;
  readonly #response: ServerResponse;
  /** The head as it will be written, while nothing of the answer has been. */
  #head: ForwardedHead | undefined;
  #held: Buffer | undefined;
  #flushed = false;
  #continued = false;

  constructor(request: IncomingMessage, response: ServerResponse) {
    this.#request = request;
    this.#response = response;
    response.sendDate = false;
    // node:http would add Connection and Keep-Alive; the client is told when it differs from its version's default.
    response.removeHeader('connection');
  }

  /** Whether the client has been sent anything of the final answer: from then on it can only be finished or cut off. */
  get begun(): boolean {
    return this.#response.headersSent;
  }

  /** An interim answer; HTTP/1.0 knows none (RFC 9110 §15.2). */
  inform(head: ResponseHead): void {
    if (this.#request.httpVersionMinor === 0) return;
    if (head.status === CONTINUE) {
      if (this.#request.headers.expect === undefined) return;
      this.#continued = true;
      this.#response.writeContinue();
      return;
    }
    this.#response.socket?.write(
      formatResponseHead(head, withoutLength(endToEndFields(head.fields, { kind: 'none' }))),
      'latin1',
    );
  }

  /**
   * The final answer's head. Not written yet: one that turns out broken in the same piece is still refused.
   *
   * @param added - noria's own fields; they go behind the target's.
   * @param closing - the connection takes no further request.
   */
  start(head: ResponseHead, body: Framing, added: readonly HeaderField[], closing: boolean): void {
    const old = this.#request.httpVersionMinor === 0;
    const framing: Framing = old && body.kind === 'chunked' ? { kind: 'until-close' } : body;
    const kept = endToEndFields(head.fields, framing);
    const fields = [...(head.status === NO_CONTENT ? withoutLength(kept) : kept), ...added];
    // A body that was announced, and not asked for by a 100, may come all the same: what follows cannot be told apart.
    const unclear = this.#request.headers.expect !== undefined && !this.#continued;
    const stays = this.#response.shouldKeepAlive && !closing && !unclear;
    if (!stays && !old) fields.push(['Connection', 'close']);
    if (stays && old && framing.kind !== 'until-close') fields.push(['Connection', 'keep-alive']);
    if (!stays) this.#response.shouldKeepAlive = false;
    this.#head = { status: head.status, reason: head.reason, fields };
  }

  data(chunk: Buffer): void {
    this.#writeHeld();
    this.#held = chunk;
  }

  /** Nothing more has arrived for now: what has goes out. @returns false when the client reads too slowly: wait for 'drain'. */
  flush(): boolean {
    this.#writeHead();
    if (!this.begun) return true;
    if (this.#held === undefined && !this.#flushed) this.#response.flushHeaders();
    this.#writeHeld();
    this.#flushed = true;
    return !this.#response.writableNeedDrain;
  }

  /** The answer is whole. Trailers go where the client gets it in chunks. */
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

/** An answer's head as it stands on the wire. */
export function formatResponseHead(head: ResponseHead, fields: readonly HeaderField[]): string {
  return `HTTP/1.1 ${head.status} ${head.reason}\r\n${formatFields(fields)}\r\n`;
}

/** `successHeaders`, with the tries of the whole request counted. */
export function wayFields(way: MemberConnection, attempts: number): HeaderField[] {
  return successHeaders(way).map(
    ([name, value]): HeaderField => [name, name === 'X-Noria-Attempts' ? `${attempts}` : value],
  );
}
