/**
 * Passes the body of a client's request to a member. Keeps the start of the body, so that a short body can be sent
 * again through another member. While the member takes no more data, `wantsMore` is false and http-connection.ts reads
 * no more of the body.
 */
import { endToEndTrailers } from './end-to-end.ts';
import type { HttpExchange } from './exchange.ts';
import { type Framing, isEmptyBody } from './framing.ts';
import type { HeaderField } from './header-fields.ts';

/** The maximum size of a body that can be sent again. */
const MAX_KEPT_BYTES = 64 * 1024;
/**
 * When this number of parts are kept, they are merged into one part, because even a buffer of one byte costs some
 * hundred bytes of memory.
 */
const MAX_KEPT_PARTS = 16;

export class RequestBody {
  readonly #onWantsMore: () => void;
  /**
   * All parts so far, for a retry. Undefined after an exchange has received more than MAX_KEPT_BYTES: such a body is
   * never sent again.
   */
  #kept: Buffer[] | undefined = [];
  #keptBytes = 0;
  #trailers: readonly HeaderField[] | undefined;
  #exchange: HttpExchange | undefined;
  #blocked = false;
  #released = false;

  /** @param onWantsMore - called whenever `wantsMore` becomes true. */
  constructor(framing: Framing, onWantsMore: () => void) {
    this.#onWantsMore = onWantsMore;
    if (isEmptyBody(framing)) this.#trailers = [];
  }

  /** Whether the next part may be read from the client. */
  get wantsMore(): boolean {
    if (this.#released) return true;
    return this.#exchange === undefined ? this.#keptBytes < MAX_KEPT_BYTES : !this.#blocked;
  }

  get complete(): boolean {
    return this.#trailers !== undefined;
  }

  /** Whether the whole body can be sent to another exchange. */
  get replayable(): boolean {
    return this.#kept !== undefined;
  }

  /** Adds the next part of the body. Discards it after `release`. */
  add(chunk: Buffer): void {
    if (this.#released) return;
    this.#keptBytes += chunk.length;
    if (this.#kept?.push(chunk) === MAX_KEPT_PARTS) this.#kept = [Buffer.concat(this.#kept)];
    if (this.#exchange === undefined) return;
    this.#blocked = !this.#exchange.sendBody(chunk);
    this.#dropIfLong();
  }

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

  /** Call it when the member can take more data. */
  resume(): void {
    this.#blocked = false;
    if (this.#exchange !== undefined) this.#onWantsMore();
  }

  /** Stops sending the body: keeps its further parts until the next call of `sendTo`. */
  stopSending(): void {
    this.#exchange = undefined;
  }

  /** Discards the rest of the body, because no further exchange will need it. */
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
