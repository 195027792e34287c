import { expect, test } from 'vitest';
import { EventBus } from '../../src/core/events.ts';
import { Pool } from '../../src/pool/pool.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { poolSettings } from '../support/pool-settings.ts';
import {
  accept,
  acquire,
  addMembers,
  close,
  drawn,
  fail,
  openKit,
  refusal,
  request,
  stateOf,
  use,
} from './pool-kit.ts';

test('pool: round-robin picks each member in turn', () => {
  const kit = openKit();
  addMembers(kit, 3);
  const order = Array.from({ length: 6 }, () => use(kit).member);
  expect(new Set(order.slice(0, 3)).size).toBe(3);
  expect(order.slice(3)).toEqual(order.slice(0, 3));
});

test('pool: inside the safety margin a member gets no new tunnels, and open ones continue', () => {
  const kit = openKit();
  addMembers(kit, 1, 60_000);
  const tunnel = acquire(kit);
  accept(kit, tunnel);
  kit.clock.advance(56_999);
  use(kit);
  kit.clock.advance(1);
  expect(refusal(kit).code).toBe('pool-empty');
  expect(stateOf(kit, tunnel.member)).toBe('draining');
  close(kit, tunnel);
  expect(stateOf(kit, tunnel.member)).toBe('left');
  expect(kit.events('member.left')).toMatchObject([{ reason: 'expired', uses: 2 }]);
});

test('pool: the next member that joins serves a waiting client', async () => {
  const kit = openKit();
  const waiting = kit.pool.acquire(request({}, { waitMs: 5_000 }));
  expect(waiting).toBeInstanceOf(Promise);
  kit.clock.advance(1_200);
  kit.pool.addMembers('city', [drawn(kit, 1)]);
  await expect(waiting).resolves.toMatchObject({ source: 'city', waitedMs: 1_200 });
  expect(kit.events('client.waited')).toEqual([{ ms: 1_200, outcome: 'served' }]);
});

test('pool: a faulty member is quarantined, then tried by one client, then evicted by its second fault', () => {
  const kit = openKit();
  addMembers(kit, 1);
  fail(kit, acquire(kit));
  expect(kit.events('member.quarantined')).toMatchObject([{ forMs: 10_000, faults: 1 }]);
  kit.clock.advance(10_000);
  const trial = acquire(kit);
  expect(trial.doubtful).toBe(true);
  expect(refusal(kit).code).toBe('pool-empty');
  fail(kit, trial);
  expect(kit.events('member.left')).toMatchObject([{ reason: 'failed', fault: 'member-unreachable' }]);
});

test('pool: a closed pool no longer listens to events', () => {
  const bus = new EventBus(() => {});
  let listeners = 0;
  const on: EventBus['on'] = (name, observer) => {
    const listening = EventBus.prototype.on.call(bus, name, observer as never);
    listeners += 1;
    return {
      [Symbol.dispose]: () => {
        listeners -= 1;
        listening[Symbol.dispose]();
      },
    };
  };
  Object.assign(bus, { on });
  const pool = new Pool({
    ...{ bus, clock: new ManualClock(), random: () => 0, forecasts: () => [] },
    ...poolSettings(),
  });
  expect(listeners).toBeGreaterThan(0);
  pool.close();
  expect(listeners).toBe(0);
});
