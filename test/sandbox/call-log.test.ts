import { expect, test } from 'vitest';
import { CallLog, type CallRecord } from '../../src/sandbox/service.ts';

const record = (n: number): CallRecord => ({
  operation: 'shared',
  instance: 'one',
  method: 'GET',
  params: {},
  client: '127.0.0.1',
  arrivedAt: n,
  early: false,
  outcome: '10001',
});

test('call log: keeps the latest 1,000 calls and counts all', () => {
  const log = new CallLog();
  for (let n = 0; n < 1_005; n += 1) log.add(record(n));
  expect([log.latest.length, log.latest[0]?.arrivedAt, log.latest.at(-1)?.arrivedAt]).toEqual([
    1_000, 5, 1_004,
  ]);
  expect(log.stats(['one', 'two'])).toMatchObject({
    calls: 1_005,
    instances: { one: { calls: 1_005 }, two: { calls: 0 } },
  });
});
