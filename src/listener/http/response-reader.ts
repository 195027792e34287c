/**
 * Parses one HTTP/1 response from the bytes of a member connection, and removes its framing.
 *
 * A pure state machine without I/O. Chunks may be split anywhere; body bytes are not copied; chunk extensions are dropped. As
 * strict as llhttp in its default mode. Where RFC 9112 allows a recipient to repair something, this refuses it: a bare LF, white
 * space before a colon, a folded line, two lengths, a transfer coding other than chunked.
 */
import { NoriaError } from '../../core/faults.ts';
import { type Framing, responseFraming } from './framing.ts';
import { type HeaderField, parseFieldLines } from './header-fields.ts';

/** Status line and fields of a response. */
export interface ResponseHead {
  /** 100 to 999. */
  readonly status: number;
  /** The reason phrase as received, in Latin-1; may be empty. */
  readonly reason: string;
  readonly minorVersion: 0 | 1;
  readonly fields: readonly HeaderField[];
}

/** The parts of a response, in the order of their bytes. */
export type ResponsePart =
  /** Any 1xx response except 101. */
  | { readonly kind: 'interim'; readonly head: ResponseHead }
  /** The final head. After a 101, `rest` belongs to the new protocol. */
  | { readonly kind: 'head'; readonly head: ResponseHead; readonly framing: Framing }
  | { readonly kind: 'data'; readonly chunk: Buffer }
  | { readonly kind: 'complete'; readonly trailers: readonly HeaderField[] };

/** A head, or a trailer section. */
const MAX_BLOCK_BYTES = 64 * 1024;
/** A chunk's size line, extensions included. */
const MAX_SIZE_LINE_BYTES = 4 * 1024;
/** More than any real use needs: otherwise endless interim responses could hold the client forever. */
const MAX_INTERIM_RESPONSES = 32;
const SWITCHING_PROTOCOLS = 101;
const CR = 0x0d;
const LF = 0x0a;

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: ([\t\x20-\x7e\x80-\xff]*))?\r\n/;
/** 13 hexadecimal digits are always a safe integer. Extensions may follow (RFC 9112 §7.1.1). */
const SIZE_LINE = /^([0-9A-Fa-f]{1,13})(?:;[\t\x20-\x7e\x80-\xff]*)?$/;

/** What the next bytes are. */
type State =
  | { readonly name: 'head' }
  | { readonly name: 'body'; leftBytes: number }
  | { readonly name: 'size' }
  | { readonly name: 'chunk'; leftBytes: number }
  | { readonly name: 'chunk-end' }
  | { readonly name: 'trailers' }
  | { readonly name: 'until-close' }
  | { readonly name: 'complete' };

const NOTHING = Buffer.alloc(0);

/** `push` received bytes, call `next` until it returns no part, and `finish` when the connection has ended. */
export class ResponseReader {
  readonly #method: string;
  #state: State = { name: 'head' };
  /** Received and not yet parsed: whole parts, or the beginning of a line or head. */
  #bytes: Buffer = NOTHING;
  #interimCount = 0;

  /** @param method - of the request: a response to HEAD has no body. */
  constructor(method: string) {
    this.#method = method;
  }

  /** The bytes after the response: the first ones of the new protocol after a 101, otherwise a protocol error of the member. */
  get rest(): Buffer {
    return this.#bytes;
  }

