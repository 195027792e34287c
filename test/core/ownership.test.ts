import { expect, test } from 'vitest';
import { Ownership, openAll } from '../../src/core/ownership.ts';

test('ownership: closes one by one, the last opened first', async () => {
  const calls: string[] = [];
  const owner = new Ownership();
  for (const name of ['a', 'b', 'c']) {
    owner.own(name, async () => {
      calls.push(`${name} closing`);
      await new Promise((next) => setImmediate(next));
      calls.push(`${name} closed`);
    });
  }
  await Promise.all([owner.close(), owner.close()]);
  expect(calls).toEqual(['c closing', 'c closed', 'b closing', 'b closed', 'a closing', 'a closed']);
});

test('ownership: names what fails to close, and closes the rest', async () => {
  const calls: string[] = [];
  const owner = new Ownership();
  owner.own('first', () => void calls.push('first'));
  owner.own('second', () => Promise.reject(new Error('stuck')));
  await expect(owner.close()).rejects.toThrow('second did not close: Error: stuck');
  expect(calls).toEqual(['first']);
});

test('ownership: if opening fails, closes what was opened and rethrows', async () => {
  const calls: string[] = [];
  const opening = openAll(async (owner) => {
    await owner.open('first', { close: () => void calls.push('first closed') });
    throw new Error('port in use');
  });
  await expect(opening).rejects.toThrow('port in use');
  expect(calls).toEqual(['first closed']);
});

test('ownership: opening something while closing is a TypeError', async () => {
  const owner = new Ownership();
  await owner.close();
  expect(() => owner.own('late', () => {})).toThrow(TypeError);
});
