import fc from 'fast-check';
import { expect, test } from 'vitest';
import { isLease } from '../../src/pool/lease.ts';
import { timeSlotAt } from '../../src/pool/pick.ts';
import type { PoolChanges } from '../support/pool-settings.ts';
import { addMembers, openKit, request } from './pool-kit.ts';

const EXIT = '203.0.113.7';

/** Returns the time slots of `count` processes. */
function processes(count: number, waitMs = 1_000) {
  return Array.from({ length: count }, (_, index) => {
    const part = { count, index, sharesClock: true, changedAt: -1e9 };
    const startAt = (at: number, host: string) => timeSlotAt(part, `${EXIT} ${host}`, waitMs, at);
    return {
      mayUse: (at: number, host = 'one.example') => startAt(at, host) <= at,
      startAt,
    };
  });
}

test.each([
  ['a host', 1_000],
  ['its uses', 750],
] as const)(
  'time slots: two processes never use a member for %s at once, or shortly after each other',
  (_, waitMs) => {
    const all = processes(3, waitMs);
    let last = { by: -1, at: Number.NEGATIVE_INFINITY };
    let changes = 0;
    for (let at = 0; at < 400_000; at += 50) {
      const able = all.flatMap(({ mayUse }, by) => (mayUse(at) ? [by] : []));
      expect(able.length).toBeLessThanOrEqual(1);
      const [by] = able;
      if (by === undefined) continue;
      if (by !== last.by) {
        expect(at - last.at).toBeGreaterThanOrEqual(waitMs);
        changes += 1;
      }
      last = { by, at };
    }
    expect(changes).toBeGreaterThan(20);
  },
);

test('time slots: a member is usable most of the time, by each process about equally', () => {
  const all = processes(2);
  const shares = all.map(({ mayUse }) => {
    let usable = 0;
    for (let at = 0; at < 1_000_000; at += 100) if (mayUse(at)) usable += 1;
    return usable / 10_000;
  });
  for (const share of shares) expect(share).toBeGreaterThan(0.35);
});

test('time slots: a process may use the member from its start moment on, and not before', () => {
  const all = processes(4);
  fc.assert(
    fc.property(fc.nat({ max: 1e7 }), fc.nat({ max: 3 }), fc.domain(), (at, by, host) => {
      const process = all[by];
      const startAt = process?.startAt(at, host) ?? 0;
      expect(process?.mayUse(Math.max(at, startAt), host)).toBe(true);
      if (startAt > at) expect(process?.mayUse(startAt - 1, host)).toBe(false);
    }),
  );
});

test('time slots: after a change of the number of processes, all processes wait first', () => {
  const part = { count: 2, index: 0, sharesClock: true, changedAt: 50_000 };
  expect(timeSlotAt(part, `${EXIT} one.example`, 1_000, 50_000)).toBeGreaterThanOrEqual(51_000);
});

/** Which of two processes with one pool get the only member for a client of this host, at each 100 ms of five minutes. */
function grants(
  rotation: PoolChanges['rotation'],
  { routing = {}, host = 'one.example', sharesClock = true } = {},
) {
  const kits = [0, 1].map((index) => {
    const kit = openKit({ rotation });
    addMembers(kit, 1, 600_000);
    kit.pool.parts.members.index.part = { count: 2, index, sharesClock, changedAt: -1e9 };
    return kit;
  });
  return Array.from({ length: 3_000 }, () =>
    kits.map((kit) => {
      const lease = kit.pool.acquire(request(routing, { targetHost: host }));
      if (!(lease instanceof Promise) && isLease(lease))
        kit.pool.report({ lease: lease.id, kind: 'failed', blame: 'target', fault: 'target-unreachable' });
      kit.clock.advance(100);
      return 'id' in lease;
    }),
  );
}

const together = (turns: readonly boolean[][]) => turns.filter(([one, two]) => one && two).length;
const alone = (turns: readonly boolean[][]) => turns.filter(([one, two]) => one !== two).length;

test.each<[string, 'share it' | 'take turns', PoolChanges['rotation'], Parameters<typeof grants>[1]?]>([
  ['uses are limited', 'take turns', { maxUsesPerMember: 9 }],
  [
    'uses are limited and a session has it',
    'take turns',
    { maxUsesPerMember: 9 },
    { routing: { session: 's' } },
  ],
  ['uses are spaced', 'take turns', { perHostSpacingMs: 100 }],
  [
    'uses are spaced and a session has it',
    'share it',
    { perHostSpacingMs: 100 },
    { routing: { session: 's' } },
  ],
  ['nothing is limited', 'share it', {}],
  ['they have no common clock', 'share it', { maxUsesPerMember: 9 }, { sharesClock: false }],
])('time slots: if %s, two processes with one member %s', (_, expected, rotation, options) => {
  const turns = grants(rotation, options);
  if (expected === 'share it') expect(together(turns)).toBeGreaterThan(turns.length * 0.99);
  else {
    expect(together(turns)).toBe(0);
    expect(alone(turns)).toBeGreaterThan(turns.length / 2);
  }
});

test.each([{}, { session: 's' }])(
  'time slots: a client waits until the slot of its process begins',
  async (routing) => {
    const kit = openKit({ rotation: { maxUsesPerMember: 9 } });
    addMembers(kit, 1, 600_000);
    const id = kit.pool.members()[0]?.id ?? '';
    const now = kit.clock.monotonic() + 40_000;
    const part = { count: 2, index: 0, sharesClock: true, changedAt: now };
    kit.pool.parts.members.index.part = part;
    kit.clock.advance(40_000);
    const startsAt = timeSlotAt(part, id, 750, now);
    const waiting = kit.pool.acquire(request(routing, { waitMs: 300_000 }));
    expect(waiting).toBeInstanceOf(Promise);
    kit.clock.advance(startsAt - now);
    await expect(waiting).resolves.toMatchObject({ member: id, waitedMs: startsAt - now });
  },
);
