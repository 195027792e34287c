import { expect, onTestFinished, test } from 'vitest';
import { openHistory } from '../../src/admin/history.ts';
import { EventBus, type NoriaEvents } from '../../src/core/events.ts';
import type { FaultCode } from '../../src/core/faults.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { strictBus } from './open-test-admin.ts';

const STEP_MS = 5_000;
const DIAL: NoriaEvents['dial.ended'] = {
  outcome: 'accepted',
  attempts: 1,
  ms: 40,
  waitedMs: 0,
  target: 'a.example:443',
};
const ATTEMPT: NoriaEvents['dial.attempted'] = {
  source: 'city',
  member: 'm1',
  outcome: 'member-unreachable',
  phase: 'connect',
  blame: 'member',
  ms: 3,
  hedge: false,
};
const TUNNEL: NoriaEvents['tunnel.closed'] = {
  source: 'city',
  member: 'm1',
  kind: 'tunnel',
  bytesUp: 500,
  bytesDown: 10_000,
  ms: 100,
};
const REFUSAL: NoriaEvents['client.refused'] = {
  client: '192.0.2.1',
  listener: '127.0.0.1:8888',
  protocol: 'http',
  code: 'auth-required',
  detail: 'no credentials',
};

/** A history that has recorded one whole step. The clock is at the start of the next step. */
function openTestHistory() {
  const clock = new ManualClock();
  const bus = strictBus();
  const history = openHistory(bus, clock);
  onTestFinished(() => history.close());
  clock.advance(STEP_MS - (clock.monotonic() % STEP_MS));
  return { clock, bus, history };
}

test('history: reports the success rate, the totals and the wasted members of a span', () => {
  const { clock, bus, history } = openTestHistory();
  const left = { source: 'city', member: 'm1', protocol: 'http', reason: 'expired' } as const;
  for (let dial = 0; dial < 3; dial += 1) bus.emit('dial.ended', DIAL);
  bus.emit('dial.ended', { ...DIAL, outcome: 'members-failed' });
  bus.emit('dial.ended', { ...DIAL, outcome: 'client-gone' });
  bus.emit('member.left', { ...left, uses: 2 });
  bus.emit('member.left', { ...left, uses: 0 });
  clock.advance(STEP_MS);
  bus.emit('dial.ended', { ...DIAL, ms: 900 });
  clock.advance(STEP_MS);
  const { successRate, membersLeft, total } = history.read('15m');
  expect(successRate.slice(-2)).toEqual([0.75, 1]);
  expect(membersLeft.used.slice(-2)).toEqual([1, 0]);
  expect(membersLeft.unused.slice(-2)).toEqual([1, 0]);
  expect(total).toMatchObject({ succeeded: 4, failed: 1 });
  expect(total.dialP50Ms).toBeGreaterThan(35);
  expect(total.dialP50Ms).toBeLessThan(45);
  expect(total.dialP95Ms).toBeGreaterThan(800);
  clock.advance(15 * 60_000 + STEP_MS);
  expect(history.read('15m').total).toEqual({ succeeded: 0, failed: 0, dialP50Ms: null, dialP95Ms: null });
});

test('history: shows a step as rates after it has ended', () => {
  const { clock, bus, history } = openTestHistory();
  clock.advance(200);
  for (let dial = 0; dial < 10; dial += 1) bus.emit('dial.ended', DIAL);
  bus.emit('tunnel.closed', TUNNEL);
  expect(history.read('15m').tunnelsPerSecond.at(-1)).toBeNull();
  clock.advance(STEP_MS - 200);
  const view = history.read('15m');
  expect(view.tunnelsPerSecond.at(-1)).toBe(2);
  expect(view.bytesUpPerSecond.at(-1)).toBe(100);
  expect(view.bytesDownPerSecond.at(-1)).toBe(2_000);
  expect(Date.parse(view.endsAt)).toBe(clock.now());
});

test('history: p50 and p95 of the connect time are right to about a tenth', () => {
  const { clock, bus, history } = openTestHistory();
  for (let ms = 1; ms <= 100; ms += 1) bus.emit('dial.ended', { ...DIAL, ms: ms * 10 });
  clock.advance(STEP_MS);
  const { dialP50Ms, dialP95Ms } = history.read('15m');
  expect(dialP50Ms.at(-1)).toBeGreaterThan(500 * 0.88);
  expect(dialP50Ms.at(-1)).toBeLessThan(500 * 1.12);
  expect(dialP95Ms.at(-1)).toBeGreaterThan(950 * 0.88);
  expect(dialP95Ms.at(-1)).toBeLessThan(950 * 1.12);
  clock.advance(STEP_MS);
  expect(history.read('15m').dialP50Ms.at(-1), 'nothing was dialed').toBeNull();
});

