/** Closes a connection with an error if its data is incomplete, and says when `destroy` can replace `end`. */
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';

/**
 * Closes the connection so that the other side sees an error and not a clean end. In TLS, the error is the missing
 * close_notify.
 */
export function reset(socket: Socket): void {
  // libuv cannot reset a socket whose writable side is being shut down, so such a socket is destroyed.
  const ending = socket.writableEnded && !socket.writableFinished;
  if (ending || socket instanceof TLSSocket) {
    socket.destroy();
    return;
  }
  try {
    socket.resetAndDestroy();
  } catch {
    socket.destroy(); // a Unix socket cannot be reset
  }
}

/**
 * Whether `destroy` can replace `end`, which saves system calls. True if nothing is left to write. Always false for
 * TLS, because `end` still has to send close_notify.
 *
 * Call it only for a socket whose other direction has ended, because `destroy` discards data that still arrives.
 */
export function canDestroyAtEnd(socket: Socket): boolean {
  return socket.writableLength === 0 && !(socket instanceof TLSSocket);
}
