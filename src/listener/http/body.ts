/**
 * The body of an HTTP/1 message without its framing and chunk extensions (RFC 9112 §7.1). The data of one read is one
 * buffer, so a peer that sends chunks of one byte causes one write per read. Strict: lines end in CR LF, and sizes are
 * hexadecimal digits.
 */
import type { NoriaError } from '../../core/faults.ts';
import {
  type FieldSyntax,
  type Framing,
  type HeaderField,
  isEmptyBody,
  parseFieldLines,
} from './header-fields.ts';

export interface BodyRules {
  readonly maxTrailerBytes: number;
  readonly fieldSyntax: FieldSyntax;
  readonly invalid: (why: string) => NoriaError;
}

const MAX_EXTENSION_BYTES = 4 * 1024;
/** A number with 13 hexadecimal digits is always a safe integer. */
const MAX_SIZE_DIGITS = 13;
/** If data fills less than half of a longer read, it is copied, so that the large read buffer can be freed. */
const MAX_SPARSE_BYTES = 4 * 1024;
/** For fewer bytes, moving them one by one is faster than `copyWithin`. */
const MIN_BLOCK_COPY_BYTES = 32;
const NO_BYTES: Buffer = Buffer.alloc(0);
const TAB = 0x09;
const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const DOUBLE_QUOTE = 0x22;
const SEMICOLON = 0x3b;
const BACKSLASH = 0x5c;
const DELETE = 0x7f;

/** What the next byte belongs to. Small integers, because a hostile body may change the state with every byte. */
const SIZE_START = 0;
const SIZE = 1;
const EXTENSION = 2;
/** Inside a quoted value of an extension, and after a backslash in it. The value must end before the line does. */
const QUOTED = 3;
const ESCAPED = 4;
const SIZE_LF = 5;
const CHUNK = 6;
const CHUNK_CR = 7;
const CHUNK_LF = 8;
const TRAILERS = 9;
const LENGTH = 10;
const UNTIL_CLOSE = 11;
const COMPLETE = 12;

const FIRST_STATE: Readonly<Record<Framing['kind'], number>> = {
  none: COMPLETE,
  length: LENGTH,
  chunked: SIZE_START,
  'until-close': UNTIL_CLOSE,
};

export class BodyReader {
  readonly #rules: BodyRules;
  #state: number;
  /** Of the body or of the current chunk. While a chunk size is parsed: the value of its digits so far. */
  #leftBytes = 0;
  /** Digits of the chunk size, or bytes of chunk extensions, so far. */
  #lineBytes = 0;
  #trailerBytes: Buffer = NO_BYTES;
  trailers: readonly HeaderField[] = [];
  rest: Buffer = NO_BYTES;

  constructor(framing: Framing, rules: BodyRules) {
    this.#rules = rules;
    this.#state = isEmptyBody(framing) ? COMPLETE : FIRST_STATE[framing.kind];
    if (framing.kind === 'length') this.#leftBytes = framing.bytes;
  }

  get complete(): boolean {
    return this.#state === COMPLETE;
  }

