/**
 * Resolves `proxyPool`: finds the listener with the ports of `proxyPool`, or adds such a listener. Then checks who can
 * reach the API.
 */
import { formatListenAddress, isLocalAddress, type ListenAddress } from '../core/listen-address.ts';
import type { ListenerConfig, ProxyPoolConfig } from './config.ts';
import type { PortNumbers } from './network-scalars.ts';
import type { Problems } from './problems.ts';
import { LISTENER } from './schema.ts';

export function hasPorts(address: ListenAddress, { first, last }: PortNumbers): boolean {
  if (address.kind === 'fd') return false;
  return address.port <= first && last <= (address.lastPort ?? address.port);
}

/**
 * Checks `proxyPool` against the listeners.
 *
 * @returns the listeners of the file, and one more if none of them has the ports of `proxyPool`.
 */
export function addPortListener(
  proxyPool: ProxyPoolConfig | undefined,
  listeners: readonly (ListenerConfig | undefined)[],
  problems: Problems,
): readonly ListenerConfig[] {
  const known = listeners.filter((listener) => listener !== undefined);
  if (proxyPool === undefined) return known;
  const { ports } = proxyPool;
  const index = listeners.findIndex((listener) => listener && hasPorts(listener.address, ports));
  const found = listeners[index];
  if (found !== undefined && found.session !== 'port') {
    problems.error(
      'proxyPool.ports',
      `listeners[${index}] has these ports, but not session: port; set session: port in that listener`,
    );
  }
  if ((found?.users.length ?? 0) === 0) checkReach(proxyPool, index, problems);
  if (found !== undefined) return known;
  const defaults = LISTENER.parse({ session: 'port' });
  return [...known, { ...defaults, address: addressOfPorts(ports), users: [], tls: undefined }];
}

export function addressOfPorts({ first, last }: PortNumbers): ListenAddress {
  return { kind: 'tcp', host: '127.0.0.1', port: first, lastPort: last };
}

/**
 * Reports an error if other machines can reach the API. Call it only if the listener on `proxyPool.ports` has no users:
 * the API then needs no password.
 *
 * @param index - the index of that listener; -1 if the file has no listener on these ports.
 */
function checkReach({ address }: ProxyPoolConfig, index: number, problems: Problems): void {
  if (isLocalAddress(address)) return;
  const solution =
    index < 0
      ? 'add a listener on these ports, with users and session: port'
      : `add users to listeners[${index}]`;
  problems.error(
    'proxyPool.address',
    `other machines can reach ${formatListenAddress(address)}, and the listener on proxyPool.ports has no users; ${solution}, or listen on 127.0.0.1`,
  );
}
