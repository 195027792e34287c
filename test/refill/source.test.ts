import { expect, test } from 'vitest';
import { HOUR_MS, MINUTE_MS } from '../../src/core/duration.ts';
import { NoriaError } from '../../src/core/faults.ts';
import { SOURCE_MOVES } from '../../src/refill/reaction.ts';
import { SOURCE_STATES, type SourceState } from '../../src/refill/status.ts';
import { createPaceMemory, type PaceStore } from '../../src/state/pace-file.ts';
import { ManualClock } from '../support/manual-clock.ts';
import {
  CountingPool,
  LIST_CALL,
  manualTimekeeper,
  openRig,
  pass,
  type Reply,
  type Rig,
  ScriptedService,
  settle,
  sourceOptions,
} from './rig.ts';

const NO_CLIENT = { lastWantedAt: Number.NEGATIVE_INFINITY };

/** A rig whose service answers with `codes` in order, and then with members. */
function answering(codes: readonly Reply[], changes: Parameters<typeof openRig>[0] = {}): Rig {
  return openRig({
    ...changes,
    prepare: ({ service }) => {
      service.reply = (_call, index) => codes[index] ?? { code: '10001', message: '获取成功' };
    },
  });
}

const code = (text: string, changes: Reply = {}): Reply => ({ code: text, ...changes });
const wake = ({ bus }: Rig, ...sources: string[]) => bus.emit('demand.rose', { sources });

test('source: the table of moves contains every phase and nothing else', () => {
  const names: readonly string[] = SOURCE_STATES;
  expect(names).toHaveLength(7);
  expect(Object.keys(SOURCE_MOVES).sort()).toEqual([...names].sort());
  for (const [from, tos] of Object.entries(SOURCE_MOVES)) {
    for (const to of tos) expect(names, `${from} -> ${to}`).toContain(to);
  }
  expect(SOURCE_MOVES.idle).not.toContain('drawing');
});

test('source: without clients it becomes idle, and the next client starts a draw at once', async () => {
  const rig = openRig({ idleAfterMs: MINUTE_MS });
  await pass(rig.clock, HOUR_MS, 10_000);
  expect(rig.status()).toMatchObject({
    state: 'idle',
    reason: 'no client request for 60 s; the next request starts a draw',
  });
  expect(rig.status().nextCallAt).toBeNull();
  expect(rig.service.calls).toHaveLength(1);
  expect(rig.clock.armedCount, 'armed timers of an idle source').toBe(0);
  rig.pool.want('city', { lastWantedAt: rig.clock.monotonic(), waiting: 1 });
  wake(rig, 'city');
  await settle();
  expect(rig.service.calls.at(-1)).toEqual({ at: HOUR_MS, instance: '1001', count: 5 });
});

test('source: a draw plans once before its claim and once after', async () => {
  const clock = new ManualClock();
  const pool = new CountingPool(clock);
  let plans = 0;
  const demand = pool.demand.bind(pool);
  pool.demand = (source) => {
    plans += 1;
    return demand(source);
  };
  const { service, bus } = openRig({ clock, pool, sources: [sourceOptions({ size: 10 })] });
  await settle();
  expect([service.calls.length, plans]).toEqual([1, 2]);
  await pass(clock, 10_400, 100);
  expect([service.calls.length, plans], 'waits for the pace').toEqual([1, 3]);
  await pass(clock, 100);
  expect([service.calls.length, plans]).toEqual([2, 5]);
  await pass(clock, 1_000, 100);
  const before = plans;
  for (let time = 0; time < 3; time += 1) bus.emit('demand.rose', { sources: ['city'] });
  await settle();
  expect(plans - before, 'several events at once: one plan and its reason').toBe(2);
});

test('source: with idleAfter 0 it never becomes idle', async () => {
  const rig = openRig({ idleAfterMs: 0 });
  await pass(rig.clock, HOUR_MS, 5_000);
  expect(rig.service.calls.length).toBeGreaterThanOrEqual(20);
});

test('source: a wrong key halts it; each resume makes one attempt at the pace', async () => {
  const rig = answering([code('12001', { message: 'akey错误' }), code('12001')]);
  await pass(rig.clock, 24 * HOUR_MS, MINUTE_MS);
  expect(rig.service.calls).toHaveLength(1);
  expect(rig.status()).toMatchObject({ state: 'halted', code: '12001', message: 'akey错误' });
  expect(rig.status().reason).toBe('12001: The key is wrong.');
  expect(rig.emitted('draw.done')[0]).toMatchObject({ code: '12001', message: 'akey错误' });
  expect(rig.status().advice).toMatch(/noria key/);
  expect(rig.refiller.forecasts()).toEqual([
    {
      name: 'city',
      state: 'halted',
      reason: '12001: The key is wrong.',
      suspendedMs: Number.POSITIVE_INFINITY,
    },
  ]);

  expect(rig.refiller.resume('city')).toBe(true);
  await pass(rig.clock, MINUTE_MS, 100);
  expect(rig.service.calls).toHaveLength(2);
  expect(rig.status().state).toBe('halted');
  rig.refiller.resume('city');
  rig.refiller.resume('city');
  await pass(rig.clock, MINUTE_MS, 100);
  expect(rig.status().state).toBe('idle'); // the third call succeeded, and there is no demand
  expect(rig.service.calls).toHaveLength(3);
  expect(Math.min(...rig.service.gaps)).toBeGreaterThanOrEqual(10_250);
  expect(rig.emitted('draw.done').at(-1), 'of a success').not.toHaveProperty('message');
});

