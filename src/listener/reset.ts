/** Resets connections whose content is incomplete. */
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
