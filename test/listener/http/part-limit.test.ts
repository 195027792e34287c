import { expect, test } from 'vitest';
import { PartLimit } from '../../../src/listener/http/response-writer.ts';
import { until } from '../../support/until.ts';
import { record, socketPair } from '../socket-pair.ts';

test('part limit: only a few parts wait, however small they are, until they are written', async () => {
  const { near, far } = await socketPair();
  const received = record(far);
  let writtenCount = 0;
  const limit = new PartLimit(near, () => {
    writtenCount += 1;
  });
  near.cork();
  let parts = 0;
  do {
    near.write('x');
    parts += 1;
  } while (limit.mayWrite());
  expect(parts).toBe(64);
  near.write('x');
  expect([limit.mayWrite(), writtenCount]).toEqual([false, 0]);
  near.uncork();
  await until('the parts were written', () => writtenCount === 1);
  await until('all of them arrived', () => received.bytes === 65);
  near.write('x');
  expect(limit.mayWrite()).toBe(true);
});

test('part limit: parts that are written at once are not counted', async () => {
  const { near, far } = await socketPair();
  far.resume();
  const limit = new PartLimit(near, () => {});
  for (let part = 0; part < 200; part += 1) {
    near.write('x');
    await until('it was written', () => near.writableLength === 0);
    expect(limit.mayWrite()).toBe(true);
  }
});
