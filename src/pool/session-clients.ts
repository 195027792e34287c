/**
 * Groups sessions by client, to decide which session ends when a limit is reached. A client is a user or, without
 * users, the network of a client address. The sessions of a user are grouped by network as well, so that one machine of
 * a user cannot displace the sessions of another machine. Only the start and the end of a session update the groups; a
 * use does not.
 */

import { Heap, type HeapNode } from '../core/heap.ts';
import { clientNetwork } from '../core/networks.ts';
import type { SessionOwner } from './lease.ts';
import type { Session, SessionUse } from './session.ts';

/**
 * A client as a node of a heap. `key` is the negated number of its sessions, so that the client with the most sessions comes
 * first.
 */
class SessionClient implements HeapNode {
  readonly byNetwork = new Map<string, Heap<SessionUse>>();
  key = 0;
  heapIndex = -1;
}

export class SessionClients {
  readonly #byKey = new Map<string, SessionClient>();
  readonly #bySize = new Heap<SessionClient>();

  add({ owner, use, usedAt }: Session): void {
    const key = clientKey(owner);
    const network = clientNetwork(owner.address);
    let client = this.#byKey.get(key);
    if (client === undefined) {
      client = new SessionClient();
      this.#byKey.set(key, client);
    }
    let uses = client.byNetwork.get(network);
    if (uses === undefined) {
      uses = new Heap();
      client.byNetwork.set(network, uses);
    }
    uses.update(use, usedAt);
    this.#bySize.update(client, client.key - 1);
  }

  remove({ owner, use }: Session): void {
    const key = clientKey(owner);
    const network = clientNetwork(owner.address);
    const client = this.#byKey.get(key);
    const uses = client?.byNetwork.get(network);
    if (client === undefined || uses === undefined) return;
    uses.remove(use);
    if (uses.size === 0) client.byNetwork.delete(network);
    this.#bySize.update(client, client.key + 1);
    if (client.key < 0) return;
    this.#bySize.remove(client);
    this.#byKey.delete(key);
  }

  countOf(owner: SessionOwner): number {
    return -(this.#byKey.get(clientKey(owner))?.key ?? 0);
  }

  /** Returns the session to end when the client has reached its limit of sessions. */
  leastUsedOf(owner: SessionOwner, now: number): Session | undefined {
    return leastUsed(this.#byKey.get(clientKey(owner)), now);
  }

  /**
   * Returns the session to end when all clients together have reached the limit of sessions. It is a session of the
   * client with the most sessions.
   */
  leastUsedOfLargest(now: number): Session | undefined {
    return leastUsed(this.#bySize.first, now);
  }
}

function clientKey({ user, address }: SessionOwner): string {
  return user === '' ? `address ${clientNetwork(address)}` : `user ${user}`;
}

/**
 * A user may connect from several networks. Looks only at the network with the most sessions of the user, and returns
 * its session that has been idle for the longest time or, if none is idle, any of them.
 */
function leastUsed(client: SessionClient | undefined, now: number): Session | undefined {
  let largest: Heap<SessionUse> | undefined;
  for (const uses of client?.byNetwork.values() ?? []) {
    if (largest === undefined || uses.size > largest.size) largest = uses;
  }
  for (let first = largest?.first; first !== undefined; first = largest?.first) {
    const { openLeases, usedAt } = first.session;
    const usedLastAt = openLeases > 0 ? now : usedAt;
    if (first.key >= usedLastAt) return first.session;
    largest?.update(first, usedLastAt);
  }
  return undefined;
}
