/** Derives the lifetime and the protocol of members from the product and the parameters of their source. */
import { MINUTE_MS } from '../core/duration.ts';
import type { MemberProtocol } from '../core/protocol.ts';
import type { DrawRow, SourceProduct } from './operation.ts';
import { OPERATIONS } from './operations.ts';

/**
 * The lifetime of an entry for which the answer contains no lifetime, in ms from the moment at which noria sent the request.
 *
 * @param params - the result of `checkParams`.
 */
export function defaultLifetimeMs(product: SourceProduct, params: Readonly<Record<string, unknown>>): number {
  const { byTimespan, atLeastMs } = OPERATIONS[product].defaultLifetime;
  const minutes = byTimespan ? params['timespan'] : undefined;
  return Math.max(atLeastMs, typeof minutes === 'number' ? minutes * MINUTE_MS : 0);
}

/**
 * The maximum lifetime of a new member of the product, in ms; undefined if it is unknown, for example for
 * reverse-proxy IPs.
 *
 * @param params - the result of `checkParams`.
 */
export function maxLifetimeMs(
  product: SourceProduct,
  params: Readonly<Record<string, unknown>>,
): number | undefined {
  const { maxLifetimeMinutes, params: known }: DrawRow = OPERATIONS[product];
  if (maxLifetimeMinutes === undefined) return undefined;
  const hasReverseProxies = Object.hasOwn(known, 'tunnel') && params['tunnel'] !== 2;
  return hasReverseProxies ? undefined : maxLifetimeMinutes * MINUTE_MS;
}

/**
 * The protocol of a member whose entry names no protocol. Only entries of the free product and of links can name one.
 *
 * @param params - the result of `checkParams`.
 */
export function memberProtocol(
  product: SourceProduct,
  params: Readonly<Record<string, unknown>>,
): MemberProtocol {
  const { protocol: speaks } = OPERATIONS[product];
  if (speaks === 'by-pro') return params['pro'] === 2 ? 'socks5' : 'http';
  if (speaks !== 'by-entry') return speaks;
  const chosen = params['protocol_type'];
  return chosen === 2 ? 'socks4' : chosen === 3 ? 'socks5' : 'http';
}
