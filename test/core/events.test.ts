import { expect, test } from 'vitest';
import { EventBus } from '../../src/core/events.ts';

const restored = { source: 'city', member: 'm1', protocol: 'http' } as const;

function busWithErrors() {
  const errors: unknown[] = [];
  return { bus: new EventBus((name, error) => errors.push([name, error])), errors };
}

test('events: calls all subscribers of an event in the order of subscription, and no others', () => {
  const { bus } = busWithErrors();
  const calls: string[] = [];
  bus.on('member.restored', (event) => calls.push(`first ${event.member}`));
  bus.on('member.restored', (event) => calls.push(`second ${event.member}`));
  bus.on('member.drained', () => calls.push('another event'));
  bus.emit('member.restored', restored);
  expect(calls).toEqual(['first m1', 'second m1']);
});

test('events: reports a subscriber that throws, and calls the others', () => {
  const { bus, errors } = busWithErrors();
  const failure = new Error('subscriber');
  const calls: string[] = [];
  bus.on('member.restored', () => {
    throw failure;
  });
  bus.on('member.restored', () => calls.push('called'));
  bus.emit('member.restored', restored);
  expect(calls).toEqual(['called']);
  expect(errors).toEqual([['member.restored', failure]]);
});

test('events: disposing removes one subscription, once', () => {
  const { bus } = busWithErrors();
  const calls: string[] = [];
  const subscriber = () => calls.push('called');
  const first = bus.on('member.restored', subscriber);
  bus.on('member.restored', subscriber);
  first[Symbol.dispose]();
  first[Symbol.dispose]();
  bus.emit('member.restored', restored);
  expect(calls, 'the second subscription remains').toEqual(['called']);
});

test('events: hasSubscribers is true while an event has one', () => {
  const { bus } = busWithErrors();
  expect(bus.hasSubscribers('member.restored')).toBe(false);
  const subscription = bus.on('member.restored', () => {});
  expect([bus.hasSubscribers('member.restored'), bus.hasSubscribers('member.drained')]).toEqual([
    true,
    false,
  ]);
  subscription[Symbol.dispose]();
  expect(bus.hasSubscribers('member.restored')).toBe(false);
});

test('events: a subscriber that is added or removed during an event affects only the next event', () => {
  const { bus } = busWithErrors();
  const calls: string[] = [];
  const leaving = bus.on('member.restored', () => {
    calls.push('leaving');
    leaving[Symbol.dispose]();
    bus.on('member.restored', () => calls.push('joined'));
  });
  bus.on('member.restored', () => calls.push('staying'));
  bus.emit('member.restored', restored);
  expect(calls).toEqual(['leaving', 'staying']);
  bus.emit('member.restored', restored);
  expect(calls).toEqual(['leaving', 'staying', 'staying', 'joined']);
});
