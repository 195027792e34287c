/**
 * A host and a port, decoded once at the edge into one canonical form that everything inside trusts.
 *
 * One grammar for what a client asks for, what a SOCKS frame names and what an address in the configuration
 * says, so that no two readers of the same text can differ. Names become A-labels in lower case, IPv4 in any
 * spelling of the WHATWG URL standard becomes dotted decimal, IPv6 its shortest form without brackets; user info,
 * `%`, white space and control characters are refused.
 */
import { isIP, isIPv4, isIPv6 } from 'node:net';

export type HostKind = 'name' | 'ipv4' | 'ipv6';

export interface HostPort {
  /** Canonical, without brackets; a name has no trailing dot. */
  readonly host: string;
  /** 1 to 65535. */
  readonly port: number;
  readonly kind: HostKind;
  /** Both as one text, as in CONNECT: brackets around an IPv6 host. */
  readonly text: string;
}

const MAX_NAME_LENGTH = 253;
const MAX_LABEL_LENGTH = 63;
/** Before it is normalised: IDNA drops some characters altogether, and no reader should have to go through many. */
const MAX_TEXT_LENGTH = 512;
/** What may stand in a host text before it is normalised. Non-ASCII letters are left to IDNA. */
const HOST_TEXT = /^[^\s\p{Cc}%@/\\?#[\]:<>^|"'`{}!$&()*+,;=~]+$/u;
/** A label after normalisation: letters, digits, hyphens; an underscore as many real names have it. */
const LABEL = /^[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?$/;
/** The common case, decided without a URL parser: lower-case labels that cannot be read as a number. */
const PLAIN_NAME = /^(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$/;

/**
 * Reads `host:port`, `[v6]:port` or, with `defaultPort`, either without the port.
 *
 * @returns undefined when it is anything else.
 */
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

/** A target from a SOCKS frame or a URL: a host text without brackets, and a port number. */
export function hostPort(host: string, port: number): HostPort | undefined {
  if (!Number.isInteger(port) || port < 1 || port > 65_535) return undefined;
  return makeHostPort(host, port, host.includes(':'));
}

/** 1 to 65535 in plain decimal, else undefined. */
export function parsePort(text: string): number | undefined {
  if (!/^\d{1,5}$/.test(text)) return undefined;
  const port = Number(text);
  return port >= 1 && port <= 65_535 ? port : undefined;
}

/** `host:port`, with brackets around an IPv6 host. */
export function formatHostPort(host: string, port: number): string {
  return host.includes(':') ? `[${host}]:${port}` : `${host}:${port}`;
}

/** The canonical form of an IP literal, or undefined when `text` is not one. No other spelling is taken. */
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

/** Lower case, IDNA to A-labels, numbers to dotted decimal; undefined for what is no host name. */
function canonicalName(text: string): string | undefined {
  if (text === '' || text.length > MAX_TEXT_LENGTH || !HOST_TEXT.test(text)) return undefined;
  let host: string;
  try {
    host = new URL(`http://${text}`).hostname;
  } catch {
    return undefined; // handled: the URL standard refuses it, so do we
  }
  const name = host.endsWith('.') ? host.slice(0, -1) : host;
  if (isIPv4(name)) return name;
  if (name === '' || name.length > MAX_NAME_LENGTH) return undefined;
  const good = name.split('.').every((label) => label.length <= MAX_LABEL_LENGTH && LABEL.test(label));
  return good ? name : undefined;
}
