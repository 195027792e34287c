/**
 * Hedges of sessions. A slow member keeps its sessions; a member that fails loses them to the member that served
 * instead.
 */
import { expect, test } from 'vitest';
import { accept, acquire, addMembers, close, openKit, type PoolKit, use } from './pool-kit.ts';

const ABC = { session: 'abc' };

/** Starts a hedge for a session whose own member is slow. */
function startHedge(kit: PoolKit) {
  const own = acquire(kit, ABC);
  kit.clock.advance(100);
  const hedge = acquire(kit, ABC, { avoid: [own.member], hedge: true });
  return { own, hedge };
}

test('session hedge: a hedge that wins leaves the session where it is', () => {
  const kit = openKit();
  addMembers(kit, 5);
  const first = use(kit, ABC).member;
  for (let time = 0; time < 3; time += 1) {
    const { own, hedge } = startHedge(kit);
    expect(own.member).toBe(first);
    accept(kit, hedge);
    accept(kit, own, 900);
    close(kit, hedge);
    close(kit, own);
  }
  expect(kit.events('session.moved')).toEqual([]);
});

test('session hedge: a new session moves to the hedge that wins, because no target has seen its own exit', () => {
  const kit = openKit();
  addMembers(kit, 5);
  const { own, hedge } = startHedge(kit);
  accept(kit, hedge);
  accept(kit, own, 900);
  expect(kit.events('session.moved')).toMatchObject([{ from: own.member, to: hedge.member }]);
  expect(use(kit, ABC).member).toBe(hedge.member);
});

test('session hedge: all hedges of a session come through the same member', () => {
  const kit = openKit();
  addMembers(kit, 5);
  use(kit, ABC);
  const hedges = Array.from({ length: 4 }, () => {
    const { own, hedge } = startHedge(kit);
    accept(kit, hedge);
    accept(kit, own, 900);
    return hedge.member;
  });
  expect(new Set(hedges).size).toBe(1);
});

test.each(['member', 'member-for-target'] as const)(
  'session hedge: when its own member fails later (%s), the session moves to the member of the hedge',
  (blame) => {
    const kit = openKit();
    addMembers(kit, 5);
    use(kit, ABC);
    const { own, hedge } = startHedge(kit);
    accept(kit, hedge);
    kit.pool.report({ lease: own.id, kind: 'failed', blame, fault: 'member-silent' });
    expect(kit.events('session.moved')).toMatchObject([
      { from: own.member, to: hedge.member, reason: 'failed-over' },
    ]);
    expect(use(kit, ABC).member).toBe(hedge.member);
  },
);

test('session hedge: when its own member failed first, the session moves as the hedge wins', () => {
  const kit = openKit();
  addMembers(kit, 5);
  use(kit, ABC);
  const { own, hedge } = startHedge(kit);
  kit.pool.report({ lease: own.id, kind: 'failed', blame: 'member', fault: 'member-unreachable' });
  accept(kit, hedge);
  expect(kit.events('session.moved')).toMatchObject([{ from: own.member, to: hedge.member }]);
});
