import { isUtf8 } from 'node:buffer';
import { NoriaError } from '../../core/faults.ts';
import { formatHostPort, type HostPort, parseHostPort } from '../../core/host-port.ts';
import type { MemberConnection } from '../../dialer/contract.ts';
import type { RoutingOptions } from '../../pool/lease.ts';
import type { ClientConnection } from '../client-connection.ts';
import { badRequest } from '../refusal.ts';
import {
  connectionOptions,
  endToEndFields,
  type Framing,
  fieldValues,
  formatFields,
  type HeaderField,
  upgradeFields,
} from './header-fields.ts';
import type { RequestHead } from './request-head.ts';

export interface ForwardRequest {
  readonly method: string;
  readonly url: AbsoluteUrl;
  /** The fields as the client sent them, except that Max-Forwards may already be decremented. */
  readonly fields: readonly HeaderField[];
  readonly framing: Framing;
  readonly routing: RoutingOptions;
  /**
   * Requests share a connection only with the same address, user and session: the next request would get a second
   * answer that a target sends unasked.
   */
  readonly owner: string;
  readonly upgrade: boolean;
}

interface AbsoluteUrl {
  readonly target: HostPort;
  /** Value of the Host field: canonical host, and the port unless it is 80. */
  readonly authority: string;
  /** As the client wrote them, bytes outside ASCII percent-encoded; without both, `*` for OPTIONS, else `/`. */
  readonly path: string;
}

const DEFAULT_HTTP_PORT = 80;
const ABSOLUTE_URL = /^([A-Za-z][A-Za-z0-9+.-]*):\/\/([^/?#]*)((?:[/?][^#]*)?)$/;
const ORIGIN_FORM = /^[/*]/;
const NOT_ASCII = /[\x80-\xff]/;
const H2C = /\bh2c\b/i;

export function readForwardRequest(
  head: RequestHead,
  connection: ClientConnection,
): ForwardRequest | NoriaError {
  const { method, fields, framing } = head;
  if (framing instanceof NoriaError) return framing;
  const identity = connection.identifyRequest(fields);
  if (identity instanceof NoriaError) return identity;
  const wrongExpectation = checkExpectation(head);
  if (wrongExpectation !== undefined) return wrongExpectation;
  const url = parseAbsoluteUrl(method, head.target);
  if (url instanceof NoriaError) return url;
  const routing = connection.authorize(identity, url.target, fields);
  if (routing instanceof NoriaError) return routing;
  const owner = `${connection.clientAddress} ${routing.session ?? ''} ${identity.user}`;
  return { method, url, fields, framing, routing, owner, upgrade: isUpgrade(head) };
}

/** It is forwarded, and the target answers it (RFC 9110 §10.1.1). */
function checkExpectation({ minorVersion, fields }: RequestHead): NoriaError | undefined {
  const known = fieldValues(fields, 'expect').every((value) => value.toLowerCase() === '100-continue');
  if (known || minorVersion === 0) return undefined;
  return new NoriaError('expectation-failed', 'the Expect header has a value other than 100-continue');
}

/**
 * Not with a body, which would have to end before the protocol switches, and not for h2c: the client also works if
 * the server ignores this offer.
 */
function isUpgrade({ minorVersion, fields, framing }: RequestHead): boolean {
  const protocols = fieldValues(fields, 'upgrade');
  if (protocols.length === 0 || minorVersion === 0) return false;
  const hasNoBody = !(framing instanceof NoriaError) && framing.kind === 'none';
  return (
    hasNoBody && connectionOptions(fields).includes('upgrade') && !protocols.some((value) => H2C.test(value))
  );
}

export function parseAbsoluteUrl(method: string, url: string): AbsoluteUrl | NoriaError {
  if (ORIGIN_FORM.test(url)) {
    const reason =
      'this is a port of noria, a forward proxy, and not a web site: set this port as the proxy of your client';
    return new NoriaError('bad-request', 'the request is in origin form', { context: { reason } });
  }
  const [, scheme = '', authority = '', rest = ''] = ABSOLUTE_URL.exec(url) ?? [];
  if (scheme.toLowerCase() === 'https') {
    const reason = 'an https URL needs CONNECT, not a request in absolute form';
    return new NoriaError('not-implemented', 'the request has an https URL in absolute form', {
      context: { reason },
    });
  }
  if (scheme.toLowerCase() !== 'http')
    return badRequest(
      'the request target does not start with http://; use CONNECT or SOCKS for other protocols',
    );
  const target = parseHostPort(decodeUtf8(authority), DEFAULT_HTTP_PORT);
  if (target === undefined)
    return badRequest('the URL has no valid host, or its port is not between 1 and 65535');
  const emptyPath = method === 'OPTIONS' ? '*' : '/';
  const path = rest === '' ? emptyPath : rest.startsWith('/') ? rest : `/${rest}`;
  return { target, authority: hostValue(target), path: encodeBytes(path) };
}

function decodeUtf8(latin1: string): string {
  if (!NOT_ASCII.test(latin1)) return latin1;
  const bytes = Buffer.from(latin1, 'latin1');
  return isUtf8(bytes) ? bytes.toString('utf8') : '';
}

/** Percent-encodes the bytes outside ASCII, which a request target must not contain (RFC 3986 §2.1). */
function encodeBytes(latin1: string): string {
  if (!NOT_ASCII.test(latin1)) return latin1;
  return latin1.replaceAll(/[\x80-\xff]/g, (byte) => `%${byte.charCodeAt(0).toString(16).toUpperCase()}`);
}

/** For OPTIONS and TRACE (RFC 9110 §7.6.2). @returns undefined if the request must not be forwarded. */
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

/** A target gets origin form; a member that forwards the request gets absolute form and its credentials. */
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

/** The authority of the URL becomes Host. */
function withHost(fields: readonly HeaderField[], authority: string): HeaderField[] {
  if (!fields.some(([name]) => name.toLowerCase() === 'host')) return [['Host', authority], ...fields];
  return fields.map(([name, value]) => (name.toLowerCase() === 'host' ? [name, authority] : [name, value]));
}

function hostValue({ host, port }: HostPort): string {
  if (port !== DEFAULT_HTTP_PORT) return formatHostPort(host, port);
  return host.includes(':') ? `[${host}]` : host;
}
