import { expect, test } from 'vitest';
import { BatchedChannel } from '../../../src/plane/workers/batched-channel.ts';
import { ManualClock } from '../../support/manual-clock.ts';

interface Word {
  readonly word: number;
}

function openChannel() {
  const sent: (readonly Word[])[] = [];
  const clock = new ManualClock();
  return { channel: new BatchedChannel<Word>(clock, (batch) => void sent.push(batch)), sent, clock };
}

/** The end of this turn of the event loop. */
const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

test('channel: messages of one turn go out as one batch, in order', async () => {
  const { channel, sent } = openChannel();
  channel.send({ word: 1 });
  await Promise.resolve().then(() => channel.send({ word: 2 }));
  process.nextTick(() => channel.send({ word: 3 }));
  expect(sent).toEqual([]);
  await nextTurn();
  expect(sent).toEqual([[{ word: 1 }, { word: 2 }, { word: 3 }]]);
  channel.send({ word: 4 });
  await nextTurn();
  expect(sent.slice(1)).toEqual([[{ word: 4 }]]);
});

test('channel: sendLater adds a message to the next batch, in order', async () => {
  const { channel, sent, clock } = openChannel();
  channel.sendLater({ word: 1 });
  channel.sendLater({ word: 2 });
  await nextTurn();
  expect(sent).toEqual([]);
  channel.send({ word: 3 });
  channel.sendLater({ word: 4 });
  await nextTurn();
  expect(sent).toEqual([[{ word: 1 }, { word: 2 }, { word: 3 }, { word: 4 }]]);
  expect(clock.armedCount).toBe(0);
});

test('channel: sendLater sends after 100 ms when nothing else is sent', async () => {
  const { channel, sent, clock } = openChannel();
  channel.sendLater({ word: 1 });
  clock.advance(99);
  expect(sent).toEqual([]);
  clock.advance(1);
  expect(sent).toEqual([[{ word: 1 }]]);
  channel.sendLater({ word: 2 });
  clock.advance(100);
  expect(sent.length).toBe(2);
  expect(clock.armedCount).toBe(0);
});

test('channel: flush sends the batch at once, and only once', async () => {
  const { channel, sent } = openChannel();
  channel.send({ word: 1 });
  channel.flush();
  channel.flush();
  expect(sent).toEqual([[{ word: 1 }]]);
  await nextTurn();
  expect(sent.length).toBe(1);
});

test('channel: nothing is sent after close', async () => {
  const { channel, sent, clock } = openChannel();
  channel.sendLater({ word: 1 });
  channel.send({ word: 2 });
  channel.close();
  channel.send({ word: 3 });
  channel.sendLater({ word: 4 });
  await nextTurn();
  clock.advance(10);
  expect(sent).toEqual([]);
  expect(clock.armedCount).toBe(0);
});
