import { expect, test } from 'vitest';
import { ForwardModeMemory } from '../../src/dialer/forward-mode.ts';
import { ManualClock } from '../support/manual-clock.ts';

test('forms: CONNECT comes first, and one member that does not CONNECT speaks for an unknown source', () => {
  const forms = new ForwardModeMemory(new ManualClock(), 'direct');
  expect(forms.current).toBe('direct');
  expect(forms.connectRefused('m1')).toBe(true);
  expect(forms.current).toBe('absolute');
});

test('forms: in a source that is known to CONNECT, one that does not is alone, three in a row are a change', () => {
  const forms = new ForwardModeMemory(new ManualClock(), 'direct');
  forms.connectAccepted();
  expect(forms.connectRefused('m1')).toBe(false);
  expect(forms.connectRefused('m1')).toBe(false);
  expect(forms.connectRefused('m2')).toBe(false);
  forms.connectAccepted();
  expect(forms.connectRefused('m3')).toBe(false);
  expect(forms.connectRefused('m4')).toBe(false);
  expect(forms.current).toBe('direct');
  expect(forms.connectRefused('m5')).toBe(true);
  expect(forms.current).toBe('absolute');
});

test('forms: after a while a source that refused is asked again', () => {
  const clock = new ManualClock();
  const forms = new ForwardModeMemory(clock, 'direct');
  forms.connectRefused('m1');
  clock.advance(10 * 60_000);
  expect(forms.current).toBe('absolute');
  clock.advance(1);
  expect(forms.current).toBe('direct');
});

test('forms: a source whose members seldom CONNECT begins in absolute form', () => {
  expect(new ForwardModeMemory(new ManualClock(), 'absolute').current).toBe('absolute');
});
