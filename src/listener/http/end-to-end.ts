/** Selects the header fields that a proxy forwards (RFC 9110 §7.6.1) and removes those that are for one connection only. */
import type { Framing } from './framing.ts';
import { connectionOptions, type HeaderField } from './header-fields.ts';

/** Removed whatever Connection says. Fields named Proxy-… and X-Noria-… are always removed too. */
const HOP_BY_HOP = new Set(['connection', 'keep-alive', 'te', 'transfer-encoding', 'upgrade']);
/** End-to-end fields: ignored as Connection options, so that a client cannot have them removed (RFC 9110 §7.6.1). */
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
/** Not allowed in a trailer section, where they would change the meaning of a message too late (RFC 9110 §6.5.1). */
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
 * The fields of a message that are forwarded. Those about its framing are written in canonical form, so that the next reader
 * cannot understand them differently.
 *
 * @param body - how the forwarded body is framed. If it is chunked, Transfer-Encoding and Trailer are kept.
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
 * The same for a request to switch protocols and for its 101 response: Upgrade is kept, with `Connection: Upgrade`. Neither has a
 * body, and a length in a 101 would make some clients take the first bytes of the new protocol for one (RFC 9110 §8.6).
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

/** The fields of a trailer section that are forwarded. */
export function endToEndTrailers(fields: readonly HeaderField[]): HeaderField[] {
  return fields.filter(([name]) => {
    const lower = name.toLowerCase();
    return !HOP_BY_HOP.has(lower) && !NEVER_TRAILER.has(lower) && !isProxyField(lower);
  });
}

function isProxyField(lowerName: string): boolean {
  return lowerName.startsWith('proxy-') || lowerName.startsWith('x-noria-');
}

/** The fields that Connection declares to be for this connection only. */
function nominatedFields(fields: readonly HeaderField[]): ReadonlySet<string> {
  return new Set(connectionOptions(fields).filter((name) => !NEVER_CONNECTION_OPTION.has(name)));
}
