/**
 * Sockets to members: how noria opens them, when they are ready, and what their errors mean.
 *
 * Members are IP literals, so noria resolves no names of members. TLS to a member (`https`) encrypts without
 * verification: the service reports members as addresses, for which there is no certificate to verify. A client that
 * has to authenticate its target uses TLS inside the tunnel.
 */
import { Socket, type SocketConstructorOpts } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as connectTls } from 'node:tls';
import type { MemberProtocol } from '../core/protocol.ts';
import type { DialRequest } from './contract.ts';

/**
 * The socket allows half-open connections, and has an 'error' handler: listen for 'close', then read `errored`.
 * `marks`: for a front proxy (core/front-proxy.ts).
 */
export type OpenSocket = (
  member: {
    readonly protocol: MemberProtocol;
    /** An IP literal without brackets. For a front proxy, it may also be a name. */
    readonly host: string;
    readonly port: number;
  },
  use: DialRequest['use'],
  marks?: readonly string[],
) => Socket;

/** Shorter than the timeout of common NAT gateways. */
export const TCP_KEEP_ALIVE_MS = 30_000;

/** For sockets that may stay open for long. relay.ts enables keep-alive of tunnels later, because most end before. */
const LONG_LIVED = {
  allowHalfOpen: true,
  noDelay: true,
  keepAlive: true,
  keepAliveInitialDelay: TCP_KEEP_ALIVE_MS,
} as const;

/** This machine is out of sockets, ports or memory. */
export const LOCAL_CODES: ReadonlySet<string> = new Set([
  'EMFILE',
  'ENFILE',
  'ENOBUFS',
  'EADDRNOTAVAIL',
  'ENOMEM',
]);
const RESET_CODES: readonly unknown[] = ['EPIPE', 'ECONNRESET', 'ECONNABORTED'];
/** Another machine answered. */
export const ANSWER_CODES: ReadonlySet<unknown> = new Set(['ECONNREFUSED', ...RESET_CODES]);

/** All connections for tunnels share one read buffer. */
export function memberSockets(): OpenSocket {
  const memory = new ReadMemory();
  return ({ protocol, host, port }, use) => {
    const address = { host, port };
    const socket =
      protocol === 'https'
        ? connectTls({ ...address, ...LONG_LIVED, rejectUnauthorized: false })
        : (use === 'forward' ? receivingSocket(LONG_LIVED) : tunnelSocket(memory)).connect(address);
    return socket.on('error', ignoreError);
  };
}

/** A socket that closes with this error, for an address that Node rejects. */
export function failedSocket(error: unknown): Socket {
  const socket = new Socket().on('error', ignoreError);
  return socket.destroy(error instanceof Error ? error : new Error(String(error)));
}

export function secureSocket(stream: Duplex): Socket {
  return connectTls({ socket: stream, rejectUnauthorized: false }).on('error', ignoreError);
}

export function readyEvent(protocol: MemberProtocol): 'connect' | 'secureConnect' {
  return protocol === 'https' ? 'secureConnect' : 'connect';
}

export function closeCode(socket: Pick<Socket, 'errored'> | undefined): string {
  const error = socket?.errored;
  if (error === null || error === undefined) return 'closed';
  return 'code' in error && typeof error.code === 'string' ? error.code : error.name;
}

function ignoreError(): void {
  // ignored: 'close' follows every error, and `socket.errored` keeps the error
}

type Done = (error?: Error | null) => void;

/**
 * A socket with noria's state as additional properties. It is not a subclass of Socket: with sockets of two classes,
 * the JavaScript engine optimises Node's stream code less, and a tunnel takes 2 % more CPU time.
 */
interface MemberSocket extends Socket {
  [WRITES]?: ReceivingWrites;
  [READS]?: TunnelReads;
}

const WRITES = Symbol('writes');
const READS = Symbol('reads');

/**
 * After a failed write, the socket still delivers received bytes, and discards further writes: a member may answer
 * and close before it has read the whole request, and a plain socket would be destroyed with the answer unread in the
 * kernel.
 */
export function receivingSocket(options: SocketConstructorOpts): Socket {
  const socket: MemberSocket = new Socket(options);
  socket[WRITES] = new ReceivingWrites();
  socket._write = write;
  socket._writev = writev;
  return socket;
}

/** After a reset, an 'end' does not prove that the member's data is complete. */
export function hasFailedWrite(socket: Socket): boolean {
  return (socket as MemberSocket)[WRITES]?.failed === true;
}

function write(this: MemberSocket, chunk: unknown, encoding: BufferEncoding, done: Done): void {
  const written = this[WRITES]?.begin(done);
  if (written !== undefined) Socket.prototype._write.call(this, chunk, encoding, written);
}

function writev(
  this: MemberSocket,
  chunks: { chunk: unknown; encoding: BufferEncoding }[],
  done: Done,
): void {
  const written = this[WRITES]?.begin(done);
  if (written !== undefined) Socket.prototype._writev?.call(this, chunks, written);
}

class ReceivingWrites {
  failed = false;
  #done: Done | undefined;

