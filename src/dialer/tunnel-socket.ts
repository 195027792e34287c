/**
 * A socket to a member that reuses its read buffer; a plain socket allocates 64 KiB for every read. It supports 'data',
 * pause, resume and end, but `read()` and `for await` receive nothing.
 *
 * All tunnels of a dialer read into one shared buffer and emit copies, so an idle tunnel has no buffer of its own. A
 * tunnel that fills the shared buffer reads into a larger private buffer while its transfer rate is high.
 */
import { ReceivingSocket } from './receiving-socket.ts';

/** The read size of a plain socket in Node. */
const SHARED_BYTES = 64 * 1024;
/** A buffer of this size needs fewer reads and writes per byte than one of 64 KiB (docs/performance.md). */
const LARGE_BYTES = 256 * 1024;
/** The maximum number of large buffers to keep for reuse. */
const MAX_SPARE_BUFFERS = 16;

/** The read buffers of all tunnels of one dialer. */
export class ReadMemory {
  /** All tunnels share this buffer: each read copies its content before the next read can start. */
  readonly shared = Buffer.allocUnsafeSlow(SHARED_BYTES);
  readonly #spare: Buffer[] = [];

  takeLarge(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(LARGE_BYTES);
  }

  /** Returns a large buffer for reuse. The caller must not use the buffer afterwards. */
  giveBack(buffer: Buffer): void {
    if (this.#spare.length < MAX_SPARE_BUFFERS) this.#spare.push(buffer);
  }
}

export class TunnelSocket extends ReceivingSocket {
  readonly #memory: ReadMemory;
  /**
   * The large buffer, present while the transfer rate is high. When the socket closes, the buffer is not reused,
   * because it may still be in use.
   */
  #large: Buffer | undefined;
  #lendFromBytes = Number.POSITIVE_INFINITY;

  constructor(memory: ReadMemory) {
    super({
      allowHalfOpen: true,
      noDelay: true,
      onread: {
        buffer: () => this.#large ?? memory.shared, // Node calls this on connect and after each read
        callback: (byteCount) => this.#onRead(byteCount),
      },
    });
    this.#memory = memory;
  }

  /**
   * From now on, the socket emits chunks of at least `bytes` without copying them. Such a chunk is valid until the
   * 'data' listener returns or, if the listener has paused the socket, until `resume`.
   */
  lendFrom(bytes: number): void {
    this.#lendFromBytes = bytes;
  }

  /** @returns true, so that Node continues to read. To stop, a listener calls `pause()`. */
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