  /** The chunk is kept without a copy until `next` has returned its parts. */
  push(chunk: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? chunk : Buffer.concat([this.#bytes, chunk]);
  }

  /**
   * The next part; undefined if more bytes are needed, and after `complete`.
   *
   * @throws NoriaError `member-protocol` if this is not an HTTP response, or an ambiguous one.
   */
  next(): ResponsePart | undefined {
    for (;;) {
      const { name } = this.#state;
      if (name === 'complete') return undefined;
      if (name === 'body' && this.#state.leftBytes === 0) return this.#complete([]);
      if (this.#bytes.length === 0) return undefined;
      const part = this.#read();
      if (part !== 'again') return part;
    }
  }

  /**
   * The connection has ended: returns the last part of a response that ends with its connection.
   *
   * @throws NoriaError `member-closed` if the response is incomplete.
   */
  finish(): ResponsePart {
    if (this.#state.name !== 'until-close')
      throw new NoriaError('member-closed', 'the response is incomplete: the connection ended');
    return this.#complete([]);
  }

  /** `again`: bytes were parsed that are not a part by themselves. */
  #read(): ResponsePart | 'again' | undefined {
    const state = this.#state;
    switch (state.name) {
      case 'head':
        return this.#readHead();
      case 'body':
        return this.#readData(state);
      case 'size':
        return this.#readSize();
      case 'chunk':
        if (state.leftBytes > 0) return this.#readData(state);
        this.#state = { name: 'chunk-end' };
        return 'again';
      case 'chunk-end':
        if (this.#takeLine(0) === undefined) return undefined;
        this.#state = { name: 'size' };
        return 'again';
      case 'trailers':
        return this.#readTrailers();
      case 'until-close':
        return { kind: 'data', chunk: this.#take(this.#bytes.length) };
      case 'complete':
        return undefined;
    }
  }

  #readHead(): ResponsePart | undefined {
    const text = this.#takeBlock('head');
    if (text === undefined) {
      // Fails early when these bytes cannot become a status line.
      if (!'HTTP/1.'.startsWith(this.#bytes.toString('latin1', 0, 7))) throw invalid('it is not HTTP/1');
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
    this.#state = bodyState(framing);
    return { kind: 'head', head, framing };
  }

  #readData(state: { leftBytes: number }): ResponsePart {
    const chunk = this.#take(Math.min(this.#bytes.length, state.leftBytes));
    state.leftBytes -= chunk.length;
    return { kind: 'data', chunk };
  }

  #readSize(): 'again' | undefined {
    const line = this.#takeLine(MAX_SIZE_LINE_BYTES);
    if (line === undefined) return undefined;
    const digits = SIZE_LINE.exec(line)?.[1];
    if (digits === undefined) throw invalid('a chunk size is malformed');
    const leftBytes = Number.parseInt(digits, 16);
    this.#state = leftBytes === 0 ? { name: 'trailers' } : { name: 'chunk', leftBytes };
    return 'again';
  }

  #readTrailers(): ResponsePart | undefined {
    if (this.#bytes.toString('latin1', 0, 2) === '\r\n') {
      this.#take(2);
      return this.#complete([]);
    }
    const text = this.#takeBlock('trailer section');
    return text === undefined ? undefined : this.#complete(parseFields(text, 0));
  }

  #complete(trailers: readonly HeaderField[]): ResponsePart {
    this.#state = { name: 'complete' };
    return { kind: 'complete', trailers };
  }

  /** Takes the lines up to the empty line, each with its CR LF; undefined while they are incomplete. */
  #takeBlock(what: string): string | undefined {
    const end = this.#bytes.indexOf('\r\n\r\n', 0, 'latin1');
    if (end > MAX_BLOCK_BYTES || (end < 0 && this.#bytes.length > MAX_BLOCK_BYTES)) {
      throw invalid(`the ${what} is longer than ${MAX_BLOCK_BYTES} bytes`);
    }
    return end < 0 ? undefined : this.#take(end + 4).toString('latin1', 0, end + 2);
  }

  /** Takes a line of at most `maxBytes` before its CR LF; undefined while it is incomplete. */
  #takeLine(maxBytes: number): string | undefined {
    const end = this.#bytes.indexOf(LF);
    if ((end < 0 ? this.#bytes.length - 1 : end - 1) > maxBytes)
      throw invalid('a line of the chunked body is too long');
    if (end < 0) return undefined;
    if (this.#bytes[end - 1] !== CR) throw invalid('a line of the chunked body ends in a bare LF');
    return this.#take(end + 1).toString('latin1', 0, end - 1);
  }

  #take(count: number): Buffer {
    const taken = this.#bytes.subarray(0, count);
    this.#bytes = this.#bytes.length === count ? NOTHING : this.#bytes.subarray(count);
    return taken;
  }
}

function bodyState(framing: Framing): State {
  switch (framing.kind) {
    case 'none':
      return { name: 'body', leftBytes: 0 };
    case 'length':
      return { name: 'body', leftBytes: framing.bytes };
    case 'chunked':
      return { name: 'size' };
    case 'until-close':
      return { name: 'until-close' };
  }
}

function parseHead(text: string): ResponseHead {
  const [statusLine = '', minor, status, reason = ''] = STATUS_LINE.exec(text) ?? [];
  if (status === undefined) throw invalid('the status line is malformed');
  const fields = parseFields(text, statusLine.length);
  return { status: Number(status), reason, minorVersion: minor === '0' ? 0 : 1, fields };
}

function parseFields(text: string, start: number): HeaderField[] {
  const fields = parseFieldLines(text, start);
  if (fields === undefined) throw invalid('a header line is malformed');
  return fields;
}

function invalid(why: string): NoriaError {
  return new NoriaError('member-protocol', `invalid HTTP response: ${why}`);
}
