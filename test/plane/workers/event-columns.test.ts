import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ForwardedEvent } from '../../../src/plane/workers/event-columns.ts';
import { packEvents, unpackEvents } from '../../../src/plane/workers/event-columns.ts';

const ms = fc.integer({ min: 0, max: 1e9 }).map((us) => us / 1_000);
const name = fc.constantFrom('a', 'b', 'c');

const event: fc.Arbitrary<ForwardedEvent> = fc.oneof(
  fc.record({ kind: is('event'), name: is('connection.opened'), event: fc.record({ listener: name }) }),
  fc.record({
    kind: is('event'),
    name: is('dial.attempted'),
    event: fc.record({
      source: name,
      member: name,
      outcome: fc.constantFrom('accepted' as const, 'cancelled' as const, 'member-cut' as const),
      phase: fc.constantFrom('connect' as const, 'done' as const),
      blame: fc.constantFrom('nobody' as const, 'member' as const),
      ms,
      hedge: fc.boolean(),
    }),
  }),
  fc.record({
    kind: is('event'),
    name: is('dial.ended'),
    event: fc.record(
      {
        outcome: is('accepted'),
        attempts: fc.nat(),
        ms,
        waitedMs: ms,
        target: name,
        source: name,
        remainingMs: ms,
      },
      { requiredKeys: ['outcome', 'attempts', 'ms', 'waitedMs', 'target'] },
    ),
  }),
);

function is<const T>(value: T) {
  return fc.constant(value);
}

test('event columns: events survive the pipe, in their order', () => {
  fc.assert(
    fc.property(fc.array(event, { maxLength: 60 }), (events) => {
      const sent = JSON.parse(JSON.stringify(packEvents(events)));
      expect([...unpackEvents(sent)]).toEqual(events);
    }),
  );
});

test('event columns: the events of many tunnels take a fraction of the bytes of the objects', () => {
  const events = Array.from(
    { length: 1_000 },
    (_, n): ForwardedEvent => ({
      kind: 'event',
      name: 'dial.attempted',
      event: {
        source: 'city',
        member: `member${n % 8}`,
        outcome: 'accepted',
        phase: 'done',
        blame: 'nobody',
        ms: n + 0.123456789,
        hedge: false,
      },
    }),
  );
  const [objects, columns] = [events, packEvents(events)].map((each) => JSON.stringify(each).length);
  expect((columns ?? 0) / (objects ?? 0)).toBeLessThan(0.2);
});
