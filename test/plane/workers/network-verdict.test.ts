import { expect, test } from 'vitest';
import { NetworkVerdict } from '../../../src/plane/workers/network-verdict.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const FRESH_MS = 5_000;

function openVerdict() {
  const clock = new ManualClock();
  const told: string[] = [];
  const verdict = new NetworkVerdict({
    clock,
    freshMs: () => FRESH_MS,
    reassure: (judge) => told.push(`${judge} is reassured`),
    onJudged: (down) => told.push(down ? 'down' : 'up'),
  });
  return { clock, told, verdict };
}

test('shared verdict: it is down as long as one says so', () => {
  const { told, verdict } = openVerdict();
  verdict.judged(1, true);
  verdict.judged(2, true);
  verdict.judged(1, false);
  expect(told).toEqual(['down']);
  verdict.judged(2, false);
  expect(told).toEqual(['down', 'up']);
});

test('shared verdict: who finds nobody is reassured when another had an answer just now', () => {
  const { clock, told, verdict } = openVerdict();
  verdict.answered();
  clock.advance(FRESH_MS);
  verdict.judged(1, true);
  expect(told).toEqual(['1 is reassured']);
  clock.advance(1);
  verdict.judged(1, true);
  expect(told).toEqual(['1 is reassured', 'down']);
});

test('shared verdict: an answer to anyone ends it for all', () => {
  const { told, verdict } = openVerdict();
  verdict.judged(1, true);
  verdict.judged(2, true);
  verdict.answered();
  expect(told).toEqual(['down', '1 is reassured', '2 is reassured', 'up']);
  verdict.judged(1, false);
  expect(told.length).toBe(4);
});

test('shared verdict: what a process judged ends with it', () => {
  const { told, verdict } = openVerdict();
  verdict.judged(1, true);
  verdict.gone(2);
  expect(told).toEqual(['down']);
  verdict.gone(1);
  expect(told).toEqual(['down', 'up']);
});
