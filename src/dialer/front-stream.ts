/**
 * A stream over a socket to the front proxy, used as the transport of TLS to a member. TLS writes immediately, so this
 * stream delays the bytes until the hop through the front proxy is complete ('connect').
 */
import type { Socket } from 'node:net';
import { Duplex } from 'node:stream';

type Done = (error?: Error | null) => void;

export class FrontStream extends Duplex {
  readonly #raw: Socket;
  #isOpen = false;
  /** The write, or the end of the stream, that waits until the hop is complete. */
  #waiting: (() => void) | undefined;

  constructor(raw: Socket) {
    super({ allowHalfOpen: true });
    this.#raw = raw;
    raw.on('connect', () => this.#onConnect());
    raw.on('close', () => this.destroy(raw.errored ?? undefined));
  }

  override _read(): void {
    if (this.#isOpen) this.#raw.resume();
  }

  override _write(chunk: Buffer, _encoding: BufferEncoding, done: Done): void {
    this.#whenOpen(() => this.#raw.write(chunk, done));
  }

  override _final(done: Done): void {
    this.#whenOpen(() => this.#raw.end(done));
  }

  override _destroy(error: Error | null, done: Done): void {
    this.#waiting = undefined;
    this.#raw.destroy();
    done(error);
  }

  #whenOpen(then: () => void): void {
    if (this.#isOpen) then();
    else this.#waiting = then;
  }

  #onConnect(): void {
    this.#isOpen = true;
    this.#raw.on('data', (chunk: Buffer) => {
      if (!this.push(chunk)) this.#raw.pause();
    });
    this.#raw.on('end', () => this.push(null));
    this.#waiting?.();
    this.#waiting = undefined;
  }
}
