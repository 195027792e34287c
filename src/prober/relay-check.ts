/**
 * Checks that a member relays bytes: on a connection through the member to the member's own address, the member must answer in
 * its own protocol.
 */
import type { Deadlines } from '../core/deadlines.ts';
import type { HostPort } from '../core/host-port.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { RawConnection } from '../dialer/attempt-contract.ts';
import { memberHandshake } from '../dialer/member-handshake.ts';

/** Names under `.invalid` never resolve (RFC 6761): a working proxy reports that it cannot reach the target. */
export const NOWHERE: HostPort = {
  host: 'probe.invalid',
  port: 443,
  kind: 'name',
  text: 'probe.invalid:443',
};

/**
 * Sends the first message that a client would send to the member. Returns whether any byte comes back. Always closes the
 * connection. Never rejects.
 */
export function isRelayed(
  { socket, head }: RawConnection,
  protocol: MemberProtocol,
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
      socket.write(memberHandshake(protocol, { target: NOWHERE }).opening, 'latin1');
      socket.resume();
    }
  });
}
