import { expect, test } from 'vitest';
import { MIN_LOST_MEMBERS, NetworkWatch } from '../../src/dialer/reachability.ts';
import { ManualClock } from '../support/manual-clock.ts';

function makeWatch() {
  const clock = ManualClock.dayOld();
  const judged: boolean[] = [];
  const watch = new NetworkWatch(clock, (down) => judged.push(down));
  /** Reports members as lost, each after an attempt of 100 ms. */
  const lose = (count: number, from = 0) => {
    clock.advance(101);
    for (let index = from; index < from + count; index += 1) watch.lost(`m${index}`, 100);
  };
  return { clock, watch, judged, lose };
}

const ENOUGH = MIN_LOST_MEMBERS;

test('network watch: several members lost in a row mean that the network is down, reported once', () => {
  const { watch, judged, lose } = makeWatch();
  lose(ENOUGH - 1);
  expect(watch.down).toBe(false);
  lose(5, ENOUGH - 1);
  expect([watch.down, judged]).toEqual([true, [true]]);
});

test('network watch: one member lost repeatedly does not mean that the network is down', () => {
  const { watch, lose } = makeWatch();
  for (let time = 0; time < 20; time += 1) lose(1);
  expect(watch.down).toBe(false);
});

test('network watch: any answer in between resets the count', () => {
  const { watch, lose } = makeWatch();
  lose(ENOUGH - 1);
  watch.answered();
  watch.lost('m9', 0);
  lose(ENOUGH - 1, 10);
  expect(watch.down).toBe(false);
});

test('network watch: losses do not count if another machine answered during the attempt', () => {
  const { clock, watch, judged } = makeWatch();
  clock.advance(200);
  watch.answered();
  clock.advance(100);
  for (let index = 0; index < 32; index += 1) watch.lost(`m${index}`, 150);
  expect(judged).toEqual([]);
  for (let index = 0; index < 32; index += 1) watch.lost(`m${index}`, 99);
  expect(judged).toEqual([true]);
});

test('network watch: losses far apart do not add up', () => {
  const { clock, watch } = makeWatch();
  for (let index = 0; index < 10; index += 1) {
    watch.lost(`m${index}`, 100);
    clock.advance(30_000);
  }
  expect(watch.down).toBe(false);
});

test('network watch: the first answer means that the network is up, reported once', () => {
  const { watch, judged, lose } = makeWatch();
  lose(ENOUGH);
  watch.answered();
  watch.answered();
  expect([watch.down, judged]).toEqual([false, [true, false]]);
  lose(ENOUGH);
  expect(judged).toEqual([true, false, true]);
});

test('network watch: after two minutes without an answer the network no longer counts as down; the next answer starts the watch again', () => {
  const { clock, watch, judged, lose } = makeWatch();
  lose(ENOUGH);
  clock.advance(120_000);
  expect(watch.down).toBe(true);
  clock.advance(1);
  expect([watch.down, judged]).toEqual([false, [true, false]]);
  lose(ENOUGH, 20);
  expect(watch.down).toBe(false);
  watch.answered();
  expect(judged, 'it already counted as up').toEqual([true, false]);
  lose(ENOUGH, 20);
  expect(watch.down).toBe(true);
});
