/**
 * Parses one HTTP/1 response, split anywhere, and removes its framing. As strict as llhttp in its default mode: it
 * rejects a bare LF, a folded line, two lengths and other transfer codings. It repairs one thing: white space before
 * a colon, as a proxy must (RFC 9112 §5.1).
 */
import { NoriaError } from '../../core/faults.ts';
import { BodyReader, type BodyRules } from './body.ts';
import { type Framing, type HeaderField, parseFieldLines, responseFraming } from './header-fields.ts';

export interface ResponseHead {
  readonly status: number;
  readonly reason: string;
  readonly minorVersion: 0 | 1;
  readonly fields: readonly HeaderField[];
}

export type ResponsePart =
  /** The head of a 1xx response other than 101. */
  | { readonly kind: 'interim'; readonly head: ResponseHead }
  /** Of the final response, or of a 101, after which `rest` has the first bytes of the new protocol. */
  | { readonly kind: 'head'; readonly head: ResponseHead; readonly framing: Framing }
  | { readonly kind: 'data'; readonly chunk: Buffer }
  | { readonly kind: 'complete'; readonly trailers: readonly HeaderField[] };

const MAX_BLOCK_BYTES = 64 * 1024;
/** No real service needs as many; without a maximum, the client could wait forever. */
const MAX_INTERIM_RESPONSES = 32;
const SWITCHING_PROTOCOLS = 101;

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: ([\t\x20-\x7e\x80-\xff]*))?\r\n/;
const NO_BYTES = Buffer.alloc(0);
const BODY_RULES: BodyRules = { maxTrailerBytes: MAX_BLOCK_BYTES, fieldSyntax: 'response', invalid };

/** `push` received bytes, call `next` until it returns no part, and `finish` when the connection has ended. */
export class ResponseReader {
  readonly #method: string;
  #body: BodyReader | undefined;
  #completed = false;
  /** After a 101, bytes of the new protocol; after any other response, a protocol error of the member. */
  rest: Buffer = NO_BYTES;
  #interimCount = 0;

  constructor(method: string) {
    this.#method = method;
  }

  push(chunk: Buffer): void {
    this.rest = this.rest.length === 0 ? chunk : Buffer.concat([this.rest, chunk]);
  }

  /** @throws `member-protocol` if the bytes are not a valid and unambiguous HTTP response. */
  next(): ResponsePart | undefined {
    if (this.#completed) return undefined;
    const body = this.#body;
    if (body === undefined) return this.rest.length === 0 ? undefined : this.#readHead();
    if (!body.complete && this.rest.length > 0) {
      const chunk = body.decode(this.rest);
      this.rest = body.rest;
      if (chunk.length > 0) return { kind: 'data', chunk };
    }
    return body.complete ? this.#complete(body) : undefined;
  }

  /** @throws `member-closed` if the response is incomplete. */
  finish(): ResponsePart {
    if (this.#body?.finish() === true) return this.#complete(this.#body);
    throw new NoriaError('member-closed', 'the response is incomplete: the connection ended');
  }

  #readHead(): ResponsePart | undefined {
    const text = this.#takeHead();
    if (text === undefined) {
      // Throws as soon as the bytes cannot become a status line.
      if (!'HTTP/1.'.startsWith(this.rest.toString('latin1', 0, 7)))
        throw invalid('the response is not HTTP/1');
      return undefined;
    }
    const head = parseHead(text);
    if (head.status < 200 && head.status !== SWITCHING_PROTOCOLS) {
      this.#interimCount += 1;
      if (this.#interimCount > MAX_INTERIM_RESPONSES) {
        throw invalid(`more than ${MAX_INTERIM_RESPONSES} interim responses`);
      }
      return { kind: 'interim', head };
    }
    const framing = responseFraming(this.#method, head.status, head.fields, head.minorVersion);
    if (framing instanceof NoriaError) throw invalid(framing.message);
    this.#body = new BodyReader(framing, BODY_RULES);
    return { kind: 'head', head, framing };
  }

  #complete({ trailers }: BodyReader): ResponsePart {
    this.#completed = true;
    return { kind: 'complete', trailers };
  }

  /** Takes the lines up to the empty line, each with its CR LF; undefined while they are incomplete. */
  #takeHead(): string | undefined {
    const bytes = this.rest;
    const end = bytes.indexOf('\r\n\r\n', 0, 'latin1');
    if ((end < 0 ? bytes.length : end) > MAX_BLOCK_BYTES) {
      throw invalid(`the head is longer than ${MAX_BLOCK_BYTES} bytes`);
    }
    if (end < 0) return undefined;
    this.rest = bytes.length === end + 4 ? NO_BYTES : bytes.subarray(end + 4);
    return bytes.toString('latin1', 0, end + 2);
  }
}

function parseHead(text: string): ResponseHead {
  const [statusLine = '', minor, status, reason = ''] = STATUS_LINE.exec(text) ?? [];
  if (status === undefined) throw invalid('the status line is malformed');
  const fields = parseFieldLines(text, statusLine.length, 'response');
  if (fields === undefined) throw invalid('a header line is malformed');
  return { status: Number(status), reason, minorVersion: minor === '0' ? 0 : 1, fields };
}

function invalid(why: string): NoriaError {
  return new NoriaError('member-protocol', `invalid HTTP response: ${why}`);
}
