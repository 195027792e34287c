/**
 * Writes the response to one request: that of a member with new framing, or noria's own reply. It holds the data of
 * each read until it knows whether the response ends with it: a small response needs only one write.
 */
import type { Socket } from 'node:net';
import type { ClientConnection } from '../client-connection.ts';
import { reset } from '../relay.ts';
import {
  endToEndFields,
  endToEndTrailers,
  type Framing,
  formatFields,
  type HeaderField,
} from './header-fields.ts';
import { formatReply, type HttpReply } from './replies.ts';
import { expectsContinue, type RequestHead } from './request-head.ts';
import type { ResponseHead } from './response-reader.ts';

const CONTINUE = 100;
const NO_CONTENT = 204;
/** Up to so many bytes, copying the data behind the head costs less than a second write. */
const MAX_JOINED_BYTES = 4 * 1024;
const MAX_PARTS = 64;
const NO_BYTES = Buffer.alloc(0);

export class ResponseWriter {
  readonly #request: RequestHead;
  readonly #connection: ClientConnection;
  readonly #onComplete: () => void;
  readonly #onWritten: () => void;
  #partLimit: PartLimit | undefined;
  #head: string | undefined;
  #held: Buffer | undefined;
  #chunked = false;
  /** The body has neither a length nor chunks. */
  #endsWithConnection = false;
  begun = false;
  completed = false;
  #continueSent = false;
  keepAlive: boolean;
  /** Announced with Connection: close. Set it before `start`. */
  closesAfter = false;

  constructor(
    request: RequestHead,
    connection: ClientConnection,
    onComplete: () => void,
    onWritten: () => void,
  ) {
    this.#request = request;
    this.#connection = connection;
    this.#onComplete = onComplete;
    this.#onWritten = onWritten;
    this.keepAlive = request.keepAlive;
  }

  /** HTTP/1.0 clients do not understand interim responses (RFC 9110 §15.2). */
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

  /** Does not write the head yet, so a refusal can still replace a response whose first bytes are invalid. */
  start(head: ResponseHead, body: Framing, added: readonly HeaderField[]): void {
    const isHttp10 = this.#request.minorVersion === 0;
    const hasLength = body.kind === 'none' || body.kind === 'length';
    this.#chunked = !hasLength && !isHttp10;
    const kept = endToEndFields(head.fields, isHttp10 && !hasLength ? { kind: 'until-close' } : body);
    const fields = [...(head.status === NO_CONTENT ? withoutLength(kept) : kept), ...added];
    if (body.kind === 'until-close' && this.#chunked) fields.push(['Transfer-Encoding', 'chunked']);
    this.#endsWithConnection = !hasLength && !this.#chunked;
    this.keepAlive = this.#mayKeepAlive() && !this.#endsWithConnection;
    // Without it, an HTTP/1.0 client would take the connection of an HTTP/1.1 response for open.
    if (!this.keepAlive) fields.push(['Connection', 'close']);
    else if (isHttp10) fields.push(['Connection', 'keep-alive']);
    this.#head = formatResponseHead(head, fields);
  }

  write(chunk: Buffer): void {
    if (this.#held !== undefined) this.#writePending();
    this.#held = chunk;
  }

  /** Call it after each read. @returns false if the client reads too slowly: wait for `onWritten` or 'drain'. */
  flush(): boolean {
    const { socket } = this.#connection;
    this.#writePending();
    this.#partLimit ??= new PartLimit(socket, this.#onWritten);
    return this.#partLimit.mayWrite();
  }

  complete(trailers: readonly HeaderField[]): void {
    if (!this.#chunked) this.#writePending();
    else {
      const { socket } = this.#connection;
      socket.cork();
      this.#writePending();
      this.#write(`0\r\n${formatFields(endToEndTrailers(trailers))}\r\n`);
      socket.uncork();
    }
    this.#complete();
  }

  /** Shows the client that the response is incomplete. */
  cutOff(): void {
    const { socket } = this.#connection;
    if (this.#endsWithConnection) reset(socket);
    else socket.destroy();
  }

  reply(reply: HttpReply): void {
    this.#head = undefined;
    this.#held = undefined;
    this.keepAlive = this.#mayKeepAlive();
    this.begun = true;
    const withBody = this.#request.method !== 'HEAD';
    this.#connection.socket.write(formatReply(reply, this.keepAlive, withBody));
    this.#complete();
  }

  /**
   * After `Expect: 100-continue` without a 100, the client may or may not send the body: the start of its next
   * request is unknown.
   */
  #mayKeepAlive(): boolean {
    const { draining, refusalError } = this.#connection;
    const bodyUnclear = expectsContinue(this.#request) && !this.#continueSent;
    return (
      this.#request.keepAlive && !this.closesAfter && !draining && refusalError === undefined && !bodyUnclear
    );
  }

  #writePending(): void {
    const { socket } = this.#connection;
    const head = this.#head;
    const held = this.#held;
    this.#head = undefined;
    this.#held = undefined;
    if (head !== undefined) this.begun = true;
    if (held === undefined) {
      if (head !== undefined) this.#write(head);
    } else if (head !== undefined && !this.#chunked && held.length <= MAX_JOINED_BYTES) {
      socket.write(join(head, held));
    } else {
      socket.cork();
      if (head !== undefined) this.#write(head);
      if (this.#chunked) this.#write(`${held.length.toString(16)}\r\n`);
      socket.write(held);
      if (this.#chunked) this.#write('\r\n');
      socket.uncork();
    }
  }

  #write(text: string): void {
    this.#connection.socket.write(text, 'latin1');
  }

  #complete(): void {
    this.completed = true;
    this.#onComplete();
  }
}

function join(head: string, body: Buffer): Buffer {
  const bytes = Buffer.allocUnsafe(head.length + body.length);
  bytes.write(head, 'latin1');
  body.copy(bytes, head.length);
  return bytes;
}

export function formatResponseHead(head: ResponseHead, fields: readonly HeaderField[]): string {
  return `HTTP/1.1 ${head.status} ${head.reason}\r\n${formatFields(fields)}\r\n`;
}

/** Some clients would wait for a body that cannot come (RFC 9110 §8.6). */
function withoutLength(fields: readonly HeaderField[]): HeaderField[] {
  return fields.filter(([name]) => name.toLowerCase() !== 'content-length');
}

/**
 * Limits how many parts wait in a socket: even one of one byte costs some hundred bytes of memory. With only the
 * socket's limit in bytes, a peer that sends single bytes could occupy 20 MiB.
 */
export class PartLimit {
  readonly #socket: Socket;
  readonly #onWritten: () => void;
  #parts = 0;

  constructor(socket: Socket, onWritten: () => void) {
    this.#socket = socket;
    this.#onWritten = onWritten;
  }

  /**
   * Call it after each part. @returns false if too many parts wait, until `onWritten`, or too many bytes, until the
   * socket's 'drain'.
   */
  mayWrite(): boolean {
    const socket = this.#socket;
    if (socket.writableLength === 0) {
      this.#parts = 0;
      return true;
    }
    this.#parts += 1;
    if (this.#parts === MAX_PARTS) {
      socket.write(NO_BYTES, (error) => {
        this.#parts = 0;
        if (error === null || error === undefined) this.#onWritten();
      });
    }
    return this.#parts < MAX_PARTS && !socket.writableNeedDrain;
  }
}
