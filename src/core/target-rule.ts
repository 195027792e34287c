/**
 * The grammar of one rule about targets, as `denyTargets` lists them: read by the configuration to check it and by the
 * listener to hold it.
 *
 * `private` and `smtp` are sets with a name; the rest is a host (`example.com`), a pattern (`*.example.com`: every name
 * below it, not itself), an address or network (`192.0.2.0/24`), a port or a range of them (`:25`, `:6000-6010`).
 */
import { hostPort, parsePort } from './host-port.ts';
import { isCidr } from './networks.ts';

export type TargetRule =
  | { readonly kind: 'private' | 'smtp' }
  /** `text` is canonical: a name in A-labels, an address or a network. For `below`, the name after `*.`. */
  | { readonly kind: 'host' | 'below' | 'network'; readonly text: string }
  /** Both included. */
  | { readonly kind: 'ports'; readonly from: number; readonly to: number };

/** @returns undefined when `text` is none of these. */
export function parseTargetRule(text: string): TargetRule | undefined {
  if (text === 'private' || text === 'smtp') return { kind: text };
  if (isCidr(text)) return { kind: 'network', text };
  const ports = /^:(\d+)(?:-(\d+))?$/.exec(text);
  if (ports !== null) {
    const from = parsePort(ports[1] ?? '');
    const to = ports[2] === undefined ? from : parsePort(ports[2]);
    return from === undefined || to === undefined || to < from ? undefined : { kind: 'ports', from, to };
  }
  const below = text.startsWith('*.');
  const host = hostPort(below ? text.slice(2) : text, 1); // any port: only the host's canonical form is wanted
  if (host === undefined) return undefined;
  if (host.kind === 'name') return { kind: below ? 'below' : 'host', text: host.host };
  return below ? undefined : { kind: 'network', text: host.host };
}
