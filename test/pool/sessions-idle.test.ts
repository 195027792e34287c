import { expect, test } from 'vitest';
import { EventBus } from '../../src/core/events.ts';
import { Sessions } from '../../src/pool/sessions.ts';
import { ManualClock } from '../support/manual-clock.ts';

test('sessions: an idle session ends even if its count of open leases is negative', () => {
  const clock = new ManualClock();
  const settings = { sessionTtlMs: 60_000, maxSessionTtlMs: 600_000, maxSessionsPerClient: 10 };
  const sessions = new Sessions({ clock, bus: new EventBus(() => {}), observers: [] }, 10, settings);
  const session = sessions.use('cart', {}, clock.monotonic());
  session.openLeases -= 1; // an impossible count: the callback of the timer must return nevertheless
  for (let minute = 0; minute < 2; minute += 1) clock.advance(60_000);
  expect(sessions.byName.size).toBe(0);
  sessions.close();
});
