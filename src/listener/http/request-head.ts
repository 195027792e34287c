/** The head that a client's request is sent on with. */
import type { MemberConnection } from '../../dialer/dial.ts';
import type { Route } from './client-identity.ts';
import {
  type AbsoluteTarget,
  endToEndFields,
  type Framing,
  formatFields,
  type HeaderField,
  upgradeFields,
  withHost,
} from './header-fields.ts';

/** A client's request, read and found good: what is to be sent, and to whom. */
export interface ForwardRequest {
  readonly method: string;
  /** As the client sent them. */
  readonly fields: readonly HeaderField[];
  readonly framing: Framing;
  readonly route: Route<AbsoluteTarget>;
  /** It asks for another protocol. */
  readonly upgrade: boolean;
}

/**
 * Request line and fields, with the empty line, in Latin-1: in origin form to a target, in absolute form and with the
 * member's credentials to a member that forwards itself.
 */
export function formatRequestHead(
  order: ForwardRequest,
  way: Pick<MemberConnection, 'forwardMode' | 'proxyAuthorization'>,
): string {
  const { method, fields, framing, route, upgrade } = order;
  const { authority, path } = route.target;
  const sent = withHost(upgrade ? upgradeFields(fields) : endToEndFields(fields, framing), authority);
  if (way.forwardMode === 'direct') return `${method} ${path} HTTP/1.1\r\n${formatFields(sent)}\r\n`;
  // OPTIONS of the whole server has no path in absolute form (RFC 9112 §3.2.4).
  const url = `http://${authority}${path === '*' ? '' : path}`;
  const { proxyAuthorization: login } = way;
  const credentials = login === undefined ? '' : `Proxy-Authorization: ${login}\r\n`;
  return `${method} ${url} HTTP/1.1\r\n${formatFields(sent)}${credentials}\r\n`;
}
