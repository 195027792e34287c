/**
 * Limits how many parts wait on a socket to be written. A part of one byte costs some hundred bytes of memory, so the limit in
 * bytes of the socket alone would let a peer that sends single bytes take 20 MiB.
 */
import type { Socket } from 'node:net';

const MAX_PARTS = 64;
const NOTHING = Buffer.alloc(0);

export class PartLimit {
  readonly #socket: Socket;
  readonly #onWritten: () => void;
  #parts = 0;

  /** @param onWritten - called after `mayWrite` has returned false because of the number of parts, when they are written. */
  constructor(socket: Socket, onWritten: () => void) {
    this.#socket = socket;
    this.#onWritten = onWritten;
  }

  /** Call it after each part. @returns false: wait for `onWritten` or for the socket's 'drain'. */
  mayWrite(): boolean {
    const socket = this.#socket;
    if (socket.writableLength === 0) {
      this.#parts = 0;
      return true;
    }
    this.#parts += 1;
    if (this.#parts === MAX_PARTS) {
      socket.write(NOTHING, (error) => {
        this.#parts = 0;
        if (error === null || error === undefined) this.#onWritten();
      });
    }
    return this.#parts < MAX_PARTS && !socket.writableNeedDrain;
  }
}
