/**
 * Reads the first bytes of a connection in the order in which they are wanted; what is not taken stays in the socket.
 */
import { once } from 'node:events';
import type { Socket } from 'node:net';

/** The other side ended before it had sent what was waited for, or sent too much. */
export class HandshakeError extends Error {
  override readonly name = 'HandshakeEnded';
}

export class SocketReader {
  readonly #socket: Socket;

  constructor(socket: Socket) {
    this.#socket = socket;
  }

  /** The next `count` bytes. @throws HandshakeEnded */
  take(count: number): Promise<Buffer> {
    return this.#collect((seen) => (seen.length >= count ? count : undefined));
  }

  async byte(): Promise<number> {
    return (await this.take(1)).readUInt8(0);
  }

  /** Everything up to and with `mark`. @throws HandshakeEnded also when it is not among the first `limit` bytes. */
  takeThrough(mark: string, limit: number): Promise<Buffer> {
    return this.#collect((seen) => {
      const at = seen.indexOf(mark);
      if (at < 0 && seen.length > limit) throw new HandshakeError(`no end within ${limit} bytes`);
      return at < 0 ? undefined : at + mark.length;
    });
  }

  /** Takes bytes until `endOf` tells how many of them are wanted; gives the others back to the socket. */
  async #collect(endOf: (seen: Buffer) => number | undefined): Promise<Buffer> {
    let seen = Buffer.alloc(0);
    for (;;) {
      const end = endOf(seen);
      if (end !== undefined) {
        if (end < seen.length) this.#socket.unshift(seen.subarray(end));
        return seen.subarray(0, end);
      }
      // All that there is: a socket that holds less than what is asked for says `readable` again and again.
      const chunk: Buffer | null = this.#socket.read();
      if (chunk === null) await this.#more();
      else seen = Buffer.concat([seen, chunk]);
    }
  }

  /** Returns once something can be read, without taking it. */
  async some(): Promise<void> {
    if (this.#socket.readableLength === 0) await this.#more();
  }

  async #more(): Promise<void> {
    const socket = this.#socket;
    if (socket.destroyed || socket.readableEnded) throw new HandshakeError('the client left');
    const over = new AbortController();
    const { signal } = over;
    try {
      await Promise.race([
        once(socket, 'readable', { signal }),
        once(socket, 'end', { signal }),
        once(socket, 'close', { signal }),
      ]);
    } finally {
      over.abort();
    }
  }
}