test('source: an expired instance is retried every half hour while there is demand', async () => {
  const rig = answering(new Array<Reply>(100).fill(code('12005')), { idleAfterMs: 0 });
  await pass(rig.clock, 3 * HOUR_MS + MINUTE_MS, 2_000);
  expect(rig.status()).toMatchObject({ state: 'halted', code: '12005' });
  expect(rig.service.calls).toHaveLength(7);
});

test('source: a failed draw is repeated without demand until it succeeds, so that readiness recovers', async () => {
  const rig = answering(
    new Array<Reply>(6).fill(new NoriaError('service-transport', 'refused the connection')),
  );
  await pass(rig.clock, 2 * HOUR_MS, 2_000);
  expect(rig.service.calls).toHaveLength(7);
  expect(rig.status()).toMatchObject({ state: 'idle', lastDraw: { result: 'succeeded' } });
});

test('source: without a client the draw at start-up is repeated until it brings proxies, at most every two minutes', async () => {
  const rig = answering(new Array<Reply>(10).fill(code('12009')));
  rig.pool.want('city', NO_CLIENT);
  await pass(rig.clock, 2 * HOUR_MS, 2_000);
  expect(rig.service.calls).toHaveLength(11);
  expect(Math.max(...rig.service.gaps)).toBeLessThanOrEqual(2 * MINUTE_MS + 2_000);
  expect(rig.status()).toMatchObject({
    state: 'idle',
    reason: 'no client request yet; the next request starts a draw',
    lastDraw: { result: 'succeeded' },
  });
});

test('source: without a client an answer of unusable proxies is not repeated, because it is paid for, until a reload', async () => {
  const rig = answering(new Array<Reply>(10).fill({ entries: [], dropped: { private: 4 } }));
  rig.pool.want('city', NO_CLIENT);
  await pass(rig.clock, HOUR_MS, 2_000);
  expect(rig.service.calls).toHaveLength(1);
  await rig.refiller.update({
    sources: [sourceOptions()],
    fill: 'size',
    idleAfterMs: 300_000,
    callTimeoutMs: 10_000,
  });
  await pass(rig.clock, HOUR_MS, 2_000);
  expect(rig.service.calls).toHaveLength(2);
});

test('source: after a draw with members an empty answer is not repeated without demand', async () => {
  const rig = answering([code('10001'), ...new Array<Reply>(100).fill(code('12009'))]);
  await pass(rig.clock, 2 * HOUR_MS, 2_000);
  const calls = rig.service.calls.length;
  await pass(rig.clock, HOUR_MS, 2_000);
  expect(rig.service.calls).toHaveLength(calls);
  expect(rig.status()).toMatchObject({ state: 'idle', lastDraw: { result: 'empty' } });
});

test('source: after a draw with members it stays halted without demand', async () => {
  const rig = answering([code('10001'), code('12004')]);
  await pass(rig.clock, 2 * HOUR_MS, MINUTE_MS);
  expect(rig.status().state).toBe('halted');
  expect(rig.service.calls).toHaveLength(2);
});

test('source: 12003 halves the count, also for the next run', async () => {
  const refused = code('12003');
  const rig = answering([refused, refused, refused], { sources: [sourceOptions({ count: 8, size: 8 })] });
  await pass(rig.clock, 25_000);
  expect(rig.service.calls.map(({ count }) => count)).toEqual([8, 4, 2]);
  expect(rig.emitted('source.warned').map(({ message }) => message)).toEqual([
    expect.stringContaining('rejected a count of 8 (12003), so noria now requests at most 4 per call'),
    expect.stringContaining('rejected a count of 4 (12003), so noria now requests at most 2 per call'),
    expect.stringContaining('rejected a count of 2 (12003), so noria now requests at most 1 per call'),
  ]);
  await pass(rig.clock, 30_000);
  expect(rig.service.calls.slice(3).every(({ count }) => count === 1)).toBe(true);
  expect(rig.status().state).not.toBe('halted');

  const restarted = openRig({
    sources: [sourceOptions({ count: 8, size: 8 })],
    restored: rig.refiller.record(),
  });
  await settle();
  expect(restarted.service.calls[0]?.count).toBe(1);
});

test('source: 12003 with a count of 1 halts it', async () => {
  const rig = answering([code('12003')], { sources: [sourceOptions({ size: 1 })] });
  await pass(rig.clock, 5_000);
  expect(rig.status()).toMatchObject({ state: 'halted', code: '12003' });
  rig.refiller.resume('city');
  await settle();
  expect(rig.status().state, 'it tries again at the pace').toBe('waiting');
});

test('source: without count it requests at most 5, for the free product 20', async () => {
  const free = sourceOptions({ size: 50, count: undefined });
  const { call } = free;
  const rig = openRig({
    sources: [free, { ...free, name: 'free', call: { ...call, product: 'free', instance: 'app' } }],
  });
  await settle();
  expect(rig.service.calls.map(({ count }) => count)).toEqual([5, 20]);
});

test('source: 12008 of operation 1 halves the tunnels until a call succeeds', async () => {
  const { call, ...rest } = sourceOptions();
  const rig = answering([code('12008'), code('12009')], {
    sources: [{ ...rest, call: { ...call, product: 'long-residential' } }],
    idleAfterMs: 0,
  });
  await pass(rig.clock, MINUTE_MS);
  expect(rig.status()).toMatchObject({ state: 'paused', code: '12008' });
  expect(rig.pool.limits.get('city')).toBe(0.5);
  await pass(rig.clock, 4 * MINUTE_MS + 4_000);
  expect([rig.service.calls.length, rig.pool.limits.get('city')], 'an empty answer').toEqual([2, 0.5]);
  await pass(rig.clock, MINUTE_MS);
  expect(rig.pool.limits.has('city')).toBe(false);
});

