import { expect, test } from 'vitest';
import { ClientLock } from '../../src/sandbox/instance.ts';
import { ManualClock } from '../support/manual-clock.ts';

test('client lock: a client that has disconnected does not reserve the application', () => {
  const lock = new ClientLock(new ManualClock());
  expect(lock.acquire('')).toBeUndefined();
  expect(lock.acquire('192.0.2.1')).toBeUndefined();
  expect(lock.acquire('')).toBeUndefined();
  expect(lock.acquire('192.0.2.2')).toBe('192.0.2.1');
  expect(lock.acquire('192.0.2.1')).toBeUndefined();
});
