import { expect, test } from 'vitest';
import { NoriaError } from '../../src/core/faults.ts';
import { openRig, pass, settle, sourceOptions } from './rig.ts';

test('refill: start-up counts as a client, so every source of the first priority draws at once', async () => {
  const { service, status } = openRig();
  await settle();
  expect(service.calls).toEqual([{ at: 0, instance: '1001', count: 5 }]);
  expect(status()).toMatchObject({ name: 'city', product: 'short-classic', state: 'drawing', drawn: 0 });
});

test('refill: what is missing is drawn in calls of at most count, start to start at the interval and 250 ms', async () => {
  const { clock, service, status } = openRig({ sources: [sourceOptions({ size: 12, count: 5 })] });
  await settle();
  await pass(clock, 60_000);
  expect(service.calls.map(({ count }) => count)).toEqual([5, 5, 2]);
  expect(service.gaps.every((gap) => gap >= 10_250 && gap < 11_300)).toBe(true);
  expect(status()).toMatchObject({ state: 'ready', drawn: 12, code: '10001' });
});

test('refill: members are replaced before they expire, by as many as will be missing', async () => {
  const { clock, service, reservoir } = openRig();
  await settle();
  for (let minute = 0; minute < 4; minute += 1) {
    await pass(clock, 60_000);
    expect(reservoir.usableAt('city', clock.monotonic())).toBeGreaterThanOrEqual(5);
  }
  expect(service.calls.map(({ count }) => count)).toEqual([5, 5]);
});

test('refill: 12002 is answered by a longer wait and a warning that someone else may use the instance', async () => {
  const { clock, service, status, heard } = openRig({
    prepare: ({ service }) => {
      service.reply = (_call, index) => ({ code: index === 0 ? '12002' : '10001' });
    },
  });
  await settle();
  await pass(clock, 1_000);
  expect(status()).toMatchObject({ state: 'waiting', code: '12002' });
  expect(status().reason).toMatch(/^12002: /);
  expect(heard('source.warned')[0]?.message).toMatch(/something else may be using this instance/);
  await pass(clock, 60_000);
  expect(service.gaps[0]).toBeGreaterThan(20_000);
  expect(status().state).toBe('ready');
});

test('refill: a service that cannot be reached is tried again more and more slowly, at least every ten minutes', async () => {
  const { clock, service, status } = openRig({
    idleAfterMs: 0,
    prepare: ({ service }) => {
      service.reply = () => new NoriaError('service-transport', 'service.test refused the connection');
    },
  });
  await settle();
  await pass(clock, 3_600_000, 5_000);
  expect(status()).toMatchObject({ state: 'backoff', code: 'transport' });
  expect(status().message).toMatch(/refused the connection/);
  expect(service.gaps.every((gap) => gap >= 10_250)).toBe(true);
  expect(service.gaps.at(-1)).toBeGreaterThan(500_000);
  expect(service.gaps.at(-1)).toBeLessThanOrEqual(605_200);
  expect(service.calls.length).toBeLessThan(20);
});
