/**
 * The body of a client's request on its way to a member, the beginning of it kept so that it can be sent again.
 *
 * Reads the client only while an exchange takes it, as fast as the member reads.
 */
import type { IncomingMessage } from 'node:http';
import type { HttpExchange } from './exchange.ts';
import { endToEndTrailers, type Framing, pairFields } from './header-fields.ts';

/** What is kept of a body; a longer one is sent once and cannot be sent again. */
const MAX_KEPT_BYTES = 64 * 1024;

/** One request's body, for as many exchanges as its beginning is kept for. */
export class RequestBody {
  readonly #request: IncomingMessage;
  readonly #onProgress: () => void;
  /** All that has been read, while that is little. */
  #kept: Buffer[] | undefined = [];
  #keptBytes = 0;
  #whole: boolean;
  #exchange: HttpExchange | undefined;

  /** @param onProgress - called whenever the client sent something. */
  constructor(request: IncomingMessage, framing: Framing, onProgress: () => void) {
    this.#request = request;
    this.#onProgress = onProgress;
    this.#whole = framing.kind === 'none';
    if (this.#whole) return;
    request.on('data', this.#onData).on('end', this.#onEnd);
    request.pause();
  }

  /** Whether another exchange can be given all of it. */
  get replayable(): boolean {
    return this.#kept !== undefined;
  }

  /** Sends it all to this exchange, from its first byte, as it comes. */
  sendTo(exchange: HttpExchange): void {
    this.#exchange = exchange;
    const writable = (this.#kept ?? []).map((chunk) => exchange.sendBody(chunk)).every(Boolean);
    if (this.#whole) this.#finish(exchange);
    else if (writable) this.#request.resume();
  }

  /** The member takes more again. */
  resume(): void {
    if (this.#exchange !== undefined && !this.#whole) this.#request.resume();
  }

  /** Stops reading the client until another exchange takes it. */
  hold(): void {
    this.#exchange = undefined;
    this.#request.pause();
  }

  /** No exchange will take it: what is left of it is another's to read away. */
  letGo(): void {
    this.#exchange = undefined;
    this.#kept = undefined;
    this.#request.off('data', this.#onData).off('end', this.#onEnd);
  }

  readonly #onData = (chunk: Buffer): void => {
    this.#onProgress();
    this.#keep(chunk);
    if (this.#exchange?.sendBody(chunk) === false) this.#request.pause();
  };

  readonly #onEnd = (): void => {
    this.#whole = true;
    if (this.#exchange !== undefined) this.#finish(this.#exchange);
  };

  #keep(chunk: Buffer): void {
    this.#keptBytes += chunk.length;
    if (this.#keptBytes > MAX_KEPT_BYTES) this.#kept = undefined;
    this.#kept?.push(chunk);
  }

  #finish(exchange: HttpExchange): void {
    exchange.finishBody(endToEndTrailers(pairFields(this.#request.rawTrailers)));
  }
}
