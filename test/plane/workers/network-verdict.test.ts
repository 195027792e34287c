import { expect, test } from 'vitest';
import { NetworkVerdict } from '../../../src/plane/workers/workers-plane.ts';
import { ManualClock } from '../../support/manual-clock.ts';

const ANSWER_VALID_MS = 5_000;

function openVerdict() {
  const clock = new ManualClock();
  const changes: string[] = [];
  const verdict = new NetworkVerdict(
    clock,
    () => ANSWER_VALID_MS,
    (process) => changes.push(`${process} is overruled`),
    (down) => changes.push(down ? 'down' : 'up'),
  );
  return { clock, changes, verdict };
}

test('network verdict: the network is down as long as one process says so', () => {
  const { changes, verdict } = openVerdict();
  verdict.judged(1, true);
  verdict.judged(2, true);
  verdict.judged(1, false);
  expect(changes).toEqual(['down']);
  verdict.judged(2, false);
  expect(changes).toEqual(['down', 'up']);
});

test('network verdict: a process without answers is overruled when another got one recently', () => {
  const { clock, changes, verdict } = openVerdict();
  verdict.answered();
  clock.advance(ANSWER_VALID_MS);
  verdict.judged(1, true);
  expect(changes).toEqual(['1 is overruled']);
  clock.advance(1);
  verdict.judged(1, true);
  expect(changes).toEqual(['1 is overruled', 'down']);
});

test('network verdict: an answer to any process overrules all', () => {
  const { changes, verdict } = openVerdict();
  verdict.judged(1, true);
  verdict.judged(2, true);
  verdict.answered();
  expect(changes).toEqual(['down', '1 is overruled', '2 is overruled', 'up']);
  verdict.judged(1, false);
  expect(changes.length).toBe(4);
});

test('network verdict: the judgement of a process no longer counts when the process ends', () => {
  const { changes, verdict } = openVerdict();
  verdict.judged(1, true);
  verdict.remove(2);
  expect(changes).toEqual(['down']);
  verdict.remove(1);
  expect(changes).toEqual(['down', 'up']);
});
