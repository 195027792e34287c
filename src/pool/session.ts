/** One session: the name under which a client stays on one member. And the sessions of each client, for the limits. */
import { Heap, type HeapNode } from '../core/heap.ts';
import { clientNetwork } from '../core/networks.ts';
import { ANY_MEMBER, type MemberFilter } from './filter.ts';
import type { SessionOwner } from './lease.ts';

export const REFRESH_SHARE = 1 / 4;

/** `key` is the monotonic moment at which the timer checks the session next. */
export class Session implements HeapNode {
  readonly name: string;
  readonly owner: SessionOwner;
  ttlMs: number;
  member: string | undefined;
  /** The member through which a hedge last won. If the session's own member fails, the session moves to it. */
  fallback: string | undefined;
  /** Whether a pick gave the session its member, and the member has accepted no attempt since: so no target has seen its exit. */
  memberIsNew = false;
  /** Whether the session's member failed an attempt and has accepted no attempt since. */
  memberFailed = false;
  filter: MemberFilter = ANY_MEMBER;
  usedAt: number;
  /** When the session got its member or, if later, when this member last accepted an attempt. */
  confirmedAt = Number.NEGATIVE_INFINITY;
  uses = 0;
  /** Both follow the options of the session's last request, so they need no place in the journal. */
  isFixed = false;
  isExclusive = false;
  reserved: readonly string[] = [];
  /** With those of other replicas if `SharingOptions.countsLeases` is set. A session with open leases is not idle. */
  openLeases = 0;
  recordedAt = Number.NEGATIVE_INFINITY;
  readonly use: SessionUse = { session: this, key: 0, heapIndex: -1 };
  key: number;
  heapIndex = -1;

  constructor(name: string, owner: SessionOwner, { ttlMs, usedAt }: { ttlMs: number; usedAt: number }) {
    this.name = name;
    this.owner = owner;
    this.ttlMs = ttlMs;
    this.usedAt = usedAt;
    this.key = this.nextCheckAt(usedAt);
  }

  get endsAt(): number {
    return this.usedAt + this.ttlMs;
  }

  /** At its end, or earlier to renew its journal record. */
  nextCheckAt(now: number): number {
    return Math.min(
      this.openLeases > 0 ? Number.POSITIVE_INFINITY : this.endsAt,
      now + this.ttlMs * REFRESH_SHARE,
    );
  }
}

/** `key` may be older than the last use: `SessionClients` corrects it before it chooses a session to end. */
interface SessionUse extends HeapNode {
  readonly session: Session;
}

/** `key` is the negated number of its sessions, so that the client with the most sessions comes first. */
interface SessionClient extends HeapNode {
  readonly byNetwork: Map<string, Heap<SessionUse>>;
}

/**
 * Decides which session ends at a limit. A client is a user or, without users, the network of its address. The sessions of a user are
 * grouped by network, so that one of their machines cannot displace the sessions of another. Uses of sessions change no group.
 */
export class SessionClients {
  readonly #byKey = new Map<string, SessionClient>();
  readonly #bySize = new Heap<SessionClient>();

  add({ owner, use, usedAt }: Session): void {
    const key = clientKey(owner);
    const network = clientNetwork(owner.address);
    const client = this.#byKey.get(key) ?? { byNetwork: new Map(), key: 0, heapIndex: -1 };
    const uses = client.byNetwork.get(network) ?? new Heap();
    this.#byKey.set(key, client);
    client.byNetwork.set(network, uses);
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

  leastUsedOf(owner: SessionOwner, now: number): Session | undefined {
    return leastUsed(this.#byKey.get(clientKey(owner)), now);
  }

  /** At the limit of all clients together. */
  leastUsedOfLargest(now: number): Session | undefined {
    return leastUsed(this.#bySize.first, now);
  }
}

function clientKey({ user, address }: SessionOwner): string {
  return user === '' ? `address ${clientNetwork(address)}` : `user ${user}`;
}

/** Looks only at the network with the most sessions. If no session is idle, any of them. */
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
