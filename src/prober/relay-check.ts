/**
 * Checks that a member relays bytes: on a connection through the member to the member's own address, the member must answer in
 * its own protocol.
 */
import type { Deadlines } from '../core/deadlines.ts';
import type { RawConnection } from '../dialer/attempt-contract.ts';

/**
 * Whether any byte comes back after `opening` was sent. Always closes the connection. Never rejects.
 *
 * @param opening - the first message that a client sends to the member.
 */
export function isRelayed(
  { socket, head }: RawConnection,
  opening: string | Buffer,
  { deadlines, timeoutMs }: { readonly deadlines: Deadlines; readonly timeoutMs: number },
): Promise<boolean> {
  return new Promise((resolve) => {
    const end = (answered: boolean) => {
      deadlines.clear(deadline);
      socket.off('data', onData).off('end', onEnd).off('close', onEnd);
      socket.destroy();
      resolve(answered);
    };
    const deadline = deadlines.set(timeoutMs, () => end(false));
    const onData = () => end(true);
    const onEnd = () => end(false);
    socket.on('data', onData).on('end', onEnd).on('close', onEnd);
    if (head.length > 0) end(true);
    else {
      socket.write(opening, 'latin1');
      socket.resume();
    }
  });
}
