/**
 * Limits how many parts wait in a socket: even one of one byte costs some hundred bytes of memory. With only the
 * socket's limit in bytes, a peer that sends single bytes could occupy 20 MiB.
 */
import type { Socket } from 'node:net';

const MAX_PARTS = 64;
const NO_BYTES = Buffer.alloc(0);

export class PartLimit {
  readonly #socket: Socket;
  readonly #onWritten: () => void;
  #parts = 0;

  /**
   * `mayWrite` returns false if too many parts wait, until `onWritten`, or too many bytes, until the socket's
   * 'drain'.
   */
  constructor(socket: Socket, onWritten: () => void) {
    this.#socket = socket;
    this.#onWritten = onWritten;
  }

  /** Call it after each part. @returns false if the caller must wait. */
  mayWrite(): boolean {
    const socket = this.#socket;
    if (socket.writableLength === 0) {
      this.#parts = 0;
      return true;
    }
    this.#parts += 1;
    if (this.#parts === MAX_PARTS) {
      socket.write(NO_BYTES, (error) => {
        this.#parts = 0;
        if (error === null || error === undefined) this.#onWritten();
      });
    }
    return this.#parts < MAX_PARTS && !socket.writableNeedDrain;
  }
}
