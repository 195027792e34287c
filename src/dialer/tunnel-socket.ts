/**
 * A connection to a member that reads into memory which is used again, where a plain socket allocates 64 KiB a read.
 *
 * It emits 'data', pauses, resumes and ends like any socket; only `read()` and `for await` find nothing in it. All
 * tunnels of a dialer read into one buffer and get copies, so that an idle one holds no memory; one that fills it reads
 * into a larger buffer of its own for as long as much arrives.
 */
import { Socket } from 'node:net';

/** What a plain socket reads at most, too. */
const SHARED_BYTES = 64 * 1024;
/** Each read and write moves more: less CPU a byte than with 64 KiB (docs/performance.md). */
const LARGE_BYTES = 256 * 1024;
/** Large buffers that wait for their next use. */
const MOST_SPARE = 16;

/** The memory that the tunnels of one dialer read into. */
export class ReadMemory {
  /** Whatever is read into it is copied before anything else happens. */
  readonly shared = Buffer.allocUnsafeSlow(SHARED_BYTES);
  readonly #spare: Buffer[] = [];

  takeLarge(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(LARGE_BYTES);
  }

  /** Nobody reads from it or writes to it any more. */
  giveBack(buffer: Buffer): void {
    if (this.#spare.length < MOST_SPARE) this.#spare.push(buffer);
  }
}

export class TunnelSocket extends Socket {
  readonly #memory: ReadMemory;
  /** The large buffer, while much arrives. A socket that closes leaves it to the garbage collector: it may be in use. */
  #large: Buffer | undefined;
  #lendFromBytes = Number.POSITIVE_INFINITY;

  constructor(memory: ReadMemory) {
    super({
      allowHalfOpen: true,
      noDelay: true,
      onread: {
        buffer: () => this.#large ?? memory.shared, // asked for once connected, and after each read
        callback: (byteCount) => this.#take(byteCount),
      },
    });
    this.#memory = memory;
  }

  /**
   * From now on chunks of at least so many bytes are lent: such a chunk holds until the listener of 'data' returns, or,
   * when it has paused the socket, until that is resumed. Others are the listener's, as always.
   */
  lendFrom(bytes: number): void {
    this.#lendFromBytes = bytes;
  }

  /** @returns always to read on: where that is not wanted, the listener has called `pause()`. */
  #take(byteCount: number): true {
    const { shared } = this.#memory;
    const large = this.#large;
    if (large === undefined) {
      const more = byteCount === shared.length;
      if (more && this.#lendFromBytes <= LARGE_BYTES) this.#large = this.#memory.takeLarge();
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
