/**
 * Selects the header fields that a proxy forwards (RFC 9110 §7.6.1), and removes those that concern only one
 * connection.
 */
import type { Framing } from './framing.ts';
import { connectionOptions, type HeaderField } from './header-fields.ts';

/**
 * Fields that are always removed, in addition to the fields that Connection names and to all Proxy-… and X-Noria-…
 * fields.
 */
const HOP_BY_HOP = new Set(['connection', 'keep-alive', 'te', 'transfer-encoding', 'upgrade']);
/**
 * Fields that are never removed, even if Connection names them: otherwise a client could make noria remove end-to-end
 * fields (RFC 9110 §7.6.1).
 */
const NEVER_CONNECTION_OPTION = new Set([
  'authorization',
  'cache-control',
  'content-encoding',
  'content-length',
  'content-range',
  'content-type',
  'cookie',
  'date',
  'expect',
  'host',
  'location',
  'origin',
  'range',
  'set-cookie',
  'trailer',
  'www-authenticate',
]);
/**
 * Fields that are not forwarded in a trailer section, because they would change the meaning of the message too late
 * (RFC 9110 §6.5.1).
 */
const NEVER_TRAILER = new Set([
  'authorization',
  'content-encoding',
  'content-length',
  'content-range',
  'content-type',
  'cookie',
  'expect',
  'host',
  'set-cookie',
  'trailer',
]);

/**
 * Returns the fields of a message that are forwarded. Rewrites the framing fields in canonical form, so that every
 * recipient interprets them in the same way.
 * @param body - the framing of the forwarded body. If it is chunked, Transfer-Encoding and Trailer are kept.
 */
export function endToEndFields(fields: readonly HeaderField[], body: Framing): HeaderField[] {
  const nominated = nominatedFields(fields);
  const chunked = body.kind === 'chunked';
  const kept: HeaderField[] = [];
  for (const field of fields) {
    const lower = field[0].toLowerCase();
    if (lower === 'content-length') kept.push([field[0], String(Number(field[1]))]);
    else if (lower === 'transfer-encoding' && chunked) kept.push([field[0], 'chunked']);
    else if (lower === 'trailer' && !chunked) continue;
    else if (!HOP_BY_HOP.has(lower) && !isProxyField(lower) && !nominated.has(lower)) kept.push(field);
  }
  return kept;
}

/**
 * Selects the fields to forward for a request to switch protocols, or for its 101 response. Keeps Upgrade, with
 * `Connection: Upgrade`. Removes Content-Length: neither message has a body, and some clients would read the first
 * bytes of the new protocol as a body (RFC 9110 §8.6).
 */
export function upgradeFields(fields: readonly HeaderField[]): HeaderField[] {
  const nominated = nominatedFields(fields);
  let connections = 0;
  return fields.flatMap(([name, value]): HeaderField[] => {
    const lower = name.toLowerCase();
    if (lower === 'upgrade') return [[name, value]];
    if (lower === 'connection') {
      connections += 1;
      return connections === 1 ? [[name, 'Upgrade']] : [];
    }
    const isRemoved = HOP_BY_HOP.has(lower) || isProxyField(lower) || nominated.has(lower);
    return isRemoved || lower === 'content-length' ? [] : [[name, value]];
  });
}

/** Returns the fields of a trailer section that are forwarded. */
export function endToEndTrailers(fields: readonly HeaderField[]): HeaderField[] {
  return fields.filter(([name]) => {
    const lower = name.toLowerCase();
    return !HOP_BY_HOP.has(lower) && !NEVER_TRAILER.has(lower) && !isProxyField(lower);
  });
}

function isProxyField(lowerName: string): boolean {
  return lowerName.startsWith('proxy-') || lowerName.startsWith('x-noria-');
}

/** The fields that Connection declares to be hop-by-hop. */
function nominatedFields(fields: readonly HeaderField[]): ReadonlySet<string> {
  return new Set(connectionOptions(fields).filter((name) => !NEVER_CONNECTION_OPTION.has(name)));
}
