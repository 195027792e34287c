/** The open leases that other replicas report: each counts only for the member or session for which it was reported. */
import { expect, test } from 'vitest';
import { PoolSharing } from '../../src/fleet/pool-sharing.ts';
import { addMembers, openKit, type PoolKit, use } from '../pool/pool-kit.ts';

const TTL_MS = 60_000;
const SESSION = { session: 's1', sessionTtlMs: TTL_MS };

function openGroup() {
  const kit = openKit();
  const ignore = () => {};
  const callbacks = { onChange: ignore, onUse: ignore, onServed: ignore };
  const options = { ...callbacks, sameMachine: true, countsLeases: true };
  return { kit, sharing: new PoolSharing(kit.pool.parts, options) };
}

/** Reports how many leases of the session and of its member are open in a replica. */
function report({ kit, sharing }: ReturnType<typeof openGroup>, by: string, openLeases: number): void {
  const usedAt = kit.clock.monotonic();
  const member = kit.pool.members()[0]?.id ?? 'not known yet';
  sharing.record(by, {
    waiting: 0,
    demand: {},
    members: [{ member, uses: 0, openLeases }],
    sessions: [{ session: 's1', uses: 0, openLeases, usedAt, ttlMs: TTL_MS }],
  });
}

function openSession(kit: PoolKit): void {
  use(kit, SESSION);
}

const namesOf = (kit: PoolKit) => kit.pool.sessions().map(({ id }) => id);

test('other replicas: a lease that was reported before the session existed does not count when it ends', () => {
  const group = openGroup();
  const { kit } = group;
  report(group, 'one', 1);
  addMembers(kit, 1);
  openSession(kit);
  report(group, 'one', 0);
  report(group, 'two', 1);
  kit.clock.advance(2 * TTL_MS);
  expect(namesOf(kit)).toEqual(['s1']);
  report(group, 'two', 0);
  kit.clock.advance(2 * TTL_MS);
  expect(namesOf(kit)).toEqual([]);
});

test('other replicas: a lease of an ended session does not count for a new session of the same name', () => {
  const group = openGroup();
  const { kit } = group;
  addMembers(kit, 1);
  openSession(kit);
  report(group, 'one', 1);
  kit.pool.forgetSession('s1');
  openSession(kit);
  report(group, 'one', 0);
  report(group, 'two', 1);
  kit.clock.advance(2 * TTL_MS);
  expect(namesOf(kit)).toEqual(['s1']);
});

test('other replicas: the leases of a replica that has left do not count for a new session', () => {
  const group = openGroup();
  const { kit, sharing } = group;
  addMembers(kit, 1);
  openSession(kit);
  report(group, 'one', 1);
  kit.pool.forgetSession('s1');
  openSession(kit);
  sharing.retain([]);
  report(group, 'two', 1);
  kit.clock.advance(2 * TTL_MS);
  expect(namesOf(kit)).toEqual(['s1']);
});
