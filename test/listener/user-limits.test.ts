/** The limits of users, as one process counts them. */
import { expect, test } from 'vitest';
import { type Limits, UserLimits } from '../../src/listener/user-limits.ts';
import { ManualClock } from '../support/manual-clock.ts';

function limitsOf(limits: Limits) {
  const clock = new ManualClock();
  const users = new UserLimits(clock);
  users.configure([{ username: 'ann', limits }, { username: 'ben' }]);
  return { clock, users, retryAfterMs: () => users.admit('ann')?.context['retryAfterMs'] };
}

const DAY_MS = 86_400_000;
const usedToday = (bytes: number, members: number, processes = 1) => ({
  processes,
  leftMs: DAY_MS,
  users: { ann: { bytes, members } },
});

test('user limits: exactly `tunnels` requests are open at once, and others have no limit', () => {
  const { users } = limitsOf({ tunnels: 2 });
  expect([1, 2, 3].map(() => users.admit('ann')?.code)).toEqual([undefined, undefined, 'limit']);
  expect(Array.from({ length: 50 }, () => users.admit('ben')?.code).filter(Boolean)).toEqual([]);
  users.release('ann');
  expect([1, 2].map(() => users.admit('ann')?.code)).toEqual([undefined, 'limit']);
});

test('user limits: a request more than released frees no place', () => {
  const { users } = limitsOf({ tunnels: 1 });
  users.release('ann');
  users.admit('ann');
  users.release('ann');
  users.release('ann');
  expect([1, 2].map(() => users.admit('ann')?.code)).toEqual([undefined, 'limit']);
});

test('user limits: a rate admits its number a second, and says when the next one is free', () => {
  const { clock, users, retryAfterMs } = limitsOf({ rate: 4 });
  const admitted = () =>
    Array.from({ length: 20 }, () => users.admit('ann')).filter((error) => error === undefined);
  expect(admitted()).toHaveLength(4);
  expect(retryAfterMs()).toBeCloseTo(250);
  clock.advance(500);
  expect(admitted()).toHaveLength(2);
  clock.advance(60_000);
  expect(admitted(), 'unused requests are not saved').toHaveLength(4);
});

test('user limits: several processes share tunnels and rate', () => {
  const tunnels = limitsOf({ tunnels: 4 });
  tunnels.users.setToday(usedToday(0, 0, 2));
  expect([1, 2, 3].map(() => tunnels.users.admit('ann')?.code)).toEqual([undefined, undefined, 'limit']);
  const rate = limitsOf({ rate: 4 });
  rate.users.setToday(usedToday(0, 0, 2));
  expect([1, 2, 3].map(() => rate.users.admit('ann')?.code)).toEqual([undefined, undefined, 'limit']);
});

test('user limits: the bytes and the members of a day refuse until the day ends', () => {
  const bytes = limitsOf({ bytesPerDay: 1_000 });
  bytes.users.setToday(usedToday(999, 9));
  expect([bytes.users.admit('ann')?.code, bytes.users.isOverBytes('ann')]).toEqual([undefined, false]);
  bytes.users.setToday(usedToday(1_000, 9));
  bytes.clock.advance(1_000);
  expect(bytes.retryAfterMs()).toBe(DAY_MS - 1_000);
  expect([bytes.users.isOverBytes('ann'), bytes.users.isOverBytes('ben')]).toEqual([true, false]);
  const members = limitsOf({ membersPerDay: 3 });
  members.users.setToday(usedToday(10_000, 2));
  expect(members.users.admit('ann')?.code).toBeUndefined();
  members.users.setToday(usedToday(0, 3));
  expect(members.users.admit('ann')?.code).toBe('limit');
});

test('user limits: a reload that removes a limit forgets what is open, and a new limit counts from zero', () => {
  const ann = { username: 'ann', limits: { tunnels: 1, source: 'city' } };
  for (const without of [[], [{ username: 'ann' }]]) {
    const { users } = limitsOf({ tunnels: 1 });
    expect([1, 2].map(() => users.admit('ann')?.code)).toEqual([undefined, 'limit']);
    users.configure([ann]);
    expect(users.admit('ann')?.code, 'a reload that keeps the limit').toBe('limit');
    expect(users.sourceOf('ann')).toBe('city');
    users.configure(without);
    expect([users.admit('ann')?.code, users.sourceOf('ann')]).toEqual([undefined, undefined]);
    users.configure([ann]);
    expect([1, 2].map(() => users.admit('ann')?.code)).toEqual([undefined, 'limit']);
  }
});
