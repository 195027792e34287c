/** Closes connections: with a reset if their content is incomplete, and with few system calls if it is complete. */
import type { Socket } from 'node:net';
import { TLSSocket } from 'node:tls';

/** Closes the connection so that the other side sees an error and not a clean end. In TLS that is an end without close_notify. */
export function reset(socket: Socket): void {
  // libuv cannot reset a socket whose writable side is being shut down.
  const ending = socket.writableEnded && !socket.writableFinished;
  if (ending || socket instanceof TLSSocket) {
    socket.destroy();
    return;
  }
  try {
    socket.resetAndDestroy();
  } catch {
    socket.destroy(); // a Unix socket, which cannot be reset
  }
}

/**
 * Whether `destroy` ends the connection like `end` does, with fewer system calls. It does if nothing is left to write. Not in TLS,
 * where `end` still has to send close_notify. Call it only for a socket whose other direction has ended: `destroy` discards what
 * still arrives.
 */
export function canDestroyAtEnd(socket: Socket): boolean {
  return socket.writableLength === 0 && !(socket instanceof TLSSocket);
}
