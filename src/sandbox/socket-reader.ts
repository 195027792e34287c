/** Reads the first bytes of a connection piece by piece. Bytes that the caller has not taken stay in the socket. */
import { once } from 'node:events';
import type { Socket } from 'node:net';

/** The client disconnected too early, or sent bytes that the protocol does not allow. */
export class HandshakeError extends Error {
  override readonly name = 'HandshakeError';
}

export class SocketReader {
  readonly #socket: Socket;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** Takes the next `count` bytes. @throws HandshakeError */
  take(count: number): Promise<Buffer> {
    return this.#collect((seen) => (seen.length >= count ? count : undefined));
  }

  async byte(): Promise<number> {
    return (await this.take(1)).readUInt8(0);
  }

  /**
   * Takes all bytes up to and including `mark`.
   * @throws HandshakeError also if `mark` is not within the first `limit` bytes.
   */
  takeThrough(mark: string, limit: number): Promise<Buffer> {
    return this.#collect((seen) => {
      const at = seen.indexOf(mark);
      if (at < 0 && seen.length > limit) throw new HandshakeError(`no end within ${limit} bytes`);
      return at < 0 ? undefined : at + mark.length;
    });
  }

  /** Reads until `endOf` returns the number of bytes to take. Puts the other bytes back into the socket. */
  async #collect(endOf: (seen: Buffer) => number | undefined): Promise<Buffer> {
    let seen = Buffer.alloc(0);
    for (;;) {
      const end = endOf(seen);
      if (end !== undefined) {
        if (end < seen.length) this.#socket.unshift(seen.subarray(end));
        return seen.subarray(0, end);
      }
      // Call `read` without a size: with a size, a socket with fewer bytes would emit `readable` again and again.
      const chunk: Buffer | null = this.#socket.read();
      if (chunk === null) await this.#waitForMore();
      else seen = Buffer.concat([seen, chunk]);
    }
  }

  /** Resolves when there are bytes to read. Takes none of them. */
  async waitForBytes(): Promise<void> {
    if (this.#socket.readableLength === 0) await this.#waitForMore();
  }

  async #waitForMore(): Promise<void> {
    const socket = this.#socket;
    if (socket.destroyed || socket.readableEnded) throw new HandshakeError('the client left');
    const finished = new AbortController();
    const { signal } = finished;
    try {
      await Promise.race([
        once(socket, 'readable', { signal }),
        once(socket, 'end', { signal }),
        once(socket, 'close', { signal }),
      ]);
    } finally {
      finished.abort();
    }
  }
}
