/**
 * The body of a client's request on its way to a member. Keeps the beginning of the body, so that a short one can be sent again
 * through another member.
 *
 * Reads from the client only while an exchange takes the body, and no faster than the member reads.
 */
import type { IncomingMessage } from 'node:http';
import { endToEndTrailers } from './end-to-end.ts';
import type { HttpExchange } from './exchange.ts';
import type { Framing } from './framing.ts';
import { pairFields } from './header-fields.ts';

/** A longer body is sent only once. */
const MAX_KEPT_BYTES = 64 * 1024;

export class RequestBody {
  readonly #request: IncomingMessage;
  readonly #onProgress: () => void;
  /** Everything read so far; undefined once that is too much. */
  #kept: Buffer[] | undefined = [];
  #keptBytes = 0;
  #complete: boolean;
  #exchange: HttpExchange | undefined;

  /** @param onProgress - called whenever the client has sent something. */
  constructor(request: IncomingMessage, framing: Framing, onProgress: () => void) {
    this.#request = request;
    this.#onProgress = onProgress;
    this.#complete = framing.kind === 'none';
    if (this.#complete) return;
    request.on('data', this.#onData).on('end', this.#onEnd);
    request.pause();
  }

  /** Whether the whole body can be sent to another exchange. */
  get replayable(): boolean {
    return this.#kept !== undefined;
  }

  /** Sends the body to this exchange from its first byte. */
  sendTo(exchange: HttpExchange): void {
    this.#exchange = exchange;
    const writable = (this.#kept ?? []).map((chunk) => exchange.sendBody(chunk)).every(Boolean);
    if (this.#complete) this.#finish(exchange);
    else if (writable) this.#request.resume();
  }

  /** Continues to read, because the member can take more. */
  resume(): void {
    if (this.#exchange !== undefined && !this.#complete) this.#request.resume();
  }

  /** Stops reading from the client until `sendTo` is called again. */
  hold(): void {
    this.#exchange = undefined;
    this.#request.pause();
  }

  /** Detaches from the request, because no further exchange takes the body. The rest of it remains unread. */
  release(): void {
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
    this.#complete = true;
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