  finish(): boolean {
    if (this.#state === UNTIL_CLOSE) this.#state = COMPLETE;
    return this.complete;
  }

  /**
   * @param bytes - modified: the data of several chunks is moved together. @throws the error that
   * `invalid` creates.
   */
  decode(bytes: Buffer): Buffer {
    switch (this.#state) {
      case COMPLETE:
        this.rest = bytes;
        return NO_BYTES;
      case UNTIL_CLOSE:
        return bytes;
      case LENGTH:
        return this.#decodeLength(bytes);
      default:
        return this.#decodeChunks(bytes);
    }
  }

  #decodeLength(bytes: Buffer): Buffer {
    if (bytes.length < this.#leftBytes) {
      this.#leftBytes -= bytes.length;
      return bytes;
    }
    const data = bytes.subarray(0, this.#leftBytes);
    this.#completeAt(bytes, this.#leftBytes);
    return data;
  }

  #decodeChunks(bytes: Buffer): Buffer {
    const { length } = bytes;
    let start = 0;
    let end = 0;
    let at = this.#readFraming(bytes, 0);
    while (at < length && this.#state === CHUNK) {
      const count = Math.min(this.#leftBytes, length - at);
      if (end === start) {
        start = at;
        end = at;
      }
      move(bytes, at, end, count);
      end += count;
      at += count;
      this.#leftBytes -= count;
      if (this.#leftBytes === 0) {
        this.#state = CHUNK_CR;
        at = this.#readFraming(bytes, at);
      }
    }
    if (at < length) this.#readTrailers(bytes.subarray(at));
    const data = bytes.subarray(start, end);
    return length > MAX_SPARSE_BYTES && data.length < length / 2 ? compact(data) : data;
  }

  /**
   * Reads framing up to the next data, trailers or the end of `bytes`. Local variables, because a body of tiny chunks
   * is cheap to send and expensive to read. @returns the offset of the first byte not read.
   */
  #readFraming(bytes: Buffer, from: number): number {
    let state = this.#state;
    let left = this.#leftBytes;
    let line = this.#lineBytes;
    let at = from;
    for (; at < bytes.length && state !== CHUNK && state < TRAILERS; at += 1) {
      const byte = bytes[at] ?? 0;
      if (state <= SIZE) {
        const digit = hexDigit(byte);
        if (digit >= 0 && line < MAX_SIZE_DIGITS) {
          left = left * 16 + digit;
          line += 1;
          state = SIZE;
        } else if (state === SIZE && (byte === CR || byte === SEMICOLON)) {
          state = byte === CR ? SIZE_LF : EXTENSION;
          line = 0;
        } else {
          throw this.#malformedSize();
        }
      } else if (state <= ESCAPED) {
        line += 1;
        if (byte === CR && state === EXTENSION) state = SIZE_LF;
        else {
          this.#checkExtension(byte, line);
          if (state === ESCAPED) state = QUOTED;
          else if (byte === DOUBLE_QUOTE) state = state === QUOTED ? EXTENSION : QUOTED;
          else if (byte === BACKSLASH && state === QUOTED) state = ESCAPED;
        }
      } else if (state === SIZE_LF) {
        if (byte !== LF) throw this.#malformedSize();
        state = left === 0 ? TRAILERS : CHUNK;
        line = 0;
      } else {
        if (byte !== (state === CHUNK_CR ? CR : LF))
          throw this.#rules.invalid('a chunk is longer than its announced size');
        state = state === CHUNK_CR ? CHUNK_LF : SIZE_START;
      }
    }
    this.#state = state;
    this.#leftBytes = left;
    this.#lineBytes = line;
    return at;
  }

  #checkExtension(byte: number, lineBytes: number): void {
    if ((byte < SPACE && byte !== TAB) || byte === DELETE) throw this.#malformedSize();
    if (lineBytes <= MAX_EXTENSION_BYTES) return;
    throw this.#rules.invalid(`the extensions of a chunk are longer than ${MAX_EXTENSION_BYTES} bytes`);
  }

  #readTrailers(bytes: Buffer): void {
    const earlierBytes = this.#trailerBytes.length;
    const all = earlierBytes === 0 ? bytes : Buffer.concat([this.#trailerBytes, bytes]);
    if (all.toString('latin1', 0, 2) === '\r\n') {
      this.#completeAt(all, 2);
      return;
    }
    const { maxTrailerBytes, fieldSyntax, invalid } = this.#rules;
    const end = all.indexOf('\r\n\r\n', Math.max(0, earlierBytes - 3), 'latin1');
    if ((end < 0 ? all.length : end) > maxTrailerBytes) {
      throw invalid(`the trailer section is longer than ${maxTrailerBytes} bytes`);
    }
    if (end < 0) {
      this.#trailerBytes = Buffer.from(all);
      return;
    }
    const fields = parseFieldLines(all.toString('latin1', 0, end + 2), 0, fieldSyntax);
    if (fields === undefined) throw invalid('a header line is malformed');
    this.trailers = fields;
    this.#completeAt(all, end + 4);
  }

  #completeAt(bytes: Buffer, end: number): void {
    this.#state = COMPLETE;
    this.#trailerBytes = NO_BYTES;
    this.rest = bytes.length === end ? NO_BYTES : bytes.subarray(end);
  }

  #malformedSize(): NoriaError {
    return this.#rules.invalid('a chunk size is malformed');
  }
}

function compact(data: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(data.length);
  data.copy(copy);
  return copy;
}

function move(bytes: Buffer, from: number, to: number, count: number): void {
  if (from === to) return;
  if (count >= MIN_BLOCK_COPY_BYTES) {
    bytes.copyWithin(to, from, from + count);
    return;
  }
  for (let offset = 0; offset < count; offset += 1) bytes[to + offset] = bytes[from + offset] ?? 0;
}

function hexDigit(byte: number): number {
  if (byte >= 0x30 && byte <= 0x39) return byte - 0x30;
  const lower = byte | 0x20;
  return lower >= 0x61 && lower <= 0x66 ? lower - 0x57 : -1;
}
