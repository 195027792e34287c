/**
 * A socket to a member that reuses its read buffer, where a plain socket allocates 64 KiB for every read.
 *
 * It emits 'data', pauses, resumes and ends like any socket, but `read()` and `for await` get nothing. All tunnels of a
 * dialer read into one shared buffer and emit copies, so an idle tunnel holds no memory. A tunnel that fills the shared
 * buffer reads into a larger private buffer while its transfer rate is high.
 */
import { ReceivingSocket } from './receiving-socket.ts';

/** The read size of a plain socket. */
const SHARED_BYTES = 64 * 1024;
/** Fewer reads and writes per byte than with 64 KiB (docs/performance.md). */
const LARGE_BYTES = 256 * 1024;
/** Large buffers kept for their next use. */
const MAX_SPARE_BUFFERS = 16;

/** The read buffers of all tunnels of one dialer. */
export class ReadMemory {
  /** Its content is copied before anything else runs. */
  readonly shared = Buffer.allocUnsafeSlow(SHARED_BYTES);
  readonly #spare: Buffer[] = [];

  takeLarge(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(LARGE_BYTES);
  }

  /** Nothing may read or write the buffer afterwards. */
  giveBack(buffer: Buffer): void {
    if (this.#spare.length < MAX_SPARE_BUFFERS) this.#spare.push(buffer);
  }
}

export class TunnelSocket extends ReceivingSocket {
  readonly #memory: ReadMemory;
  /** The large buffer while the transfer rate is high. On close it is left to the garbage collector: it may be in use. */
  #large: Buffer | undefined;
  #lendFromBytes = Number.POSITIVE_INFINITY;

  constructor(memory: ReadMemory) {
    super({
      allowHalfOpen: true,
      noDelay: true,
      onread: {
        buffer: () => this.#large ?? memory.shared, // called on connect and after each read
        callback: (byteCount) => this.#onRead(byteCount),
      },
    });
    this.#memory = memory;
  }

  /**
   * From now on chunks of at least `bytes` are lent instead of copied. A lent chunk is valid until the 'data' listener
   * returns or, if the listener paused the socket, until it is resumed.
   */
  lendFrom(bytes: number): void {
    this.#lendFromBytes = bytes;
  }

  /** @returns true: read on. A listener that wants no more has called `pause()`. */
  #onRead(byteCount: number): true {
    const { shared } = this.#memory;
    const large = this.#large;
    if (large === undefined) {
      const full = byteCount === shared.length;
      if (full && this.#lendFromBytes <= LARGE_BYTES) this.#large = this.#memory.takeLarge();
      this.emit('data', Buffer.from(shared.subarray(0, byteCount)));
    } else if (byteCount >= this.#lendFromBytes) {
      this.emit('data', large.subarray(0, byteCount));
    } else {
      const chunk = Buffer.from(large.subarray(0, byteCount));
      this.#large = undefined;
      this.#memory.giveBack(large);
      this.emit('data', chunk);
    }
    return true;
  }
}
