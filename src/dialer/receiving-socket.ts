/**
 * A socket to a member that still delivers received bytes after a failed write.
 *
 * A member may answer before it has read the whole request. When such a member closes its socket, the connection is
 * reset. The next write to a plain socket would then fail and destroy the socket, although the answer is still unread
 * in the kernel. A ReceivingSocket reads to the end instead, and discards all further writes.
 */
import { Socket } from 'node:net';

/** Error codes of a write after the member has closed or reset the connection. */
const RESET_CODES = new Set<unknown>(['EPIPE', 'ECONNRESET', 'ECONNABORTED']);

type Done = (error?: Error | null) => void;

export class ReceivingSocket extends Socket {
  #failedWrite: Error | undefined;
  /** The callback of the current write. */
  #done: Done = () => {};

  /**
   * The error of the first write that failed because of a reset; undefined if there was none. After such an error, an
   * 'end' does not prove that the member's data is complete.
   */
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

/** Whether a failed write has shown that the member reset the connection. */
export function hasFailedWrite(socket: Socket): boolean {
  return socket instanceof ReceivingSocket && socket.failedWrite !== undefined;
}