  /** @returns what to pass to the write; undefined, after `done`, if the write would fail: discard the data. */
  begin(done: Done): Done | undefined {
    if (this.failed) {
      done();
      return undefined;
    }
    this.#done = done;
    return this.#onWritten;
  }

  readonly #onWritten: Done = (error) => {
    if (error !== null && error !== undefined && 'code' in error && RESET_CODES.includes(error.code)) {
      this.failed = true;
      this.#done?.();
    } else {
      this.#done?.(error);
    }
  };
}

/** As a plain socket in Node reads. */
const SHARED_BYTES = 64 * 1024;
/** Fewer reads and writes per byte than with 64 KiB (docs/performance.md). */
const LARGE_BYTES = 256 * 1024;
const MAX_SPARE_BUFFERS = 16;

export class ReadMemory {
  /** Safe, because each read copies the content before the next read can start. */
  readonly shared = Buffer.allocUnsafeSlow(SHARED_BYTES);
  #copy = Buffer.allocUnsafeSlow(SHARED_BYTES);
  readonly #spare: Buffer[] = [];

  /** The next call overwrites this copy of the first bytes of `shared`, except after `keepCopy`. */
  copy(byteCount: number): Buffer {
    this.shared.copy(this.#copy, 0, 0, byteCount);
    return this.#copy.subarray(0, byteCount);
  }

  /** Protects the latest copy: later calls of `copy` write to new memory. */
  keepCopy(): void {
    this.#copy = Buffer.allocUnsafeSlow(SHARED_BYTES);
  }

  takeLarge(): Buffer {
    return this.#spare.pop() ?? Buffer.allocUnsafeSlow(LARGE_BYTES);
  }

  giveBack(buffer: Buffer): void {
    if (this.#spare.length < MAX_SPARE_BUFFERS) this.#spare.push(buffer);
  }
}

/**
 * All tunnels of a dialer read into one shared buffer and emit copies, so an idle tunnel has no read buffer; a plain
 * socket allocates 64 KiB for every read. A tunnel that fills it reads into a larger private buffer while its rate is
 * high. Supports 'data', pause, resume and end; `read()` and `for await` receive nothing.
 */
export function tunnelSocket(memory: ReadMemory): Socket {
  const reads = new TunnelReads(memory);
  const socket: MemberSocket = receivingSocket({
    allowHalfOpen: true,
    noDelay: true,
    onread: {
      buffer: () => reads.buffer, // Node calls this function on connect and after each read
      callback: (byteCount) => {
        reads.emit(socket, byteCount);
        return true; // `true` tells Node to continue reading. A listener that wants no more data calls `pause()`.
      },
    },
  });
  socket[READS] = reads;
  return socket;
}

/**
 * Lets a tunnel reuse the memory of a chunk when `sink` has sent it. The 'data' listener must write each chunk to
 * `sink` before it returns and, if `sink` holds its high-water mark, pause until 'drain'. No-op for other sockets.
 */
export function lendChunks(socket: Socket, sink: Socket): void {
  const reads = (socket as MemberSocket)[READS];
  if (reads !== undefined) reads.sink = sink;
}

class TunnelReads {
  readonly #memory: ReadMemory;
  /**
   * The shared buffer, or a large one while the transfer rate is high. A large one is not reused after the close: the
   * receiver of the last chunk may still be writing its bytes.
   */
  buffer: Buffer;
  sink: Socket | undefined;
  #sentAtOnce = false;

  constructor(memory: ReadMemory) {
    this.#memory = memory;
    this.buffer = memory.shared;
  }

  emit(socket: Socket, byteCount: number): void {
    const { buffer } = this;
    if (buffer === this.#memory.shared) this.#emitShared(socket, byteCount);
    else socket.emit('data', this.#takeLarge(buffer, byteCount));
  }

  /** Reuses memory if `sink` sent the previous chunk at once: it will probably send this one at once as well. */
  #emitShared(socket: Socket, byteCount: number): void {
    const { shared } = this.#memory;
    const reuses = this.#sentAtOnce;
    const chunk = reuses ? this.#memory.copy(byteCount) : Buffer.from(shared.subarray(0, byteCount));
    socket.emit('data', chunk);
    const { sink } = this;
    if (sink === undefined) return;
    this.#sentAtOnce = sink.writableLength === 0;
    if (reuses && !this.#sentAtOnce) this.#memory.keepCopy(); // `sink` has not sent the copy yet
    const isFull = byteCount === shared.length;
    if (isFull && sink.writableHighWaterMark <= LARGE_BYTES) this.buffer = this.#memory.takeLarge();
  }

  #takeLarge(large: Buffer, byteCount: number): Buffer {
    const isLent = this.sink !== undefined && byteCount >= this.sink.writableHighWaterMark;
    if (isLent) return large.subarray(0, byteCount);
    const chunk = Buffer.from(large.subarray(0, byteCount));
    this.buffer = this.#memory.shared;
    this.#memory.giveBack(large);
    return chunk;
  }
}