test('source: after 12012 it makes no call for two minutes, despite a restart and a refill', async () => {
  const clock = new ManualClock();
  const store = createPaceMemory(manualTimekeeper(clock));
  const { call, ...rest } = sourceOptions();
  const sources = [{ ...rest, call: { ...call, product: 'free' as const } }];
  const rig = answering([code('12012')], { clock, store, sources });
  await pass(clock, 1_000);
  expect(rig.status()).toMatchObject({ state: 'paused', code: '12012' });
  await rig.refiller.close();

  const inFleet = openRig({ clock, store, sources, pool: new CountingPool(clock), onReport() {} });
  inFleet.refiller.refill('city');
  await settle();
  expect(inFleet.status().reason).toMatch(/a call of another noria, or lost data in the fleet's store$/);
  await inFleet.refiller.close();

  const restarted = openRig({ clock, store, sources, pool: new CountingPool(clock) });
  restarted.refiller.refill('city');
  await pass(clock, 118_000);
  expect(restarted.service.calls).toEqual([]);
  expect(restarted.status()).toMatchObject({
    state: 'waiting',
    reason: expect.stringMatching(
      /^the next call must wait (?:120 s|2 min).* because of an earlier answer .* a call of another process$/,
    ),
  });
  await pass(clock, 3_000);
  expect(restarted.service.calls).toHaveLength(1);
});

test('source: after empty answers it keeps the pace while clients wait, warns at the third, and otherwise slows down', async () => {
  const rig = answering(new Array<Reply>(1_000).fill(code('12009')), { idleAfterMs: 0 });
  rig.pool.want('city', { waiting: 1 });
  await pass(rig.clock, 2 * MINUTE_MS, 250);
  expect(rig.service.calls).toHaveLength(12);
  expect(rig.status()).toMatchObject({ state: 'waiting', code: '12009' });
  expect(rig.emitted('source.warned')).toHaveLength(1);
  expect(rig.emitted('source.warned')[0]?.message).toMatch(
    /^3 draws in a row brought no member: 12009: .*adr, timespan/,
  );
  rig.pool.want('city', { waiting: 0 });
  await pass(rig.clock, HOUR_MS, 5_000);
  expect(rig.service.calls.length).toBeLessThan(12 + 35);
});

test('source: a draw without usable proxies causes one warning with advice, and its members count as unused', async () => {
  const dropped: Reply = { entries: [], dropped: { private: 4, own: 1, port: 2 } };
  const good = code('10001');
  const rig = answering([dropped, dropped, dropped, dropped, good, dropped], { idleAfterMs: 0 });
  rig.pool.want('city', { waiting: 1 });
  await pass(rig.clock, 5_000, 250);
  expect(rig.service.calls).toHaveLength(1);
  expect(rig.emitted('source.warned')).toHaveLength(1);
  expect(rig.emitted('source.warned')[0]?.message).toMatch(/private 4.*pool\.allowPrivateAddresses/);
  expect(rig.emitted('draw.done')[0]).toMatchObject({ received: 7, rejected: 7, forbidden: 5 });
  expect(rig.status()).toMatchObject({ state: 'waiting', drawn: 5, unused: 5 });
  await pass(rig.clock, MINUTE_MS, 250);
  expect(rig.emitted('source.warned'), 'repeated warning').toHaveLength(1);
  rig.pool.members.clear();
  wake(rig, 'city');
  await pass(rig.clock, MINUTE_MS, 250);
  expect(rig.service.calls.length).toBeGreaterThan(5);
  expect(rig.emitted('source.warned'), 'again, after a good draw').toHaveLength(2);
});

test('source: while clients wait, an unreachable service is retried every minute', async () => {
  const down = new NoriaError('service-transport', 'no answer');
  const rig = answering(new Array<Reply>(1_000).fill(down), { idleAfterMs: 0 });
  await pass(rig.clock, 2 * HOUR_MS, 5_000);
  const before = rig.service.calls.length;
  expect(rig.refiller.forecasts(), 'clients shorten it').toMatchObject([
    { state: 'backoff', suspendedMs: 0 },
  ]);
  rig.pool.want('city', { waiting: 1 });
  wake(rig, 'city');
  await pass(rig.clock, 10 * MINUTE_MS);
  expect(rig.service.calls.length - before).toBeGreaterThanOrEqual(9);
  expect(rig.service.calls.length - before).toBeLessThanOrEqual(11);
});

test('source: pause lets a call in flight deliver, and resume draws again', async () => {
  const rig = openRig({ sources: [sourceOptions({ size: 10 })], idleAfterMs: 0 });
  await settle();
  rig.refiller.pause('city');
  await pass(rig.clock, HOUR_MS, MINUTE_MS);
  expect(rig.service.calls).toHaveLength(1);
  expect(rig.status()).toMatchObject({ state: 'paused', suspended: false, drawn: 5 });
  expect(rig.status().reason).toBe('paused by the operator');
  expect(rig.status().nextCallSeconds).toBeNull();
  rig.refiller.refill('city');
  await settle();
  expect(rig.service.calls).toHaveLength(1);
  rig.refiller.resume('city');
  await settle();
  expect(rig.service.calls).toHaveLength(2);
});

test('source: pause cancels a wait for the pace', async () => {
  const rig = openRig({ sources: [sourceOptions({ size: 10 })], idleAfterMs: 0 });
  await pass(rig.clock, 5_200, 100);
  expect(rig.status()).toMatchObject({ state: 'waiting', stateSeconds: 5, nextCallSeconds: 5.25 });
  rig.refiller.pause('city');
  await settle();
  expect(rig.status().state).toBe('paused');
  expect(rig.clock.armedCount).toBe(0);
});

test('source: refill draws the missing members without demand, at the pace', async () => {
  const rig = openRig({ idleAfterMs: MINUTE_MS });
  await pass(rig.clock, 10 * MINUTE_MS, 10_000);
  expect(rig.service.calls).toHaveLength(1);
  rig.refiller.refill('city');
  rig.refiller.refill('city');
  await pass(rig.clock, MINUTE_MS);
  expect(rig.service.calls).toHaveLength(2);
  rig.refiller.refill('city');
  await pass(rig.clock, MINUTE_MS);
  expect(rig.service.calls).toHaveLength(2);
});

test('source: a pause that ends while a call is in flight changes nothing', async () => {
  const rig = openRig();
  await settle();
  rig.refiller.pause('city');
  rig.refiller.resume('city');
  await settle();
  expect(rig.status()).toMatchObject({ state: 'drawing', suspended: false });
  await pass(rig.clock, MINUTE_MS);
  expect(rig.status()).toMatchObject({ state: 'ready', drawn: 5 });
  expect(rig.service.calls).toHaveLength(1);
});

test.each(['pause', 'close'] as const)('source: %s ends the opening of a connection', async (command) => {
  let opening: AbortSignal | undefined;
  const rig = openRig({
    prepare: ({ service }) => {
      service.connecting = (signal) => {
        opening = signal;
        return new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
      };
    },
  });
  await settle();
  expect([rig.status().state, opening?.aborted]).toEqual(['drawing', false]);
  if (command === 'pause') rig.refiller.pause('city');
  else await rig.refiller.close();
  await settle();
  expect(opening?.aborted).toBe(true);
  expect(rig.service.calls).toEqual([]);
  expect(rig.emitted('draw.done')).toEqual([]);
  expect(rig.clock.armedCount).toBe(0);
  if (command === 'pause') expect(rig.status().state).toBe('paused');
});

test('source: while its members refuse the credentials, the status says so, and what to do', async () => {
  const clock = new ManualClock();
  const pool = new CountingPool(clock);
  let blocked: string | null = null;
  pool.countsOf = () => ({ ready: 3, joining: 1, used: 2, blocked });
  const sources = [sourceOptions(), sourceOptions({ name: 'list', instance: 'list', intervalMs: 0 })];
  const rig = openRig({ clock, pool, sources, adviceOnBlock: (name) => `change the login of ${name}` });
  await pass(clock, MINUTE_MS);
  expect(rig.status()).toMatchObject({
    ...{ state: 'ready', blocked: false, suspended: false, ready: 3, joining: 1, used: 2 },
    ...{ advice: null, budget: null },
  });
  blocked = 'the members refuse the login';
  const told = { blocked: true, suspended: true, reason: blocked, ready: 0, joining: 1, used: 2 };
  expect(rig.status()).toMatchObject({ ...told, state: 'paused', advice: 'change the login of city' });
  expect(rig.status('list')).toMatchObject({ ...told, state: 'halted', advice: 'change the login of list' });
});

test('source: resume draws only for a source that the service suspended', async () => {
  const rig = openRig({ prepare: ({ pool }) => pool.want('city', NO_CLIENT) });
  await pass(rig.clock, 20 * MINUTE_MS, 5_000); // its members have expired
  rig.refiller.resume('city');
  await pass(rig.clock, MINUTE_MS);
  rig.refiller.pause('city');
  await settle();
  rig.refiller.resume('city');
  await pass(rig.clock, MINUTE_MS);
  expect(rig.status().state).toBe('idle');
  expect(rig.service.calls, 'the draw at start-up').toHaveLength(1);
});

test('source: a reload of an unchanged source whose members have expired draws nothing', async () => {
  const rig = openRig({ prepare: ({ pool }) => pool.want('city', NO_CLIENT) });
  await pass(rig.clock, 20 * MINUTE_MS, 5_000);
  const settings = { fill: 'size', idleAfterMs: 300_000, callTimeoutMs: 10_000 } as const;
  await rig.refiller.update({ sources: [sourceOptions()], ...settings });
  await pass(rig.clock, MINUTE_MS);
  expect(rig.service.calls).toHaveLength(1);
});

test('source: a member that leaves is replaced at once', async () => {
  const rig = openRig({ idleAfterMs: 0 });
  await pass(rig.clock, MINUTE_MS);
  const [member = ''] = rig.pool.members.get('city')?.keys() ?? [];
  rig.pool.members.get('city')?.delete(member);
  const left = { source: 'city', member, protocol: 'http', reason: 'evicted', uses: 1 } as const;
  rig.bus.emit('member.left', left);
  await settle();
  expect(rig.service.calls.map(({ count }) => count)).toEqual([5, 1]);
});

test('source: the status and the forecast say when the next call may start', async () => {
  const replies: Reply[] = [code('12007'), new NoriaError('service-transport', 'no answer')];
  const rig = answering([...replies, ...new Array<Reply>(5).fill(code('12009'))], { idleAfterMs: 0 });
  const forecast = () => rig.refiller.forecasts()[0];
  await pass(rig.clock, 1_200, 100);
  expect(forecast(), 'a pause').toMatchObject({ state: 'paused', suspendedMs: 59_000, nextDrawMs: 59_000 });
  await pass(rig.clock, 60_000, 100);
  expect(forecast(), 'a short backoff').toMatchObject({ state: 'backoff', suspendedMs: 4_200 });
  await pass(rig.clock, 45_000, 100);
  expect(rig.emitted('draw.done').map((draw) => draw.code)).toContain('12009');
  await pass(rig.clock, 30_000, 100);
  expect(rig.status().state, 'draws without members are spaced').toBe('waiting');
  expect(rig.status().nextCallSeconds).toBeGreaterThan(12);
  await pass(rig.clock, 10 * MINUTE_MS, 500);
  expect(rig.status()).toMatchObject({ state: 'ready', nextCallSeconds: 0 });
  expect(rig.status().nextCallAt).not.toBeNull();
  rig.refiller.pause('city');
  await settle();
  expect([rig.clock.armedCount, rig.status().nextCallAt]).toEqual([0, null]);
});

test('source: a connection that cannot be opened is a failed draw, also one that the operator requested', async () => {
  let attempts = 0;
  const rig = openRig({
    prepare: ({ service }) => {
      service.connecting = async () => {
        attempts += 1;
        throw new NoriaError('service-transport', 'refused the connection');
      };
    },
  });
  rig.refiller.refill('city');
  await pass(rig.clock, 4_000, 100);
  expect(rig.status()).toMatchObject({
    state: 'backoff',
    code: 'transport',
    message: 'refused the connection',
  });
  expect([attempts, rig.emitted('draw.started').length, rig.emitted('draw.done').length]).toEqual([1, 1, 1]);
  await pass(rig.clock, MINUTE_MS, 100);
  expect(attempts, 'each waits twice as long').toBe(4);
});

test('source: draws that bring or renew members are never spaced', async () => {
  const many = openRig({ sources: [sourceOptions({ size: 100 })], idleAfterMs: 0 });
  await pass(many.clock, 2 * MINUTE_MS, 100);
  expect(Math.max(...many.service.gaps)).toBeLessThan(11_000);
  const same = Array.from({ length: 5 }, (_, port) => ({ host: '203.0.113.1', port, lifetimeMs: 20_000 }));
  const rig = answering(new Array<Reply>(50).fill({ entries: same }), { idleAfterMs: 0 });
  await pass(rig.clock, 5 * MINUTE_MS, 100);
  expect(Math.max(...rig.service.gaps)).toBeLessThan(20_000);
  const refused = answering(new Array<Reply>(10).fill(code('12007')), { idleAfterMs: 0 });
  await pass(refused.clock, 9 * MINUTE_MS, 500);
  expect(Math.max(...refused.service.gaps), 'refusals are no draws').toBeLessThan(62_000);
  expect(rig.emitted('draw.done').at(-1)).toMatchObject({ received: 5, joined: 0, renewed: 5, rejected: 0 });
});

test('source: a list is read again after `refresh` and at once on request, and members that it lacks leave', async () => {
  const lists = [[1, 2, 3], [2, 3], [], [7]].map((ports) =>
    ports.map((port) => ({ host: '192.0.2.1', port, lifetimeMs: 1e9 })),
  );
  const rig = openRig({
    sources: [{ ...sourceOptions({ intervalMs: 0, size: 9 }), call: LIST_CALL, refreshMs: MINUTE_MS }],
    prepare: ({ service, pool }) => {
      pool.want('city', NO_CLIENT);
      service.reply = (_call, index) => ({ entries: lists[index] ?? [], message: `list ${index + 1}` });
    },
  });
  const held = () => [...(rig.pool.members.get('city')?.keys() ?? [])].map((key) => key.split(':')[1]).join();
  await pass(rig.clock, MINUTE_MS - 1_000);
  expect([rig.service.calls.length, held()]).toEqual([1, '1,2,3']);
  expect(rig.status()).toMatchObject({ state: 'ready', reason: 'the list has 3 members; list 1' });
  await pass(rig.clock, 3_000);
  expect([rig.service.calls.length, held()]).toEqual([2, '2,3']);
  rig.refiller.refill('city');
  await pass(rig.clock, 2_000);
  expect([rig.service.calls.length, held()], 'an empty list').toEqual([3, '']);
  await pass(rig.clock, 50_000);
  expect(rig.service.calls).toHaveLength(3);
  await pass(rig.clock, 11_000);
  expect([rig.service.calls.length, held()]).toEqual([4, '7']);
  const sources = [{ ...sourceOptions({ intervalMs: 0, size: 8 }), call: LIST_CALL, refreshMs: MINUTE_MS }];
  await rig.refiller.update({ sources, fill: 'size', idleAfterMs: 0, callTimeoutMs: 10_000 });
  await pass(rig.clock, 2_000);
  expect(rig.service.calls, 'a changed source is read at once').toHaveLength(5);
});

test('source: a refill of a full pool is done, and draws nothing later', async () => {
  const rig = openRig({ prepare: ({ pool }) => pool.want('city', NO_CLIENT) });
  await pass(rig.clock, MINUTE_MS);
  rig.refiller.refill('city');
  await pass(rig.clock, HOUR_MS, 10_000);
  expect(rig.service.calls, 'the draw at start-up').toHaveLength(1);
});

test('source: after a wait in which the pool got its members elsewhere, it opens no connection', async () => {
  let opened = 0;
  const rig = openRig({
    sources: [sourceOptions({ size: 10 })],
    prepare: ({ service }) => {
      service.connecting = async () => {
        opened += 1;
      };
    },
  });
  await pass(rig.clock, 5_000);
  const member = { protocol: 'http', host: '203.0.113.1', endsAt: HOUR_MS, unproven: false } as const;
  rig.pool.addMembers(
    'city',
    [1, 2, 3, 4, 5].map((port) => ({ ...member, port })),
  );
  await pass(rig.clock, 20_000);
  expect([opened, rig.status().state]).toEqual([1, 'ready']);
});

test('source: commands return false for an unknown name', () => {
  const { refiller } = openRig();
  expect([refiller.refill('x'), refiller.pause('x'), refiller.resume('x')]).toEqual([false, false, false]);
});

test("source: the IPs of today count again when the fleet's store is connected again, and after a restart", async () => {
  const added: string[][] = [];
  const sharedCount = () => ({ add: (ips: readonly string[]) => void added.push([...ips]), used: () => 0 });
  const sources = [sourceOptions({ dailyBudget: 50 })];
  const rig = openRig({ sources, sharedCount });
  await pass(rig.clock, 1_000);
  const drawn = added.flat();
  expect(drawn).toHaveLength(5);
  rig.bus.emit('fleet.store', { up: true });
  expect(added.slice(1)).toEqual([drawn]);
  openRig({ sources, sharedCount, clock: rig.clock, restored: rig.refiller.record() });
  expect(added.slice(2)).toEqual([drawn]);
});

test("source: the reason changes as soon as the fleet's store is back, and the last draw is the one before the loss", async () => {
  const clock = new ManualClock();
  const memory = createPaceMemory(manualTimekeeper(clock));
  let isLost = false;
  const lost = new NoriaError('fleet-store-lost', 'connect ECONNREFUSED');
  const store: PaceStore = {
    ...memory,
    change: (key, decide) => (isLost ? Promise.reject(lost) : memory.change(key, decide)),
  };
  const rig = openRig({ clock, store, sources: [sourceOptions({ count: 2, size: 10 })] });
  await pass(clock, 1_000);
  expect(rig.status(), 'after a draw').toMatchObject({ state: 'waiting', lastDraw: { result: 'succeeded' } });
  isLost = true;
  await pass(clock, 14_000);
  expect(rig.status(), 'the draw that the store prevented').toMatchObject({
    state: 'backoff',
    code: 'fleet-store-lost',
    lastDraw: { result: 'failed' },
  });
  const calls = rig.service.calls.length;
  isLost = false;
  rig.bus.emit('fleet.store', { up: true });
  expect(rig.status(), 'at once').toMatchObject({
    state: 'waiting',
    reason: 'the pace allows one call every 10 s',
    code: '10001',
    lastDraw: { result: 'succeeded' },
  });
  await settle();
  expect(rig.status().reason).not.toContain('store');
  await pass(clock, 1_000);
  expect(rig.service.calls.length).toBe(calls + 1);
});

test("source: a loss of the fleet's store is reported once, however often noria tries again", async () => {
  const clock = new ManualClock();
  const memory = createPaceMemory(manualTimekeeper(clock));
  let fault: 'fleet-store-lost' | 'fleet-store-unusable' | undefined;
  let refusals = 0;
  const store: PaceStore = {
    ...memory,
    change(key, decide) {
      if (fault === undefined) return memory.change(key, decide);
      refusals += 1;
      return Promise.reject(new NoriaError(fault, `attempt ${refusals}`));
    },
  };
  const rig = openRig({ clock, store, sources: [sourceOptions({ count: 2, size: 100 })], idleAfterMs: 0 });
  await pass(clock, 1_000);
  const moves: string[] = [];
  rig.bus.on('source.moved', ({ to, code }) => void moves.push(`${to} ${code}`));
  fault = 'fleet-store-lost';
  await pass(clock, 10 * MINUTE_MS);
  expect(refusals, 'attempts').toBeGreaterThan(5);
  expect(moves).toEqual(['backoff fleet-store-lost']);
  fault = 'fleet-store-unusable';
  await pass(clock, 20 * MINUTE_MS);
  expect(moves.slice(1)).toEqual(['backoff fleet-store-unusable']);
  fault = undefined;
  const calls = rig.service.calls.length;
  await pass(clock, 20 * MINUTE_MS);
  expect(rig.service.calls.length, 'draws also without an event that the store is back').toBeGreaterThan(
    calls,
  );
});

test("source: the daily budget limits draws until the service's midnight, across restarts", async () => {
  const clock = new ManualClock(Date.UTC(2030, 0, 1, 15, 55)); // this is five minutes before midnight in UTC+8
  const sources = [sourceOptions({ dailyBudget: 7, size: 20 })];
  const rig = answering([], { clock, sources, idleAfterMs: 0 });
  await pass(clock, MINUTE_MS);
  expect(rig.service.calls.map(({ count }) => count)).toEqual([5, 2]);
  expect(rig.status()).toMatchObject({
    state: 'paused',
    suspended: true,
    message: null, // the last call succeeded, and its message would contradict the reason
    reason: 'the daily budget of 7 distinct IPs is used up',
    budget: { limit: 7, used: 7 },
  });
  const record = JSON.parse(JSON.stringify(rig.refiller.record()));
  await rig.refiller.close();

  const restarted = openRig({ clock, sources, idleAfterMs: 0, restored: record });
  await pass(clock, 3 * MINUTE_MS);
  expect(restarted.service.calls).toEqual([]);
  await pass(clock, 2 * MINUTE_MS);
  expect(restarted.service.calls.length).toBeGreaterThan(0);
  expect(restarted.status().drawn).toBe(14);
});

test('source: it never requests more than the quota, and retries a used-up quota at midnight at the latest', async () => {
  const clock = new ManualClock(Date.UTC(2030, 0, 1, 15, 50));
  const rig = openRig({
    clock,
    sources: [sourceOptions({ size: 20 })],
    idleAfterMs: 0,
    prepare: ({ service }) => {
      service.reply = (_call, index) => ({ quota: { remaining: [3, 0][index] ?? 100 } });
    },
  });
  await pass(clock, 5 * MINUTE_MS);
  expect(rig.service.calls.map(({ count }) => count)).toEqual([5, 3]);
  expect(rig.status()).toMatchObject({ state: 'paused', quota: { remaining: 0 }, drawn: 8 });
  await pass(clock, 6 * MINUTE_MS);
  expect(rig.service.calls.length).toBeGreaterThan(2);
});

test('source: members that fail unused make it slow down and warn, until one is used', async () => {
  const rig = openRig({ sources: [sourceOptions({ size: 5 })], idleAfterMs: 0 });
  const kill = () => {
    for (const member of rig.pool.members.get('city')?.keys() ?? []) {
      const removed = { source: 'city', member, protocol: 'http', reason: 'failed', uses: 0 } as const;
      rig.bus.emit('member.left', removed);
    }
    rig.pool.members.clear();
  };
  for (let second = 0; second < HOUR_MS / 1_000; second += 1) {
    kill();
    await pass(rig.clock, 1_000);
  }
  expect(rig.service.calls.length).toBeLessThan(45);
  expect(rig.service.calls.at(-1)?.count).toBe(1);
  expect(rig.emitted('source.warned')[0]?.message).toMatch(
    /^10 members in a row failed before their first use/,
  );
  expect(rig.status()).toMatchObject({ used: 0, unused: rig.status().drawn });
  expect(rig.status().lastDraw).toEqual({
    result: 'useless',
    advice: expect.stringContaining('upstream.protocol'),
  });
  expect(rig.status().meaning).toMatch(/^\d+ members in a row failed before their first use\.$/);
  rig.service.reply = () => ({ code: '12009' });
  rig.refiller.refill('city');
  await pass(rig.clock, 3 * MINUTE_MS);
  expect(rig.status().lastDraw?.result).toBe('empty');
  rig.service.reply = () => ({ code: '10001' });
  rig.bus.emit('dial.attempted', {
    ...{ source: 'city', member: 'm', outcome: 'accepted', phase: 'done' },
    ...{ blame: 'nobody', ms: 1, hedge: false },
  });
  kill();
  rig.bus.emit('demand.rose', { sources: ['city'] });
  await pass(rig.clock, 11_000);
  expect(rig.service.calls.at(-1)?.count).toBe(5);
});

test('source: a crash loop with empty answers keeps the pace', async () => {
  const clock = new ManualClock();
  const store = createPaceMemory(manualTimekeeper(clock));
  const service = new ScriptedService(clock);
  service.reply = () => ({ code: '12009' });
  for (let crash = 0; crash < 300; crash += 1) {
    const { refiller } = openRig({ clock, store, service });
    await pass(clock, 100 + (crash % 7) * 50, 50);
    await refiller.close();
  }
  expect(service.calls.length).toBeGreaterThan(4);
  expect(Math.min(...service.gaps)).toBeGreaterThanOrEqual(10_250);
});

test('source: without a writable pace file it backs off, and draws when the file is writable again', async () => {
  const clock = new ManualClock();
  const memory = createPaceMemory(manualTimekeeper(clock));
  let full = true;
  const store: PaceStore = {
    ...memory,
    change: (key, decide) =>
      full ? Promise.reject(new NoriaError('state-unwritable', 'ENOSPC')) : memory.change(key, decide),
  };
  const rig = openRig({ clock, store });
  await pass(clock, MINUTE_MS);
  expect(rig.service.calls).toEqual([]);
  expect(rig.status()).toMatchObject({ state: 'backoff', code: 'state-unwritable', message: 'ENOSPC' });
  full = false;
  await pass(clock, 2 * MINUTE_MS);
  expect(rig.service.calls).toHaveLength(1);
});

test('source: a refill whose call cannot be recorded backs off, and is not repeated at once', async () => {
  const clock = new ManualClock();
  let changes = 0;
  const store: PaceStore = {
    ...createPaceMemory(manualTimekeeper(clock)),
    change: () => {
      changes += 1;
      // Without this limit, a source that never pauses would block the test.
      if (changes > 50) return new Promise(() => {});
      return Promise.reject(new NoriaError('state-unwritable', 'ENOSPC'));
    },
  };
  const rig = openRig({ clock, store });
  rig.refiller.refill('city');
  await pass(clock, 1_000);
  expect(rig.status()).toMatchObject({ state: 'backoff', code: 'state-unwritable' });
  expect(changes).toBeLessThan(10);
});

test('source: a pace that cannot be written after a call does not end a halt', async () => {
  const clock = new ManualClock();
  const memory = createPaceMemory(manualTimekeeper(clock));
  let changes = 0;
  const store: PaceStore = {
    ...memory,
    change: (key, decide) => {
      changes += 1;
      if (changes === 2) return Promise.reject(new NoriaError('state-unwritable', 'ENOSPC'));
      return memory.change(key, decide);
    },
  };
  const rig = answering([code('12001')], { clock, store });
  await pass(clock, MINUTE_MS);
  expect(rig.status().state).toBe('halted');
});

test('source: close during a call or a wait leaves no timer and no member behind', async () => {
  const drawing = openRig();
  await settle();
  expect(drawing.status().state).toBe('drawing');
  await Promise.all([drawing.refiller.close(), drawing.refiller.close()]);
  wake(drawing, 'city');
  await pass(drawing.clock, HOUR_MS, MINUTE_MS);
  expect(drawing.service.calls).toHaveLength(1);
  expect(drawing.pool.members.size).toBe(0);

  const waiting = openRig({ sources: [sourceOptions({ size: 10 })] });
  await pass(waiting.clock, 5_000);
  await waiting.refiller.close();
  expect(waiting.clock.armedCount).toBe(0);
});

test('source: every move is in the table and has a reason', async () => {
  const rig = answering([
    code('12009'),
    code('12002'),
    new NoriaError('service-transport', 'x'),
    code('12008'),
  ]);
  await pass(rig.clock, HOUR_MS, 5_000);
  const moves = rig.emitted('source.moved');
  expect(moves.length).toBeGreaterThan(8);
  for (const { from, to, reason } of moves) {
    const allowed: readonly string[] = SOURCE_MOVES[from as SourceState];
    expect([from, ...allowed], `${from} -> ${to}`).toContain(to);
    expect(reason).not.toBe('');
  }
});

test('source: members are replaced just before the call after the next one would be late', async () => {
  const rig = openRig();
  await pass(rig.clock, 200, 100);
  await pass(rig.clock, 169_150, 1_000);
  // 180 s of life, less: an interval with its slack, and twice the 200 ms of a call
  await pass(rig.clock, 2, 1);
  expect(rig.service.calls.map(({ at }) => at)).toEqual([0, 180_000 - 10_250 - 200 - 200 + 1]);
});

test('source: a call that comes when the pool has got its members elsewhere is not sent, and its turn is given back', async () => {
  const rig = openRig({
    prepare: ({ service, pool }) => {
      service.connecting = async () => {
        const member = { protocol: 'http', host: '203.0.113.1', endsAt: HOUR_MS, unproven: false } as const;
        pool.addMembers(
          'city',
          [1, 2, 3, 4, 5].map((port) => ({ ...member, port })),
        );
      };
    },
  });
  await pass(rig.clock, 1_000);
  expect([rig.service.calls, rig.emitted('draw.started'), rig.service.openConnections]).toEqual([[], [], 0]);
  expect(rig.status()).toMatchObject({ state: 'ready', nextCallSeconds: 0 });
});

test('source: a call asks for what is missing when it is sent, and the status says so', async () => {
  const rig = openRig({
    prepare: ({ service, pool }) => {
      const member = { protocol: 'http', host: '203.0.113.1', endsAt: HOUR_MS, unproven: false } as const;
      pool.addMembers(
        'city',
        [1, 2, 3].map((port) => ({ ...member, port })),
      );
      service.connecting = async () => pool.members.clear();
    },
  });
  await settle();
  expect(rig.status().reason).toBe('requesting 5 members from the service');
  expect(rig.emitted('source.moved').map(({ reason }) => reason)).toContain(
    'requesting 2 members from the service',
  );
  await pass(rig.clock, 1_000);
  expect([rig.service.calls[0]?.count, rig.service.openConnections]).toEqual([5, 0]);
});

test("source: a halt keeps its phase when the fleet's store is back, and when the pool gets members elsewhere", async () => {
  const rig = answering([code('12005')], { idleAfterMs: 0 });
  await pass(rig.clock, 1_000);
  expect(rig.status()).toMatchObject({ state: 'halted', code: '12005' });
  rig.bus.emit('fleet.store', { up: true });
  await settle();
  expect(rig.status().state).toBe('halted');
  const member = { protocol: 'http', host: '203.0.113.1', endsAt: 2 * HOUR_MS, unproven: false } as const;
  rig.pool.addMembers(
    'city',
    [1, 2, 3, 4, 5].map((port) => ({ ...member, port })),
  );
  await pass(rig.clock, HOUR_MS, MINUTE_MS);
  expect([rig.status().state, rig.service.calls.length]).toEqual(['halted', 1]);
});

test('source: an observer of a halt can ask for its status, which names no next call', async () => {
  const rig = answering([code('12001')]);
  const seen: unknown[] = [];
  rig.bus.on('source.moved', ({ to }) => {
    const { nextCallAt, nextCallSeconds } = rig.status();
    if (to === 'halted') seen.push([nextCallAt, nextCallSeconds]);
  });
  await pass(rig.clock, 1_000);
  expect(seen).toEqual([[null, null]]);
});

test('source: a suspended source that tries a draw tells that it moves, although its reason stays', async () => {
  const rig = answering([code('12005'), code('12005')], { idleAfterMs: 0 });
  await pass(rig.clock, HOUR_MS, 2_000);
  const moves = rig.emitted('source.moved').map(({ from, to }) => `${from} ${to}`);
  expect(moves).toContain('halted waiting');
});

test('source: a failed draw without a text of the service has none in its event', async () => {
  const rig = answering([code('12009'), code('12009', { message: 'none left' })], { idleAfterMs: 0 });
  await pass(rig.clock, 30_000, 250);
  const [first, second] = rig.emitted('draw.done');
  expect(first).not.toHaveProperty('message');
  expect(second).toHaveProperty('message', 'none left');
});

test('source: after a change of its options, unusable proxies are warned of again', async () => {
  const dropped: Reply = { entries: [], dropped: { port: 2 } };
  const rig = answering([dropped, dropped, dropped, dropped], { idleAfterMs: 0 });
  await pass(rig.clock, 30_000, 250);
  expect(rig.emitted('source.warned')).toHaveLength(1);
  const sources = [sourceOptions({ size: 6 })];
  await rig.refiller.update({ sources, fill: 'size', idleAfterMs: 0, callTimeoutMs: 10_000 });
  await pass(rig.clock, 30_000, 250);
  expect(rig.emitted('source.warned')).toHaveLength(2);
});

test('source: a failed draw is also repeated without demand after an earlier one has succeeded, without a warning', async () => {
  const lost = new NoriaError('service-transport', 'refused the connection');
  const rig = answering([code('10001'), lost, lost, lost]);
  rig.pool.want('city', NO_CLIENT);
  await pass(rig.clock, HOUR_MS, 10_000);
  expect(rig.service.calls).toHaveLength(1);
  rig.refiller.refill('city');
  await pass(rig.clock, HOUR_MS, 2_000);
  expect(rig.service.calls).toHaveLength(5);
  expect(rig.emitted('source.warned')).toEqual([]);
});
