/** Two norias of a fleet draw from one instance and report the service's answers to each other. */
import { expect, test } from 'vitest';
import { NoriaError } from '../../src/core/faults.ts';
import type { DrawSourceOptions } from '../../src/refill/options.ts';
import type { InstanceReport } from '../../src/refill/reaction.ts';
import { createPaceMemory } from '../../src/state/pace-file.ts';
import { ManualClock } from '../support/manual-clock.ts';
import {
  manualTimekeeper,
  openRig,
  pass,
  type Reply,
  type Rig,
  ScriptedService,
  sourceOptions,
} from './rig.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

interface Pair {
  readonly clock: ManualClock;
  readonly service: ScriptedService;
  readonly one: Rig;
  readonly two: Rig;
  readonly reports: readonly InstanceReport[];
}

/** @param replies - the answers of the service in order. Later answers contain members. */
function openPair(replies: readonly Reply[], options: DrawSourceOptions = sourceOptions()): Pair {
  const clock = new ManualClock();
  const service = new ScriptedService(clock);
  const store = createPaceMemory(manualTimekeeper(clock));
  const reports: InstanceReport[] = [];
  service.reply = (_call, index) => replies[index] ?? { code: '10001' };
  const common = { clock, service, store, idleAfterMs: 0, sources: [options] };
  const one: Rig = openRig({
    ...common,
    onReport: (source, report) => {
      reports.push(report);
      two.refiller.receiveReport(source, report);
    },
  });
  const two: Rig = openRig({
    ...common,
    onReport: (source, report) => {
      reports.push(report);
      one.refiller.receiveReport(source, report);
    },
  });
  return { clock, service, one, two, reports };
}

const code = (text: string, changes: Reply = {}): Reply => ({ code: text, ...changes });
const states = ({ one, two }: Pair) => [one.status().state, two.status().state];

test('instance report: an answer about the instance stops the draws of both', async () => {
  const pair = openPair([code('12006')]);
  await pass(pair.clock, 29 * MINUTE_MS);
  expect(states(pair)).toEqual(['halted', 'halted']);
  expect(pair.service.calls).toHaveLength(1);
  expect(pair.two.status()).toMatchObject({
    code: '12006',
    reason: '12006: The instance is frozen or disabled. Another noria of the fleet got this answer.',
    advice: expect.stringContaining('noria resume city'),
  });
});

test('instance report: ends the turn of a noria that opens a connection for its own draw', async () => {
  const pair = openPair([code('12006')]);
  await pass(pair.clock, MINUTE_MS);
  const [report] = pair.reports;
  if (report === undefined) throw new Error('no report');
  let connection: AbortSignal | undefined;
  const late = openRig({
    onReport: () => {},
    prepare: ({ service }) => {
      service.connecting = (signal) => {
        connection = signal;
        return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
      };
    },
  });
  await pass(late.clock, 1_000);
  expect([late.status().state, connection?.aborted]).toEqual(['drawing', false]);
  late.refiller.receiveReport('city', report);
  await pass(late.clock, 1_000);
  expect([late.status().state, connection?.aborted]).toEqual(['halted', true]);
  expect(late.service.calls).toEqual([]);
});

test('instance report: a draw of one ends the suspension of both', async () => {
  const pair = openPair([code('12005'), code('12005')]);
  await pass(pair.clock, 5 * MINUTE_MS);
  pair.two.refiller.resume('city');
  await pass(pair.clock, MINUTE_MS);
  expect(pair.service.calls).toHaveLength(2);
  expect(states(pair)).toEqual(['halted', 'halted']);
  pair.two.refiller.resume('city');
  await pass(pair.clock, MINUTE_MS);
  expect(states(pair)).toEqual(['ready', 'ready']);
});

test('instance report: after a draw of another noria, an earlier refusal is no longer a problem', async () => {
  const pair = openPair([code('12005')]);
  await pass(pair.clock, 5 * MINUTE_MS);
  const [refused] = [pair.one, pair.two].filter((rig) => rig.status().lastDraw !== null);
  const other = refused === pair.one ? pair.two : pair.one;
  expect(refused?.status().lastDraw).toMatchObject({ result: 'failed' });
  refused?.refiller.pause('city'); // so that it does not draw itself
  other.refiller.resume('city');
  await pass(pair.clock, MINUTE_MS);
  expect(other.status().state).toBe('ready');
  expect(refused?.status()).toMatchObject({ state: 'paused' });
  expect(refused?.status()).toMatchObject({ lastDraw: null, code: null });
});