test('history: spreads the bytes of a tunnel over the time it was open', () => {
  const { clock, bus, history } = openTestHistory();
  clock.advance(3 * STEP_MS);
  bus.emit('tunnel.closed', { ...TUNNEL, bytesUp: 0, bytesDown: 30_000, ms: 3 * STEP_MS });
  clock.advance(STEP_MS);
  expect(history.read('15m').bytesDownPerSecond.slice(-4)).toEqual([2_000, 2_000, 2_000, 0]);
});

test('history: counts only the bytes of a long tunnel that fall within the history', () => {
  const { clock, bus, history } = openTestHistory();
  clock.advance(40_000 * STEP_MS);
  bus.emit('tunnel.closed', { ...TUNNEL, bytesUp: 0, bytesDown: 1e9, ms: 1e8 });
  clock.advance(STEP_MS);
  expect(history.read('15m').bytesDownPerSecond.at(-2)).toBe(10_000);
});

test('history: counts every failure once, under the side at fault', () => {
  const { clock, bus, history } = openTestHistory();
  for (const blame of ['member', 'unclear', 'target', 'source', 'network', 'nobody'] as const) {
    bus.emit('dial.attempted', { ...ATTEMPT, blame });
  }
  const failDial = (code: FaultCode) => {
    bus.emit('dial.ended', { ...DIAL, outcome: code });
    bus.emit('client.refused', { ...REFUSAL, code, dialFailed: true });
  };
  failDial('members-failed'); // not counted for noria: the attempts already counted as failures of members
  failDial('pool-empty');
  failDial('deadline');
  failDial('bad-routing');
  bus.emit('client.refused', REFUSAL);
  // A forwarded request that failed after its dial was accepted: only the listener reports it.
  bus.emit('client.refused', { ...REFUSAL, code: 'members-failed' });
  // A client that disconnected is no failure.
  bus.emit('dial.ended', { ...DIAL, outcome: 'client-gone' });
  clock.advance(STEP_MS);
  const { failures } = history.read('15m');
  const last = Object.fromEntries(Object.entries(failures).map(([side, column]) => [side, column.at(-1)]));
  expect(last).toEqual({ member: 3, target: 1, source: 2, network: 1, client: 2, noria: 1 });
});

test('history: keeps 15 minutes in steps of 5 seconds and 24 hours in steps of 2 minutes', () => {
  const { clock, bus, history } = openTestHistory();
  bus.emit('dial.ended', DIAL);
  clock.advance(179 * STEP_MS);
  expect(history.read('15m').tunnelsPerSecond).toHaveLength(179);
  expect(history.read('15m').tunnelsPerSecond[0]).toBe(0.2);
  clock.advance(STEP_MS);
  expect(history.read('15m').tunnelsPerSecond[0]).toBe(0);
  expect(history.read('24h').stepSeconds).toBe(120);
  expect(history.read('24h').tunnelsPerSecond).toHaveLength(719);
});

test('history: a quiet period overwrites old steps with zeros', () => {
  const { clock, bus, history } = openTestHistory();
  for (let step = 0; step < 180; step += 1) {
    bus.emit('dial.ended', DIAL);
    bus.emit('client.refused', REFUSAL);
    bus.emit('tunnel.closed', TUNNEL);
    clock.advance(STEP_MS);
  }
  clock.advance(24 * 3_600_000);
  const { tunnelsPerSecond, bytesDownPerSecond, dialP50Ms, failures } = history.read('15m');
  expect(new Set(tunnelsPerSecond)).toEqual(new Set([0]));
  expect(new Set(bytesDownPerSecond)).toEqual(new Set([0]));
  expect(new Set(dialP50Ms)).toEqual(new Set([null]));
  expect(new Set(failures.client)).toEqual(new Set([0]));
});

test('history: a step before the start is null, not 0', () => {
  const { clock, history } = openTestHistory();
  clock.advance(STEP_MS);
  const { tunnelsPerSecond } = history.read('15m');
  expect(tunnelsPerSecond.at(-1)).toBe(0);
  expect(new Set(tunnelsPerSecond.slice(0, -1))).toEqual(new Set([null]));
});

test('history: closing stops following the events', () => {
  const bus = new EventBus(() => {});
  const history = openHistory(bus, new ManualClock());
  history.close();
  for (const name of ['dial.ended', 'dial.attempted', 'client.refused', 'tunnel.closed'] as const) {
    expect(bus.hasSubscribers(name), name).toBe(false);
  }
});
