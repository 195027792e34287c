/**
 * Reads one HTTP/1 answer from the bytes of a member's or target's connection, and takes its framing off.
 *
 * A pure byte machine, fed chunks that are split anywhere, and asked for parts. Strict as llhttp is in its default mode, and where RFC 9112
 * lets a recipient repair something, this refuses: a bare LF, white space before a colon, a folded line, two lengths,
 * a coding other than chunked. Nothing is copied of a body; chunk extensions are dropped.
 */
import { NoriaError } from '../../core/faults.ts';
import { parseFieldLines } from './field-lines.ts';
import { type Framing, type HeaderField, responseFraming } from './header-fields.ts';

/** An answer's first part, decoded. */
export interface ResponseHead {
  /** 100 to 999. */
  readonly status: number;
  /** As it came, Latin-1; may be empty. */
  readonly reason: string;
  readonly minorVersion: 0 | 1;
  readonly fields: readonly HeaderField[];
}

/** What an answer is made of, in the order of its bytes. */
export type ResponsePart =
  /** An interim answer: any 1xx but 101. */
  | { readonly kind: 'information'; readonly head: ResponseHead }
  /** `body`: how it was framed. After a 101, `rest` is the new protocol's. */
  | { readonly kind: 'head'; readonly head: ResponseHead; readonly body: Framing }
  | { readonly kind: 'data'; readonly chunk: Buffer }
  | { readonly kind: 'complete'; readonly trailers: readonly HeaderField[] };

/** A head, or a trailer section. */
const MAX_BLOCK_BYTES = 64 * 1024;
/** A chunk's size line, extensions included. */
const MAX_SIZE_LINE_BYTES = 4 * 1024;
/** Enough for any sane use; an endless run of interim answers would hold the client for nothing. */
const MAX_INTERIM_ANSWERS = 32;
const SWITCHING_PROTOCOLS = 101;
const CR = 0x0d;
const LF = 0x0a;

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: ([\t\x20-\x7e\x80-\xff]*))?\r\n/;
/** 13 digits stay a safe integer. RFC 9112 §7.1.1: extensions follow, and are ignored. */
const SIZE_LINE = /^([0-9A-Fa-f]{1,13})(?:;[\t\x20-\x7e\x80-\xff]*)?$/;

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

/** Reads one answer: `push` what comes, take parts with `next` until there is none, `finish` at the end of the connection. */
export class ResponseReader {
  readonly #method: string;
  #state: State = { name: 'head' };
  /** What has come and not been read: whole parts, or the beginning of a line or head. */
  #bytes: Buffer = NOTHING;
  #interimAnswers = 0;

  /** @param method - of the request: an answer to HEAD has no body. */
  constructor(method: string) {
    this.#method = method;
  }

  /** What came behind the answer: the new protocol's first bytes after a 101, else something that should not be. */
  get rest(): Buffer {
    return this.#bytes;
  }

  /** Takes what has come. The chunk is kept, not copied, until its parts have been taken. */
  push(chunk: Buffer): void {
    this.#bytes = this.#bytes.length === 0 ? chunk : Buffer.concat([this.#bytes, chunk]);
  }

  /**
   * The next part, or undefined when more bytes are needed. Nothing comes after `complete`.
   *
   * @throws NoriaError `member-protocol` when it is no HTTP answer, or one that could be read in two ways.
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
   * The connection has ended: the last part, where the answer's end is the connection's.
   *
   * @throws NoriaError `member-closed` when the answer is not whole.
   */
  finish(): ResponsePart {
    if (this.#state.name !== 'until-close')
      throw new NoriaError('member-closed', 'the answer ended too early');
    return this.#complete([]);
  }

  /** `again`: something was read that is no part of its own. */
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
    const text = this.#takeBlock('its head');
    if (text === undefined) {
      // Nothing that could become a status line: no need to wait for all of it.
      if (!'HTTP/1.'.startsWith(this.#bytes.toString('latin1', 0, 7))) throw bad('it is not HTTP/1');
      return undefined;
    }
    const head = parseHead(text);
    if (head.status < 200 && head.status !== SWITCHING_PROTOCOLS) {
      this.#interimAnswers += 1;
      if (this.#interimAnswers > MAX_INTERIM_ANSWERS) throw bad('it sends interim answers without end');
      return { kind: 'information', head };
    }
    const body = responseFraming(this.#method, head.status, head.fields, head.minorVersion);
    if (body instanceof NoriaError) throw bad(body.message);
    this.#state = stateFor(body);
    return { kind: 'head', head, body };
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
    if (digits === undefined) throw bad('a chunk has no readable size');
    const leftBytes = Number.parseInt(digits, 16);
    this.#state = leftBytes === 0 ? { name: 'trailers' } : { name: 'chunk', leftBytes };
    return 'again';
  }

  #readTrailers(): ResponsePart | undefined {
    if (this.#bytes.toString('latin1', 0, 2) === '\r\n') {
      this.#take(2);
      return this.#complete([]);
    }
    const text = this.#takeBlock('its trailer section');
    return text === undefined ? undefined : this.#complete(parseFields(text, 0));
  }

  #complete(trailers: readonly HeaderField[]): ResponsePart {
    this.#state = { name: 'complete' };
    return { kind: 'complete', trailers };
  }

  /** Lines, each with its end, up to the empty one that ends them, once they are whole. */
  #takeBlock(what: string): string | undefined {
    const end = this.#bytes.indexOf('\r\n\r\n', 0, 'latin1');
    if (end > MAX_BLOCK_BYTES || (end < 0 && this.#bytes.length > MAX_BLOCK_BYTES)) {
      throw bad(`${what} is longer than ${MAX_BLOCK_BYTES} bytes`);
    }
    return end < 0 ? undefined : this.#take(end + 4).toString('latin1', 0, end + 2);
  }

  /** A line ended by CR LF, once it is whole, of at most so many bytes before that. */
  #takeLine(maxBytes: number): string | undefined {
    const end = this.#bytes.indexOf(LF);
    if ((end < 0 ? this.#bytes.length - 1 : end - 1) > maxBytes) throw bad('a line of its body is too long');
    if (end < 0) return undefined;
    if (this.#bytes[end - 1] !== CR) throw bad('a line of its body ends in a bare LF');
    return this.#take(end + 1).toString('latin1', 0, end - 1);
  }

  #take(count: number): Buffer {
    const taken = this.#bytes.subarray(0, count);
    this.#bytes = this.#bytes.length === count ? NOTHING : this.#bytes.subarray(count);
    return taken;
  }
}

function stateFor(body: Framing): State {
  switch (body.kind) {
    case 'none':
      return { name: 'body', leftBytes: 0 };
    case 'length':
      return { name: 'body', leftBytes: body.bytes };
    case 'chunked':
      return { name: 'size' };
    case 'until-close':
      return { name: 'until-close' };
  }
}

function parseHead(text: string): ResponseHead {
  const [statusLine = '', minor, status, reason = ''] = STATUS_LINE.exec(text) ?? [];
  if (status === undefined) throw bad('its status line cannot be read');
  const fields = parseFields(text, statusLine.length);
  return { status: Number(status), reason, minorVersion: minor === '0' ? 0 : 1, fields };
}

function parseFields(text: string, start: number): HeaderField[] {
  const fields = parseFieldLines(text, start);
  if (fields === undefined) throw bad('one of its header lines cannot be read');
  return fields;
}

function bad(why: string): NoriaError {
  return new NoriaError('member-protocol', `the answer breaks the rules of HTTP: ${why}`);
}