test.each([
  ['12006', 'ready', null],
  ['12001', 'halted', 'failed'],
])('instance report: after %s, a draw of another noria leaves this one %s', async (text, state, result) => {
  const rig = openRig({
    onReport: () => {},
    prepare: ({ service }) => {
      service.reply = (_call, index) => code(index === 0 ? text : '10001');
    },
  });
  await pass(rig.clock, 1_000);
  expect(rig.status()).toMatchObject({ state: 'halted', code: text });
  const host = '203.0.113.1';
  rig.pool.addMembers(
    'city',
    [1, 2, 3, 4, 5].map((port) => ({
      ...{ protocol: 'http', host, port, endsAt: HOUR_MS, unproven: false },
    })),
  );
  rig.pool.limitTunnels('city', 0.5);
  rig.refiller.receiveReport('city', { quota: {} });
  await pass(rig.clock, 15_000);
  expect(rig.pool.limits.size, 'the service accepts calls again').toBe(0);
  expect([rig.status().state, rig.status().lastDraw?.result ?? null]).toEqual([state, result]);
  rig.refiller.resume('city');
  await pass(rig.clock, 1_000);
  expect(rig.status().state, 'enough members, so nothing shows that the problem is gone').toBe(state);
});

test('instance report: both retry at the same moment, and one call is enough', async () => {
  const pair = openPair([code('12005'), code('12005'), code('12005')]);
  await pass(pair.clock, 89 * MINUTE_MS);
  expect(pair.service.calls).toHaveLength(3);
  expect(states(pair)).toEqual(['halted', 'halted']);
});

test('instance report: a refusal that may be about one machine stops only that one', async () => {
  for (const text of ['12007', '12010']) {
    const pair = openPair([code(text)]);
    await pass(pair.clock, 20_000);
    expect(states(pair).sort(), text).toEqual(['paused', 'ready']);
    expect(pair.reports, text).toEqual([]);
  }
});

test('instance report: no answer of the service stops only the noria that called', async () => {
  const pair = openPair([new NoriaError('service-transport', 'refused the connection')]);
  await pass(pair.clock, 20_000);
  expect(pair.reports.every(({ suspension }) => suspension === undefined)).toBe(true);
});

test('instance report: the wrong key of one does not stop a noria that has not drawn', async () => {
  const pair = openPair([code('12001')]);
  await pass(pair.clock, 5 * MINUTE_MS);
  expect(states(pair).sort()).toEqual(['halted', 'ready']);
});

test('instance report: each noria tries its own key once', async () => {
  const pair = openPair([code('12001'), code('12001')]);
  await pass(pair.clock, 2 * HOUR_MS, 10_000);
  expect(states(pair)).toEqual(['halted', 'halted']);
  expect(pair.service.calls).toHaveLength(2);
  for (const { status } of [pair.one, pair.two]) {
    expect(status()).toMatchObject({ code: '12001', reason: '12001: The key is wrong.' });
  }
});

test('instance report: the wrong key of one does not stop a noria that has drawn with its own', async () => {
  const pair = openPair([code('10001'), code('12001')]);
  pair.two.refiller.pause('city');
  await pass(pair.clock, MINUTE_MS);
  expect(pair.service.calls).toHaveLength(1);
  pair.one.refiller.pause('city');
  pair.two.refiller.resume('city');
  await pass(pair.clock, MINUTE_MS);
  expect(pair.two.status().state).toBe('halted');
  pair.one.refiller.resume('city');
  await pass(pair.clock, 10 * MINUTE_MS);
  expect(pair.one.status()).toMatchObject({ state: 'ready', lastDraw: { result: 'succeeded' } });
  expect(pair.two.status().state, 'its key is still wrong').toBe('halted');
});

test('instance report: both know the quota that the service last named', async () => {
  const pair = openPair([code('10001', { quota: { remaining: 40, today: 5 } })]);
  pair.two.refiller.pause('city');
  await pass(pair.clock, 5_000);
  expect(pair.two.status().quota).toEqual({ remaining: 40, today: 5 });
});

test('instance report: too many connections halve the tunnels of both, until a draw succeeds', async () => {
  const { call, ...options } = sourceOptions();
  const longLived = { ...options, call: { ...call, product: 'long-residential' as const } };
  const pair = openPair([code('12008')], longLived);
  await pass(pair.clock, MINUTE_MS);
  expect([pair.one.pool.limits.get('city'), pair.two.pool.limits.get('city')]).toEqual([0.5, 0.5]);
  pair.one.refiller.resume('city');
  await pass(pair.clock, MINUTE_MS);
  expect([pair.one.pool.limits.size, pair.two.pool.limits.size]).toEqual([0, 0]);
});

test('instance report: a reload with other options makes its own attempt', async () => {
  const pair = openPair([code('12001'), code('12001')]);
  await pass(pair.clock, MINUTE_MS);
  await pair.two.refiller.update({
    sources: [sourceOptions({ size: 4 })],
    fill: 'size',
    idleAfterMs: 0,
    callTimeoutMs: 10_000,
  });
  await pass(pair.clock, MINUTE_MS);
  expect(pair.two.status().state).toBe('ready');
  expect(pair.one.status().state, 'the reason was a configuration of its own').toBe('halted');
});
