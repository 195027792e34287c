/** Waits for the first bytes of a client that has just connected, or is about to send its next request. */
import type { Socket } from 'node:net';
import type { ConnectionContext } from './client-connection.ts';

/**
 * Calls `then` once with the first bytes, its own listeners off; destroys a socket that ends without having sent any.
 * Whatever `then` throws ends this connection and no other.
 */
export function awaitFirst(socket: Socket, context: ConnectionContext, then: (first: Buffer) => void): void {
  const onData = (first: Buffer): void => {
    socket.off('data', onData).off('end', onEnd);
    try {
      then(first);
    } catch (error) {
      context.broke(error);
    }
  };
  const onEnd = (): void => {
    socket.destroy();
  };
  socket.on('data', onData).on('end', onEnd);
  socket.resume();
}
