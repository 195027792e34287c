import { expect, test } from 'vitest';
import { ForwardModeMemory } from '../../src/dialer/source-memory.ts';
import { ManualClock } from '../support/manual-clock.ts';

test('forward mode: CONNECT is tried first, and one refusal is enough for an unknown source', () => {
  const mode = new ForwardModeMemory(new ManualClock(), 'direct');
  expect(mode.current).toBe('direct');
  expect(mode.connectRefused('m1')).toBe(true);
  expect(mode.current).toBe('absolute');
});

test('forward mode: three members in a row must refuse before a source that accepts CONNECT is considered changed', () => {
  const mode = new ForwardModeMemory(new ManualClock(), 'direct');
  mode.connectAccepted();
  expect(mode.connectRefused('m1')).toBe(false);
  expect(mode.connectRefused('m1')).toBe(false);
  expect(mode.connectRefused('m2')).toBe(false);
  mode.connectAccepted();
  expect(mode.connectRefused('m3')).toBe(false);
  expect(mode.connectRefused('m4')).toBe(false);
  expect(mode.current).toBe('direct');
  expect(mode.connectRefused('m5')).toBe(true);
  expect(mode.current).toBe('absolute');
});

test('forward mode: CONNECT is tried again ten minutes after a refusal', () => {
  const clock = new ManualClock();
  const mode = new ForwardModeMemory(clock, 'direct');
  mode.connectRefused('m1');
  clock.advance(10 * 60_000);
  expect(mode.current).toBe('absolute');
  clock.advance(1);
  expect(mode.current).toBe('direct');
});

test('forward mode: a source with `absolute` starts in absolute form', () => {
  expect(new ForwardModeMemory(new ManualClock(), 'absolute').current).toBe('absolute');
});
