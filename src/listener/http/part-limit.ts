/**
 * Limits how many parts wait to be written to a socket. Even a part of one byte costs some hundred bytes of memory.
 * With only the socket's limit in bytes, a peer that sends single bytes could occupy 20 MiB.
 */
import type { Socket } from 'node:net';

const MAX_PARTS = 64;
const NO_BYTES = Buffer.alloc(0);

export class PartLimit {
  readonly #socket: Socket;
  readonly #onWritten: () => void;
  #parts = 0;

  /**
   * `mayWrite` returns false for one of two reasons. If too many parts wait, `onWritten` is called when they have been
   * written. If too many bytes wait, the socket emits 'drain' when they have been written.
   */
  constructor(socket: Socket, onWritten: () => void) {
    this.#socket = socket;
    this.#onWritten = onWritten;
  }

  /**
   * Call it after each part.
   * @returns false if the caller must wait for `onWritten` or the socket's 'drain' before it writes the next part.
   */
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
