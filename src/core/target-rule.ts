/**
 * The grammar of the rules in `denyTargets`. The configuration checks rules with it, and the listener applies them.
 *
 * A rule is a named set (`private` or `smtp`), a host (`example.com`), a pattern (`*.example.com`: every name below
 * example.com, but not example.com), an address or network (`192.0.2.0/24`), or a port or port range (`:25`,
 * `:6000-6010`).
 */
import { hostPort, parsePort } from './host-port.ts';
import { isCidr } from './networks.ts';

export const TARGET_SETS = ['private', 'smtp'] as const;

export type TargetRule =
  | { readonly kind: (typeof TARGET_SETS)[number] }
  /** `text` is canonical: a name in A-labels, an address or a network. For `below`, it is the name after `*.`. */
  | { readonly kind: 'host' | 'below' | 'network'; readonly text: string }
  | { readonly kind: 'ports'; readonly from: number; readonly to: number };

const ANY_PORT = 1;

export function parseTargetRule(text: string): TargetRule | undefined {
  const set = TARGET_SETS.find((name) => name === text);
  if (set !== undefined) return { kind: set };
  if (isCidr(text)) return { kind: 'network', text };
  const ports = /^:(\d+)(?:-(\d+))?$/.exec(text);
  if (ports !== null) {
    const from = parsePort(ports[1] ?? '');
    const to = ports[2] === undefined ? from : parsePort(ports[2]);
    return from === undefined || to === undefined || to < from ? undefined : { kind: 'ports', from, to };
  }
  const below = text.startsWith('*.');
  const host = hostPort(below ? text.slice(2) : text, ANY_PORT);
  if (host === undefined) return undefined;
  if (host.kind === 'name') return { kind: below ? 'below' : 'host', text: host.host };
  return below ? undefined : { kind: 'network', text: host.host };
}

/** Returns why `text` is invalid, such as `is not a network`. The caller puts `text` before it. */
export function wrongTargetRule(text: string): string {
  if (text.startsWith(':')) return 'is not a port or a port range from 1 to 65535';
  if (text.includes('/')) return 'is not a network';
  if (hostPort(text.replace(/^\*\./, ''), ANY_PORT)?.kind === 'ipv4') {
    return 'is a pattern for an IP address, but only host names can have patterns';
  }
  const host = text.replace(/:\d+$/, '');
  return host !== text && hostPort(host, ANY_PORT) !== undefined
    ? 'has both a host and a port'
    : 'is not a valid target';
}
