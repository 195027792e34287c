/**
 * Parses a host and a port into a canonical form that the rest of noria trusts.
 *
 * Requests, SOCKS frames and the configuration use the same grammar, so that no two parsers can disagree about a
 * text. A name becomes lower-case A-labels. An IPv4 address in any spelling of the WHATWG URL standard becomes dotted
 * decimal. An IPv6 address becomes its shortest form without brackets. User info, `%`, white space and control
 * characters are rejected.
 */
import { isIP, isIPv4, isIPv6 } from 'node:net';

export interface HostPort {
  /** The canonical host, without brackets. A name has no trailing dot. */
  readonly host: string;
  readonly port: number;
  readonly kind: 'name' | 'ipv4' | 'ipv6';
  /** `host:port`, with brackets around an IPv6 host. */
  readonly text: string;
}

const MAX_NAME_LENGTH = 253;
const MAX_LABEL_LENGTH = 63;
/** Before normalisation, which can shorten a text: hostile input then causes little work. */
const MAX_TEXT_LENGTH = 512;
/** The characters that are allowed before normalisation, which checks the non-ASCII ones (IDNA). */
const HOST_TEXT = /^[^\s\p{Cc}%@/\\?#[\]:<>^|"'`{}!$&()*+,;=~]+$/u;
/** Matches a label after normalisation. Underscores are allowed, because many real names contain them. */
const LABEL = /^[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?$/;
/** Matches lower-case names whose last label cannot be a number. They are the common case, and need no URL parser. */
const PLAIN_NAME = /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$/;

/** Parses `host:port` or `[v6]:port`. With `defaultPort`, the port may be missing. */
export function parseHostPort(text: string, defaultPort?: number): HostPort | undefined {
  const bracketed = text.startsWith('[');
  const hostEnd = bracketed ? text.indexOf(']') + 1 : text.indexOf(':');
  if (bracketed && hostEnd === 0) return undefined;
  const end = hostEnd < 0 ? text.length : hostEnd;
  const rest = text.slice(end);
  const port = rest === '' ? defaultPort : rest.startsWith(':') ? parsePort(rest.slice(1)) : undefined;
  if (port === undefined) return undefined;
  return makeHostPort(bracketed ? text.slice(1, end - 1) : text.slice(0, end), port, bracketed);
}

/** For a host without brackets, for example from a SOCKS frame or a URL. */
export function hostPort(host: string, port: number): HostPort | undefined {
  if (!Number.isInteger(port) || port < 1 || port > 65_535) return undefined;
  return makeHostPort(host, port, host.includes(':'));
}

export function parsePort(text: string): number | undefined {
  if (!/^\d{1,5}$/.test(text)) return undefined;
  const port = Number(text);
  return port >= 1 && port <= 65_535 ? port : undefined;
}

export function formatHostPort(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** The canonical form of an IP literal; undefined for any other text, including other spellings of IPv4. */
export function canonicalIp(text: string): string | undefined {
  if (isIPv4(text)) return text;
  if (!isIPv6(text) || text.includes('%')) return undefined;
  return new URL(`http://[${text}]`).hostname.slice(1, -1);
}

function makeHostPort(host: string, port: number, wantsIpv6: boolean): HostPort | undefined {
  if (wantsIpv6) {
    const ip = isIPv6(host) ? canonicalIp(host) : undefined;
    return ip === undefined ? undefined : { host: ip, port, kind: 'ipv6', text: `[${ip}]:${port}` };
  }
  if (host.length <= MAX_NAME_LENGTH && PLAIN_NAME.test(host) && !host.includes('xn--')) {
    return { host, port, kind: 'name', text: `${host}:${port}` };
  }
  if (isIP(host) === 4) return { host, port, kind: 'ipv4', text: `${host}:${port}` };
  const name = canonicalName(host);
  if (name === undefined) return undefined;
  return { host: name, port, kind: isIPv4(name) ? 'ipv4' : 'name', text: `${name}:${port}` };
}

function canonicalName(text: string): string | undefined {
  if (text === '' || text.length > MAX_TEXT_LENGTH || !HOST_TEXT.test(text)) return undefined;
  let host: string;
  try {
    host = new URL(`http://${text}`).hostname;
  } catch {
    return undefined; // handled: the URL standard rejects the host
  }
  const name = host.endsWith('.') ? host.slice(0, -1) : host;
  if (isIPv4(name)) return name;
  if (name === '' || name.length > MAX_NAME_LENGTH) return undefined;
  const good = name.split('.').every((label) => label.length <= MAX_LABEL_LENGTH && LABEL.test(label));
  return good ? name : undefined;
}
