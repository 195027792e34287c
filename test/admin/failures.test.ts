import { expect, onTestFinished, test } from 'vitest';
import { openFailures } from '../../src/admin/failures.ts';
import { EventBus, type NoriaEvents } from '../../src/core/events.ts';
import { FAULTS } from '../../src/core/faults.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { strictBus } from './open-test-admin.ts';

const DIAL: NoriaEvents['dial.ended'] = {
  outcome: 'target-unreachable',
  attempts: 2,
  ms: 41.6,
  waitedMs: 0,
  target: 'a.example:443',
};
const REFUSAL: NoriaEvents['client.refused'] = {
  client: '192.0.2.1',
  listener: '127.0.0.1:8888',
  protocol: 'socks5',
  code: 'auth-required',
  detail: 'no user of this name',
};
const MOVED: NoriaEvents['source.moved'] = {
  source: 'city',
  from: 'drawing',
  to: 'halted',
  reason: '12001: the key is wrong.',
  advice: 'Check the password.',
  code: '12001',
};

function openTestFailures() {
  const clock = new ManualClock();
  const bus = strictBus();
  const failures = openFailures(bus, clock);
  onTestFinished(() => failures.close());
  return { clock, bus, list: () => failures.list() };
}

test('failures: a failed request has the texts of its code and the number of members tried', () => {
  const { clock, bus, list } = openTestFailures();
  bus.emit('dial.ended', DIAL);
  const at = new Date(clock.now()).toISOString();
  const { summary: says, advice } = FAULTS['target-unreachable'];
  expect(list()).toEqual([
    {
      kind: 'request',
      code: 'target-unreachable',
      side: 'target',
      says,
      advice,
      target: 'a.example:443',
      detail: '2 members tried in 42 ms',
      times: 1,
      firstAt: at,
      lastAt: at,
    },
  ]);
});

test('failures: repeated failures are one entry with a count, the latest first', () => {
  const { clock, bus, list } = openTestFailures();
  const firstAt = clock.now();
  bus.emit('dial.ended', DIAL);
  clock.advance(1_000);
  bus.emit('client.refused', REFUSAL);
  clock.advance(1_000);
  bus.emit('dial.ended', DIAL);
  expect(list().map(({ code, times }) => [code, times])).toEqual([
    ['target-unreachable', 2],
    ['auth-required', 1],
  ]);
  expect(Date.parse(list()[0]?.firstAt ?? '')).toBe(firstAt);
  expect(Date.parse(list()[0]?.lastAt ?? '')).toBe(firstAt + 2_000);
});

test('failures: a failed dial and the refusal of its client are one entry', () => {
  const { bus, list } = openTestFailures();
  bus.emit('dial.ended', { ...DIAL, outcome: 'pool-empty' });
  bus.emit('client.refused', { ...REFUSAL, code: 'pool-empty', dialFailed: true });
  expect(list().map(({ kind }) => kind)).toEqual(['request']);
  bus.emit('client.refused', { ...REFUSAL, code: 'pool-empty' });
  expect(list().map(({ kind }) => kind)).toEqual(['refusal', 'request']);
});

test('failures: a client that left, an accepted dial and an attempt without blame are not failures', () => {
  const { bus, list } = openTestFailures();
  bus.emit('dial.ended', { ...DIAL, outcome: 'client-gone' });
  bus.emit('dial.ended', { ...DIAL, outcome: 'accepted' });
  const attempt = { source: 'city', member: 'm1', phase: 'answer', ms: 1, hedge: false } as const;
  bus.emit('dial.attempted', { ...attempt, outcome: 'member-closed', blame: 'nobody' });
  bus.emit('dial.attempted', { ...attempt, outcome: 'cancelled', blame: 'nobody' });
  bus.emit('source.moved', { ...MOVED, from: 'waiting', to: 'drawing' });
  expect(list()).toEqual([]);
});

test('failures: failed attempts are one entry per source and code, not per member', () => {
  const { bus, list } = openTestFailures();
  for (const member of ['m1', 'm2', 'm3']) {
    const attempt = { source: 'city', phase: 'connect', ms: 1, hedge: false } as const;
    bus.emit('dial.attempted', { ...attempt, member, outcome: 'member-unreachable', blame: 'member' });
  }
  expect(list()).toMatchObject([{ kind: 'attempt', code: 'member-unreachable', times: 3, source: 'city' }]);
});

test('failures: a source that cannot draw has its own reason and advice; a pause by the operator is not listed', () => {
  const { bus, list } = openTestFailures();
  bus.emit('source.moved', MOVED);
  bus.emit('source.moved', { source: 'town', from: 'ready', to: 'paused', reason: 'a person paused it' });
  expect(list()).toMatchObject([
    { kind: 'source', code: '12001', says: 'city: 12001: the key is wrong.', advice: 'Check the password.' },
  ]);
});

test('failures: an empty pool counts against its source, and a draw without usable members is a second entry', () => {
  const { bus, list } = openTestFailures();
  const reason = '10001: Every proxy of the answer was dropped: private 5.';
  bus.emit('source.moved', { ...MOVED, to: 'waiting', reason, advice: 'Allow them.', code: '10001' });
  bus.emit('source.moved', { source: 'city', from: 'idle', to: 'waiting', reason: 'the pace' });
  bus.emit('dial.ended', { ...DIAL, outcome: 'pool-empty' });
  expect(list()).toMatchObject([
    { kind: 'request', code: 'pool-empty', side: 'source' },
    { kind: 'source', says: `city: ${reason}`, advice: 'Allow them.', times: 1 },
  ]);
});

test('failures: many failures of one kind do not displace others, and the list is bounded', () => {
  const { bus, list } = openTestFailures();
  bus.emit('client.refused', REFUSAL);
  for (let at = 0; at < 500; at += 1) {
    bus.emit('dial.ended', { ...DIAL, outcome: 'pool-empty', target: `t${at}.example:443` });
    bus.emit('client.refused', { ...REFUSAL, code: 'bad-routing', detail: `unknown key ${at}` });
  }
  expect(list().map(({ code, times }) => [code, times])).toEqual([
    ['bad-routing', 500],
    ['pool-empty', 500],
    ['auth-required', 1],
  ]);
  for (let at = 0; at < 500; at += 1) bus.emit('dial.ended', { ...DIAL, target: `t${at}.example:443` });
  expect(list()).toHaveLength(60);
});

test('failures: closing stops following the events', () => {
  const bus = new EventBus(() => {});
  const failures = openFailures(bus, new ManualClock());
  failures.close();
  for (const name of [
    'dial.ended',
    'dial.attempted',
    'client.refused',
    'source.moved',
    'network.judged',
  ] as const) {
    expect(bus.hasSubscribers(name), name).toBe(false);
  }
});
