import fc from 'fast-check';
import { expect, test } from 'vitest';
import { timeSlotAt } from '../../src/pool/pick.ts';

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
