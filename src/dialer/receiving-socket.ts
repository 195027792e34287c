/**
 * A socket to a member that still delivers what has arrived when a write fails.
 *
 * A member that answers before it has read everything, and closes, resets the connection. A plain socket is then destroyed by the
 * next write, with the answer unread in the kernel. This one reads on to the end; what is written meanwhile is discarded.
 */
import { Socket } from 'node:net';

/** The other side has closed or reset the connection. */
const RESET_CODES = new Set<unknown>(['EPIPE', 'ECONNRESET', 'ECONNABORTED']);

type Done = (error?: Error | null) => void;

export class ReceivingSocket extends Socket {
  #failedWrite: Error | undefined;
  /** Called when the current write has ended. */
  #done: Done = () => {};

  /** Set once a write has failed: then an 'end' does not mean that the member has sent everything. */
  get failedWrite(): Error | undefined {
    return this.#failedWrite;
  }

  override _write(chunk: unknown, encoding: BufferEncoding, done: Done): void {
    if (this.#failedWrite !== undefined) {
      done();
      return;
    }
    this.#done = done;
    super._write(chunk, encoding, this.#onWritten);
  }

  override _writev(chunks: { chunk: unknown; encoding: BufferEncoding }[], done: Done): void {
    if (this.#failedWrite !== undefined) {
      done();
      return;
    }
    this.#done = done;
    super._writev?.(chunks, this.#onWritten);
  }

  readonly #onWritten: Done = (error) => {
    if (error !== null && error !== undefined && 'code' in error && RESET_CODES.has(error.code)) {
      this.#failedWrite = error;
      this.#done();
    } else {
      this.#done(error);
    }
  };
}

/** Whether the member has reset the connection, as far as a write has shown. */
export function hasFailedWrite(socket: Socket): boolean {
  return socket instanceof ReceivingSocket && socket.failedWrite !== undefined;
}
