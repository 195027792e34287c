/** Which machine speaks to a member of which protocol, and which of them cannot name a target. */
import type { HostPort } from '../core/host-port.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import { ConnectHandshake } from './connect-handshake.ts';
import type { PreparedLogin } from './credentials.ts';
import type { Handshake } from './handshake.ts';
import { Socks4Handshake, Socks5Handshake, socks4CanReach } from './socks-handshake.ts';

/** Whether the protocol has words for the target. */
export function canName(protocol: MemberProtocol, target: HostPort): boolean {
  return protocol !== 'socks4' || socks4CanReach(target);
}

/** @throws TypeError for a target that `canName` denies. */
export function makeHop(
  protocol: MemberProtocol,
  target: HostPort,
  login: PreparedLogin | undefined,
): Handshake {
  switch (protocol) {
    case 'http':
    case 'https':
      return new ConnectHandshake(target, login?.authorization);
    case 'socks5':
      return new Socks5Handshake(target, login);
    case 'socks4':
      return new Socks4Handshake(target, login);
  }
}
