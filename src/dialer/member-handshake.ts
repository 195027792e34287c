/** Which machine speaks to a member of which protocol, and which of them cannot name a target. */
import type { HostPort } from '../core/host-port.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import { ConnectHop } from './connect-handshake.ts';
import type { PreparedLogin } from './credentials.ts';
import type { Hop } from './handshake.ts';
import { Socks4Hop, Socks5Hop, socks4CanReach } from './socks-handshake.ts';

/** Whether the protocol has words for the target. */
export function canName(protocol: MemberProtocol, target: HostPort): boolean {
  return protocol !== 'socks4' || socks4CanReach(target);
}

/** @throws TypeError for a target that `canName` denies. */
export function makeHop(protocol: MemberProtocol, target: HostPort, login: PreparedLogin | undefined): Hop {
  switch (protocol) {
    case 'http':
    case 'https':
      return new ConnectHop(target, login?.authorization);
    case 'socks5':
      return new Socks5Hop(target, login);
    case 'socks4':
      return new Socks4Hop(target, login);
  }
}
