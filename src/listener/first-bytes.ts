/** Waits for the first bytes of a client that has just connected, or is about to send its next request. */
import type { Socket } from 'node:net';

/** Calls `then` once with the first bytes, its own listeners off; destroys a socket that ends without having sent any. */
export function awaitFirst(socket: Socket, then: (first: Buffer) => void): void {
  const onData = (first: Buffer): void => {
    socket.off('data', onData).off('end', onEnd);
    then(first);
  };
  const onEnd = (): void => {
    socket.destroy();
  };
  socket.on('data', onData).on('end', onEnd);
  socket.resume();
}
