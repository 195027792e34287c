/** Restores the pool from noria's snapshot, and saves the snapshot after changes. */
import type { EventBus, EventName } from '../core/events.ts';
import { canonicalIp } from '../core/host-port.ts';
import { formatCount } from '../core/words.ts';
import type { Pool } from '../pool/pool.ts';
import { decodeSnapshot } from '../pool/stored-state.ts';
import type { RefuseAddress } from '../service/decode.ts';
import type { SnapshotFile } from '../state/snapshot-file.ts';

const REASONS = {
  address: 'without a valid address',
  private: 'at private addresses',
  own: 'at addresses of noria itself',
} as const;

/** After these events, noria saves a snapshot within seconds. After a draw, noria saves one at once. */
const SAVED_SOON_AFTER = [
  'member.left',
  'member.quarantined',
  'site.banned',
  'fleet.store',
] as const satisfies readonly EventName[];

/** Restores the pool. The addresses of its members must pass the same checks as those of drawn members. */
export function restorePool(
  pool: Pool,
  file: Pick<SnapshotFile, 'read' | 'ageMs'>,
  refuses: RefuseAddress,
  warn: (message: string) => void,
): void {
  const stored = file.read('pool');
  if (stored === undefined) return;
  const snapshot = decodeSnapshot(stored);
  if (snapshot === undefined) {
    warn('the members in the snapshot are invalid; noria starts without them');
    return;
  }
  const refused = { address: 0, private: 0, own: 0 };
  const members = snapshot.members.filter(({ host, port }) => {
    const reason = canonicalIp(host) === host ? refuses(host, port) : 'address';
    if (reason !== undefined) refused[reason] += 1;
    return reason === undefined;
  });
  pool.restore({ ...snapshot, members }, file.ageMs('pool'));
  if (members.length === snapshot.members.length) return;
  const parts = (['address', 'private', 'own'] as const).filter((reason) => refused[reason] > 0);
  const counts = parts.map((reason) => `${refused[reason]} ${REASONS[reason]}`).join(', ');
  warn(
    `noria does not restore ${snapshot.members.length - members.length} members of the snapshot: ${counts}`,
  );
}

/** Only after the listeners have opened are all addresses known: of port 0, and of inherited sockets (`fd:3`). */
export function evictOwnMembers(
  pool: Pick<Pool, 'members' | 'evict'>,
  refuses: RefuseAddress,
  warn: (message: string) => void,
): void {
  const own = pool.members().filter(({ host, port }) => refuses(host, port) === 'own');
  for (const { id } of own) pool.evict(id);
  if (own.length === 0) return;
  const addresses = own.length === 1 ? 'its address is' : 'their addresses are';
  warn(`noria removes ${formatCount(own.length, 'member')} of the snapshot: ${addresses} noria's own`);
}

export function keepSnapshot(
  file: Pick<SnapshotFile, 'addPart' | 'save' | 'saveSoon'>,
  parts: Readonly<Record<string, () => unknown>>,
  bus: EventBus,
): Disposable {
  for (const [name, read] of Object.entries(parts)) file.addPart(name, read);
  const subscriptions = [
    bus.on('draw.done', () => void file.save()), // a draw is saved at once, because its members cost money
    ...SAVED_SOON_AFTER.map((name) => bus.on(name, () => file.saveSoon())),
  ];
  return {
    [Symbol.dispose]: () => {
      for (const subscription of subscriptions) subscription[Symbol.dispose]();
    },
  };
}
