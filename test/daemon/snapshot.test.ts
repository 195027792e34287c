import { expect, test } from 'vitest';
import { isPrivateAddress } from '../../src/core/networks.ts';
import { evictOwnMembers, restorePool } from '../../src/daemon/snapshot.ts';
import type { RefuseAddress } from '../../src/service/decode.ts';
import { addMembers, openKit } from '../pool/pool-kit.ts';

const refuses: RefuseAddress = (host, port) => {
  if (port === 8888) return 'own';
  return isPrivateAddress(host) ? 'private' : undefined;
};

/** Returns the pool after a restart with the stored value, and the warnings. */
function restored(stored: unknown) {
  const kit = openKit();
  const warnings: string[] = [];
  const file = { read: () => JSON.parse(JSON.stringify(stored)), ageMs: () => 0 };
  restorePool(kit.pool, file, refuses, (message) => warnings.push(message));
  return { hosts: kit.pool.members().map(({ host }) => host), warnings };
}

/** A snapshot with members at these addresses. */
function snapshotOf(...addresses: readonly (readonly [string, number])[]) {
  const kit = openKit();
  addMembers(kit, addresses.length);
  const snapshot = kit.pool.snapshot();
  const members = snapshot.members.map((member, index) => {
    const [host, port] = addresses[index] ?? ['', 0];
    return { ...member, host, port };
  });
  return { ...snapshot, members };
}

test('restore: members whose addresses a draw could not bring are left out, with one warning', () => {
  const { hosts, warnings } = restored(
    snapshotOf(
      ['198.51.100.1', 8000],
      ['169.254.169.254', 80],
      ['::ffff:10.0.0.1', 80],
      ['2001:0:808:808::f5ff:fffe', 80],
      ['198.51.100.2', 8888],
      ['metadata.internal', 80],
      ['198.51.100.3\u001b', 80],
    ),
  );
  expect(hosts).toEqual(['198.51.100.1']);
  expect(warnings).toEqual([
    'noria does not restore 6 members of the snapshot: 3 without a valid address, 2 at private addresses, 1 at addresses of noria itself',
  ]);
});

test('restore: members at addresses that noria has only since its listeners are open are removed, with one warning', () => {
  const kit = openKit();
  const file = {
    read: () => snapshotOf(['198.51.100.1', 8000], ['198.51.100.2', 41_234]),
    ageMs: () => 0,
  };
  const warnings: string[] = [];
  const warn = (message: string) => void warnings.push(message);
  restorePool(kit.pool, file, refuses, warn);
  evictOwnMembers(kit.pool, (_host, port) => (port === 41_234 ? 'own' : undefined), warn);
  expect(kit.pool.members().map(({ host }) => host)).toEqual(['198.51.100.1']);
  expect(warnings).toEqual(["noria removes 1 member of the snapshot: its address is noria's own"]);
});

test('restore: valid members are restored without a warning', () => {
  expect(restored(snapshotOf(['198.51.100.1', 8000], ['2001:db8::1', 8000]))).toEqual({
    hosts: ['198.51.100.1', '2001:db8::1'],
    warnings: [],
  });
});

test('restore: an invalid snapshot is a warning, and a missing one is not', () => {
  const { hosts, warnings } = restored({ version: 1 });
  expect({ hosts, warnings }).toEqual({
    hosts: [],
    warnings: ['the members in the snapshot are invalid; noria starts without them'],
  });
  const kit = openKit();
  const file = { read: () => undefined, ageMs: () => 0 };
  restorePool(kit.pool, file, refuses, (message) => expect.unreachable(message));
});
