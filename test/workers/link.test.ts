import { expect, test } from 'vitest';
import { Link } from '../../src/workers/link.ts';

interface Word {
  readonly word: number;
}

function openLink(): { link: Link<Word>; sent: (readonly Word[])[] } {
  const sent: (readonly Word[])[] = [];
  return { link: new Link((batch) => void sent.push(batch)), sent };
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
  const { link, sent } = openLink();
  link.say({ word: 1 });
  link.close();
  link.say({ word: 2 });
  await nextTurn();
  expect(sent).toEqual([]);
});
