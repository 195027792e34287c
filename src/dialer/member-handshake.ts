/** The handshake with a member, by the member's protocol. */
import type { HostPort } from '../core/host-port.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import { ConnectHandshake } from './connect-handshake.ts';
import type { PreparedLogin } from './credentials.ts';
import type { Handshake } from './handshake.ts';
import { Socks4Handshake, Socks5Handshake } from './socks-handshake.ts';

interface HandshakeTerms {
  readonly target: HostPort;
  readonly login?: PreparedLogin | undefined;
  /** Only for SOCKS5: greeting, login and request are sent in one write. */
  readonly pipelined?: boolean;
}

export function memberHandshake(
  protocol: MemberProtocol,
  { target, login, pipelined = false }: HandshakeTerms,
): Handshake {
  switch (protocol) {
    case 'http':
    case 'https':
      return new ConnectHandshake(target, login?.authorization);
    case 'socks5':
      return new Socks5Handshake(target, login, pipelined);
    case 'socks4':
      return new Socks4Handshake(target, login);
  }
}
