/** An absolute-form request: decoded and checked as the client sent it, and formatted for the target or the member. */
import type { IncomingMessage } from 'node:http';
import { NoriaError } from '../../core/faults.ts';
import { formatHostPort, type HostPort, parseHostPort } from '../../core/host-port.ts';
import type { MemberConnection } from '../../dialer/dial.ts';
import type { RoutingOptions } from '../../pool/lease.ts';
import type { ClientConnection } from '../client-connection.ts';
import { identifyRequest } from './client-identity.ts';
import { endToEndFields, upgradeFields } from './end-to-end.ts';
import { checkHttpVersion, type Framing, requestFraming } from './framing.ts';
import { fieldValues, formatFields, type HeaderField, pairFields } from './header-fields.ts';

export interface ForwardRequest {
  readonly method: string;
  readonly url: AbsoluteUrl;
  /** As the client sent them, except that Max-Forwards is decremented before the request is forwarded. */
  readonly fields: readonly HeaderField[];
  readonly framing: Framing;
  readonly routing: RoutingOptions;
  /** It asks to switch protocols. */
  readonly upgrade: boolean;
}

/** The parts of an absolute-form request target. */
export interface AbsoluteUrl {
  readonly target: HostPort;
  /** The value for Host: the canonical host, and the port unless it is 80. */
  readonly authority: string;
  /** Path and query exactly as the client wrote them. If there are none: `*` for OPTIONS, otherwise `/`. */
  readonly path: string;
}

const DEFAULT_HTTP_PORT = 80;
const ABSOLUTE_URL = /^([A-Za-z][A-Za-z0-9+.-]*):\/\/([^/?#]*)([^#]*)$/;
const ORIGIN_FORM = /^[/*]/;

/** Decodes and checks a request. An error is the reason to refuse it. */
export function readForwardRequest(
  request: IncomingMessage,
  connection: ClientConnection,
  upgrade: boolean,
): ForwardRequest | NoriaError {
  const { method = '' } = request;
  const fields = pairFields(request.rawHeaders);
  const wrongVersion = checkHttpVersion(request.httpVersionMajor);
  if (wrongVersion !== undefined) return wrongVersion;
  const framing = requestFraming(fields, request.httpVersionMinor);
  if (framing instanceof NoriaError) return framing;
  const identity = identifyRequest(fields, connection);
  if (identity instanceof NoriaError) return identity;
  const url = parseAbsoluteUrl(method, request.url ?? '');
  if (url instanceof NoriaError) return url;
  const routing = connection.route(identity, url.target, fields);
  return routing instanceof NoriaError ? routing : { method, url, fields, framing, routing, upgrade };
}

/** Parses `http://host[:port]/path?query`. */
export function parseAbsoluteUrl(method: string, url: string): AbsoluteUrl | NoriaError {
  if (ORIGIN_FORM.test(url)) {
    const reason = 'this port is noria, a forward proxy, not a web site: set it as the proxy of your client';
    return new NoriaError('bad-request', 'a request in origin form', { context: { reason } });
  }
  const [, scheme = '', authority = '', rest = ''] = ABSOLUTE_URL.exec(url) ?? [];
  if (scheme.toLowerCase() === 'https') {
    const reason = 'an https URL needs CONNECT, not a request in absolute form';
    return new NoriaError('not-implemented', 'an https URL in absolute form', { context: { reason } });
  }
  if (scheme.toLowerCase() !== 'http')
    return new NoriaError('bad-request', 'not an http URL in absolute form');
  const target = parseHostPort(authority, DEFAULT_HTTP_PORT);
  if (target === undefined) return new NoriaError('bad-request', 'the URL has no valid host and port');
  const emptyPath = method === 'OPTIONS' ? '*' : '/';
  const path = rest === '' ? emptyPath : rest.startsWith('/') ? rest : `/${rest}`;
  return { target, authority: hostValue(target), path };
}

/**
 * Decrements Max-Forwards of an OPTIONS or TRACE request (RFC 9110 §7.6.2).
 *
 * @returns the fields to forward; undefined if Max-Forwards is 0, so that the request must not be forwarded.
 */
export function decrementMaxForwards(
  method: string,
  fields: readonly HeaderField[],
): readonly HeaderField[] | undefined {
  if (method !== 'OPTIONS' && method !== 'TRACE') return fields;
  const limits = fieldValues(fields, 'max-forwards');
  if (limits.length === 0) return fields;
  if (limits.some((value) => /^0+$/.test(value))) return undefined;
  return fields.map(([name, value]): HeaderField => {
    const counts = name.toLowerCase() === 'max-forwards' && /^\d+$/.test(value);
    return [name, counts ? String(BigInt(value) - 1n) : value];
  });
}

/**
 * Formats request line and fields, with the empty line: in origin form for a target, or in absolute form with the member's
 * credentials for a member that forwards the request itself.
 */
export function formatRequestHead(
  { method, url, fields, framing, upgrade }: ForwardRequest,
  { forwardMode, proxyAuthorization }: Pick<MemberConnection, 'forwardMode' | 'proxyAuthorization'>,
): string {
  const { authority, path } = url;
  const kept = upgrade ? upgradeFields(fields) : endToEndFields(fields, framing);
  const lines = formatFields(withHost(kept, authority));
  if (forwardMode === 'direct') return `${method} ${path} HTTP/1.1\r\n${lines}\r\n`;
  // OPTIONS for the whole server has no path in absolute form (RFC 9112 §3.2.4).
  const absoluteUrl = `http://${authority}${path === '*' ? '' : path}`;
  const credentials =
    proxyAuthorization === undefined ? '' : `Proxy-Authorization: ${proxyAuthorization}\r\n`;
  return `${method} ${absoluteUrl} HTTP/1.1\r\n${lines}${credentials}\r\n`;
}

/** Sets Host to the authority of the URL: in place of the client's Host, or first if the client sent none. */
function withHost(fields: readonly HeaderField[], authority: string): HeaderField[] {
  if (!fields.some(([name]) => name.toLowerCase() === 'host')) return [['Host', authority], ...fields];
  return fields.map(([name, value]) => (name.toLowerCase() === 'host' ? [name, authority] : [name, value]));
}

function hostValue({ host, port }: HostPort): string {
  if (port !== DEFAULT_HTTP_PORT) return formatHostPort(host, port);
  return host.includes(':') ? `[${host}]` : host;
}
