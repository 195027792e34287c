/**
 * The body of a client's request on its way to a member. Keeps the beginning of the body, so that a short one can be sent again
 * through another member.
 *
 * Takes no more than the member accepts: it says whether it wants more, and the reader of the connection waits.
 */
import { endToEndTrailers } from './end-to-end.ts';
import type { HttpExchange } from './exchange.ts';
import { type Framing, isEmptyBody } from './framing.ts';
import type { HeaderField } from './header-fields.ts';

/** A longer body is sent only once. */
const MAX_KEPT_BYTES = 64 * 1024;
/** More parts are merged: a buffer of one byte costs some hundred bytes of memory. */
const MAX_KEPT_PARTS = 16;

export class RequestBody {
  readonly #onWantsMore: () => void;
  /** Everything read so far, for a retry; undefined once an exchange has got more than `MAX_KEPT_BYTES`. */
  #kept: Buffer[] | undefined = [];
  #keptBytes = 0;
  #trailers: readonly HeaderField[] | undefined;
  #exchange: HttpExchange | undefined;
  /** The member cannot take more for now. */
  #blocked = false;
  #released = false;

  /** @param onWantsMore - called whenever `wantsMore` becomes true. */
  constructor(framing: Framing, onWantsMore: () => void) {
    this.#onWantsMore = onWantsMore;
    if (isEmptyBody(framing)) this.#trailers = [];
  }

  /** False: the next part should not be read from the client yet. */
  get wantsMore(): boolean {
    if (this.#released) return true;
    return this.#exchange === undefined ? this.#keptBytes < MAX_KEPT_BYTES : !this.#blocked;
  }

  /** Whether the client has sent all of it. */
  get complete(): boolean {
    return this.#trailers !== undefined;
  }

  /** Whether the whole body can be sent to another exchange. */
  get replayable(): boolean {
    return this.#kept !== undefined;
  }

  /** The next part of the body. After `release` it is discarded. */
  add(chunk: Buffer): void {
    if (this.#released) return;
    this.#keptBytes += chunk.length;
    if (this.#kept?.push(chunk) === MAX_KEPT_PARTS) this.#kept = [Buffer.concat(this.#kept)];
    if (this.#exchange === undefined) return;
    this.#blocked = !this.#exchange.sendBody(chunk);
    this.#dropIfLong();
  }

  /** The body is complete. */
  end(trailers: readonly HeaderField[]): void {
    this.#trailers = endToEndTrailers(trailers);
    if (!this.#released) this.#exchange?.finishBody(this.#trailers);
  }

  /** Sends the body to this exchange from its first byte. */
  sendTo(exchange: HttpExchange): void {
    this.#exchange = exchange;
    this.#blocked = !(this.#kept ?? []).map((chunk) => exchange.sendBody(chunk)).every(Boolean);
    this.#dropIfLong();
    if (this.#trailers !== undefined) exchange.finishBody(this.#trailers);
    else if (!this.#blocked) this.#onWantsMore();
  }

  /** The member can take more. */
  resume(): void {
    this.#blocked = false;
    if (this.#exchange !== undefined) this.#onWantsMore();
  }

  /** Keeps what comes until `sendTo` is called again. */
  hold(): void {
    this.#exchange = undefined;
  }

  /** No further exchange takes the body. The rest of it is discarded. */
  release(): void {
    this.#exchange = undefined;
    this.#kept = undefined;
    this.#released = true;
    this.#onWantsMore();
  }

  #dropIfLong(): void {
    if (this.#keptBytes > MAX_KEPT_BYTES) this.#kept = undefined;
  }
}
