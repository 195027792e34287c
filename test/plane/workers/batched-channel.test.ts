import { expect, test } from 'vitest';
import { BatchedChannel } from '../../../src/plane/workers/batched-channel.ts';
import { ManualClock } from '../../support/manual-clock.ts';

interface Word {
  readonly word: number;
}

function openLink() {
  const sent: (readonly Word[])[] = [];
  const clock = new ManualClock();
  return { link: new BatchedChannel<Word>(clock, (batch) => void sent.push(batch)), sent, clock };
}

/** The end of this turn, and of what it has set off. */
const nextTurn = () => new Promise<void>((resolve) => setImmediate(resolve));

test('link: all that is said in one turn is one message, in order', async () => {
  const { link, sent } = openLink();
  link.say({ word: 1 });
  await Promise.resolve().then(() => link.say({ word: 2 }));
  process.nextTick(() => link.say({ word: 3 }));
  expect(sent).toEqual([]);
  await nextTurn();
  expect(sent).toEqual([[{ word: 1 }, { word: 2 }, { word: 3 }]]);
  link.say({ word: 4 });
  await nextTurn();
  expect(sent.slice(1)).toEqual([[{ word: 4 }]]);
});

test('link: what nobody waits for goes with what is said next, in order', async () => {
  const { link, sent, clock } = openLink();
  link.mention({ word: 1 });
  link.mention({ word: 2 });
  await nextTurn();
  expect(sent).toEqual([]);
  link.say({ word: 3 });
  link.mention({ word: 4 });
  await nextTurn();
  expect(sent).toEqual([[{ word: 1 }, { word: 2 }, { word: 3 }, { word: 4 }]]);
  expect(clock.armedCount).toBe(0);
});

test('link: what nobody waits for goes by itself, when nothing else is said for a few ms', async () => {
  const { link, sent, clock } = openLink();
  link.mention({ word: 1 });
  clock.advance(4);
  expect(sent).toEqual([]);
  clock.advance(1);
  expect(sent).toEqual([[{ word: 1 }]]);
  link.mention({ word: 2 });
  clock.advance(5);
  expect(sent.length).toBe(2);
  expect(clock.armedCount).toBe(0);
});

test('link: what is said at last is sent at once, and only once', async () => {
  const { link, sent } = openLink();
  link.say({ word: 1 });
  link.flush();
  link.flush();
  expect(sent).toEqual([[{ word: 1 }]]);
  await nextTurn();
  expect(sent.length).toBe(1);
});

test('link: nothing is sent through a pipe that has gone', async () => {
  const { link, sent, clock } = openLink();
  link.mention({ word: 1 });
  link.say({ word: 2 });
  link.close();
  link.say({ word: 3 });
  link.mention({ word: 4 });
  await nextTurn();
  clock.advance(10);
  expect(sent).toEqual([]);
  expect(clock.armedCount).toBe(0);
});
