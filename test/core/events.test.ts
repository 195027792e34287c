import { expect, test } from 'vitest';
import { EventBus } from '../../src/core/events.ts';

const restored = { source: 'city', member: 'm1', protocol: 'http' } as const;

function busWithErrors() {
  const errors: unknown[] = [];
  return { bus: new EventBus((name, error) => errors.push([name, error])), errors };
}

test('events: every observer of an event is told, in the order of their coming, and no other', () => {
  const { bus } = busWithErrors();
  const told: string[] = [];
  bus.on('member.restored', (event) => told.push(`first ${event.member}`));
  bus.on('member.restored', (event) => told.push(`second ${event.member}`));
  bus.on('member.drained', () => told.push('another event'));
  bus.emit('member.restored', restored);
  expect(told).toEqual(['first m1', 'second m1']);
});

test('events: an observer that throws is reported, and the others are told all the same', () => {
  const { bus, errors } = busWithErrors();
  const failure = new Error('observer');
  const told: string[] = [];
  bus.on('member.restored', () => {
    throw failure;
  });
  bus.on('member.restored', () => told.push('told'));
  bus.emit('member.restored', restored);
  expect(told).toEqual(['told']);
  expect(errors).toEqual([['member.restored', failure]]);
});

test('events: disposing ends one observation, once', () => {
  const { bus } = busWithErrors();
  const told: string[] = [];
  const observer = () => told.push('told');
  const first = bus.on('member.restored', observer);
  bus.on('member.restored', observer);
  first[Symbol.dispose]();
  first[Symbol.dispose]();
  bus.emit('member.restored', restored);
  expect(told, 'the second observation goes on').toEqual(['told']);
});

test('events: the bus knows whether anyone listens', () => {
  const { bus } = busWithErrors();
  expect(bus.hears('member.restored')).toBe(false);
  const observation = bus.on('member.restored', () => {});
  expect([bus.hears('member.restored'), bus.hears('member.drained')]).toEqual([true, false]);
  observation[Symbol.dispose]();
  expect(bus.hears('member.restored')).toBe(false);
});

test('events: an observer that leaves or joins while it is told changes the next telling, not this one', () => {
  const { bus } = busWithErrors();
  const told: string[] = [];
  const leaving = bus.on('member.restored', () => {
    told.push('leaving');
    leaving[Symbol.dispose]();
    bus.on('member.restored', () => told.push('joined'));
  });
  bus.on('member.restored', () => told.push('staying'));
  bus.emit('member.restored', restored);
  expect(told).toEqual(['leaving', 'staying']);
  bus.emit('member.restored', restored);
  expect(told).toEqual(['leaving', 'staying', 'staying', 'joined']);
});
