import { expect, onTestFinished, test } from 'vitest';
import { HOUR_MS } from '../../src/core/duration.ts';
import { EventBus } from '../../src/core/events.ts';
import { NoriaError } from '../../src/core/faults.ts';
import { Secret } from '../../src/core/secret.ts';
import type { DrawnMember } from '../../src/pool/drawn-member.ts';
import type { DrawSourceOptions } from '../../src/refill/options.ts';
import { Refiller } from '../../src/refill/refiller.ts';
import { createPaceMemory } from '../../src/state/pace-file.ts';
import { ManualClock } from '../support/manual-clock.ts';
import {
  CountingPool,
  manualTimekeeper,
  openRig,
  pass,
  type Rig,
  ScriptedService,
  settle,
  sourceOptions,
} from './rig.ts';

const NO_CLIENT = { lastWantedAt: Number.NEGATIVE_INFINITY };

test('refill: every source of the first priority draws at start-up', async () => {
  const { service, status } = openRig();
  await settle();
  expect(service.calls).toEqual([{ at: 0, instance: '1001', count: 5 }]);
  expect(status()).toMatchObject({ name: 'city', product: 'short-classic', state: 'drawing', drawn: 0 });
});

test('refill: five minutes without a client cost one call for each source of the first priority', async () => {
  const priorities = { city: 1, town: 1, backup: 2 };
  const names = Object.keys(priorities);
  const rig = openRig({
    sources: Object.entries(priorities).map(([name, priority]) =>
      sourceOptions({ name, instance: name, priority, size: 20, count: 5 }),
    ),
    prepare: ({ pool }) => {
      for (const name of names) pool.want(name, NO_CLIENT);
    },
  });
  await pass(rig.clock, 5 * 60_000);
  expect(rig.service.calls.map(({ instance, count }) => [instance, count])).toEqual([
    ['city', 5],
    ['town', 5],
  ]);
  expect(names.map((name) => rig.status(name).reason)).toEqual(
    names.map(() => 'no client request yet; the next request starts a draw'),
  );
  expect(rig.clock.armedCount, 'armed timers of idle sources').toBe(0);
});

test('refill: a start with enough members makes no call', async () => {
  const clock = new ManualClock();
  const pool = new CountingPool(clock);
  pool.want('city', NO_CLIENT);
  const member = { host: '203.0.113.1', endsAt: HOUR_MS, protocol: 'http', unproven: false } as const;
  pool.addMembers(
    'city',
    [1, 2, 3, 4, 5].map((port) => ({ ...member, port })),
  );
  const { service } = openRig({ clock, pool });
  await pass(clock, 5 * 60_000);
  expect(service.calls).toEqual([]);
});

test('refill: a source that a reload adds draws once without a client', async () => {
  const rig = openRig({
    sources: [first],
    prepare: ({ pool }) => {
      for (const name of ['first', 'city']) pool.want(name, NO_CLIENT);
    },
  });
  await pass(rig.clock, 60_000);
  await rig.refiller.update(settings([first, sourceOptions({ size: 20 })]));
  await pass(rig.clock, 5 * 60_000);
  expect(rig.service.calls.map(({ instance }) => instance)).toEqual(['1', '1001']);
});

test('refill: missing members are drawn in calls of at most count, interval + 250 ms after each answer', async () => {
  const { clock, service, status } = openRig({ sources: [sourceOptions({ size: 12, count: 5 })] });
  await settle();
  await pass(clock, 60_000, 50);
  expect(service.calls.map(({ count }) => count)).toEqual([5, 5, 2]);
  expect(service.gaps.every((gap) => gap >= 10_450 && gap <= 10_550)).toBe(true);
  expect(status()).toMatchObject({ state: 'ready', drawn: 12, code: '10001' });
});

test('refill: members are replaced before they expire', async () => {
  const { clock, service, pool } = openRig();
  await settle();
  for (let minute = 0; minute < 4; minute += 1) {
    await pass(clock, 60_000);
    expect(pool.usableAt('city', clock.monotonic())).toBeGreaterThanOrEqual(5);
  }
  expect(service.calls.map(({ count }) => count)).toEqual([5, 5]);
});

test('refill: 12002 causes a longer wait, and a warning', async () => {
  const { clock, service, status, emitted } = openRig({
    prepare: ({ service }) => {
      service.reply = (_call, index) => ({ code: index === 0 ? '12002' : '10001' });
    },
  });
  await settle();
  await pass(clock, 1_000);
  expect(status()).toMatchObject({ state: 'waiting', code: '12002' });
  expect(status().reason).toMatch(/^12002: /);
  expect(emitted('source.warned')).toHaveLength(1);
  await pass(clock, 60_000);
  expect(service.gaps[0]).toBeGreaterThan(20_000);
  expect(status().state).toBe('ready');
});

test('refill: after 12002 another program is blamed only if the previous call of noria arrived early enough', async () => {
  const lost = new NoriaError('service-transport', 'no answer');
  const replies = ['10001', '12002', lost, '12002'];
  const rig = openRig({
    sources: [sourceOptions({ size: 100 })],
    prepare: ({ service }) => {
      service.reply = (_call, index) => {
        const reply = replies[index] ?? '10001';
        return typeof reply === 'string' ? { code: reply } : reply;
      };
    },
  });
  await pass(rig.clock, 5 * 60_000, 100);
  const [afterAnswer, afterNone] = rig.emitted('source.warned').map(({ message }) => message);
  expect(afterAnswer).toMatch(
    /noria's previous call arrived about 10(\.\d)? s before this one, or earlier, so another program may be using this instance/,
  );
  expect(afterNone).toMatch(/no record of when its previous call arrived, so its own calls may be the cause/);
  expect(afterNone).not.toMatch(/another program/);
});

test('refill: retries of an unreachable service back off, up to ten minutes', async () => {
  const { clock, service, status } = openRig({
    idleAfterMs: 0,
    prepare: ({ service }) => {
      service.reply = () => new NoriaError('service-transport', 'service.test refused the connection');
    },
  });
  await settle();
  await pass(clock, 3_600_000, 5_000);
  expect(status()).toMatchObject({ state: 'backoff', code: 'transport' });
  expect(status().message).toMatch(/refused the connection/);
  expect(service.gaps.every((gap) => gap >= 10_250)).toBe(true);
  expect(service.gaps.at(-1)).toBeGreaterThan(500_000);
  expect(service.gaps.at(-1)).toBeLessThanOrEqual(605_200);
  expect(service.calls.length).toBeLessThan(20);
});

const first = sourceOptions({ name: 'first', instance: '1', priority: 1, size: 2 });
const second = sourceOptions({ name: 'second', instance: '2', priority: 2, size: 2 });
const callsTo = ({ service }: Rig, instance: string) =>
  service.calls.filter((call) => call.instance === instance);
/** Simulates requests of clients that either source could serve. */
const wanted = ({ pool, clock, bus }: Rig, waiting: number) => {
  for (const name of ['first', 'second']) pool.want(name, { waiting, lastWantedAt: clock.monotonic() });
  bus.emit('demand.rose', { sources: ['first', 'second'] });
};

test('refill: a later priority does not draw while an earlier one can serve', async () => {
  const rig = openRig({ sources: [first, second], idleAfterMs: 0 });
  await pass(rig.clock, 600_000, 5_000);
  expect(callsTo(rig, '1').length).toBeGreaterThan(3);
  expect(callsTo(rig, '2')).toEqual([]);
  expect(rig.status('second')).toMatchObject({
    state: 'idle',
    reason: 'a source with a smaller priority number can serve the clients',
  });
});

test.each<[string, (rig: Rig) => void]>([
  [
    'is halted',
    ({ service }) => (service.reply = ({ instance }) => ({ code: instance === '1' ? '12001' : '10001' })),
  ],
  [
    'has no proxies',
    ({ service }) => (service.reply = ({ instance }) => ({ code: instance === '1' ? '12009' : '10001' })),
  ],
  [
    'cannot be reached',
    ({ service }) => {
      const down = new NoriaError('service-transport', 'no answer');
      service.reply = ({ instance }) => (instance === '1' ? down : {});
    },
  ],
  ['is paused by the operator', ({ refiller }) => void refiller.pause('first')],
])('refill: a later priority takes over when an earlier one %s', async (_what, break_) => {
  const rig = openRig({ sources: [first, second] });
  break_(rig);
  await pass(rig.clock, 5_000, 250);
  expect(callsTo(rig, '2')).toHaveLength(1);
  expect(rig.status('second').state).toBe('ready');
});

test('refill: a later priority takes over when the next draw of an earlier one is too late for waiting clients', async () => {
  const slow = { ...first, intervalMs: 60_000, size: 10 };
  const rig = openRig({ sources: [slow, second] });
  await pass(rig.clock, 5_000, 250);
  expect(callsTo(rig, '2')).toEqual([]);
  rig.pool.members.clear();
  wanted(rig, 1);
  await pass(rig.clock, 1_000, 250);
  expect(callsTo(rig, '2')).toHaveLength(1);
});

test.each([
  [11_800, 0],
  [11_801, 1],
])(
  'refill: with an earlier priority whose next call is %i ms away, a later one makes %i calls for waiting clients',
  async (leftMs, calls) => {
    const rig = openRig({ sources: [{ ...first, intervalMs: 15_000, size: 10 }, second] });
    await pass(rig.clock, 200, 100);
    await pass(rig.clock, 15_250 - leftMs, 250);
    rig.pool.members.clear();
    wanted(rig, 1);
    await settle();
    expect(callsTo(rig, '2')).toHaveLength(calls);
  },
);

test('refill: a later priority draws for a client that waits although an earlier one has members', async () => {
  const rig = openRig({ sources: [first, second] });
  await pass(rig.clock, 5_000, 250);
  rig.pool.want('second', { waiting: 1, lastWantedAt: rig.clock.monotonic() });
  rig.bus.emit('demand.rose', { sources: ['second'] });
  await pass(rig.clock, 1_000, 250);
  expect(callsTo(rig, '2')).toHaveLength(1);
});

test('refill: sources of one instance share its pace', async () => {
  const twin = { ...first, name: 'twin' };
  const rig = openRig({ sources: [first, twin, { ...second, priority: 1 }] });
  await pass(rig.clock, 30_000, 250);
  const starts = callsTo(rig, '1').map(({ at }) => at);
  expect(starts).toHaveLength(2);
  expect((starts[1] ?? 0) - (starts[0] ?? 0)).toBeGreaterThanOrEqual(10_250);
  expect(callsTo(rig, '2')[0]?.at).toBe(0);
});

test('refill: the forecasts have the reason of each source and the next possible delivery, but no text of the service', async () => {
  const rig = openRig({
    sources: [first, { ...second, priority: 1 }],
    prepare: ({ service }) => {
      const codes: Record<string, string> = { 1: '12009', 2: '12001' };
      service.reply = ({ instance }) => ({ code: codes[instance] ?? '', message: '没有任何代理IP' });
    },
  });
  await pass(rig.clock, 2_000, 100);
  const forecasts = rig.refiller.forecasts();
  expect(forecasts).toEqual([
    {
      name: 'first',
      state: 'waiting',
      reason: expect.stringMatching(/^12009: The service has no proxy/),
      nextDrawMs: 8_450,
      nextMemberMs: 8_450 + 200,
      suspendedMs: 0,
    },
    {
      name: 'second',
      state: 'halted',
      reason: '12001: The key is wrong.',
      suspendedMs: Number.POSITIVE_INFINITY,
    },
  ]);
  expect(JSON.stringify(forecasts)).not.toContain('没有');
  expect(rig.status('first')).toMatchObject({
    message: '没有任何代理IP',
    nextCallAt: new Date(rig.clock.now() + 8_450).toISOString(),
  });
});

const settings = (sources: readonly DrawSourceOptions[]) => ({
  sources,
  fill: 'size' as const,
  idleAfterMs: 300_000,
  callTimeoutMs: 10_000,
});

test('refill: a reload does not disturb unchanged sources and keeps the pace of changed ones', async () => {
  const rig = openRig({ sources: [first, second] });
  await pass(rig.clock, 2_000, 250);
  const before = rig.emitted('source.moved').length;
  await rig.refiller.update(settings([first, { ...second, priority: 1 }]));
  await settle();
  expect(
    rig
      .emitted('source.moved')
      .slice(before)
      .filter(({ source }) => source === 'first'),
  ).toEqual([]);
  expect(callsTo(rig, '2')).toHaveLength(1);
  await rig.refiller.update(settings([{ ...first, size: 4 }]));
  expect(rig.refiller.sources().map(({ name }) => name)).toEqual(['first']);
  await pass(rig.clock, 20_000, 250);
  expect(callsTo(rig, '1').map(({ count }) => count)).toEqual([2, 2]);
  expect(callsTo(rig, '1')[1]?.at ?? 0).toBeGreaterThanOrEqual(10_250);
  expect(rig.status('first').drawn).toBe(4);
});

test('refill: a reload makes one attempt, at the pace, for a changed halted source, none for an unchanged one', async () => {
  const rig = openRig({
    sources: [first],
    prepare: ({ service }) => {
      service.reply = (call) => ({ code: onlyRightKey(call).code });
    },
  });
  await pass(rig.clock, 60_000);
  await rig.refiller.update(settings([{ ...first }]));
  await pass(rig.clock, 60_000);
  expect(rig.service.calls).toHaveLength(1);
  expect(rig.status().state).toBe('halted');
  const call = { ...first.call, key: new Secret('fedcba9876543210') };
  await rig.refiller.update(settings([{ ...first, call }]));
  await pass(rig.clock, 2_000, 250);
  expect(rig.service.calls).toHaveLength(2);
  expect(rig.status().state).toBe('ready');
});

test('refill: a reload lets a call in flight deliver, and restarts a wait', async () => {
  const rig = openRig({ sources: [first] });
  await settle();
  await rig.refiller.update(settings([{ ...first, size: 6 }]));
  await pass(rig.clock, 1_000, 100);
  expect(rig.status()).toMatchObject({ state: 'waiting', drawn: 2 });
  const moved = { ...first, call: { ...first.call, instance: '9' }, size: 6 };
  await rig.refiller.update(settings([moved]));
  await settle();
  expect(rig.service.calls.map(({ instance }) => instance)).toEqual(['1', '9']);
});

test('refill: a restart restores counts and quotas', async () => {
  const rig = openRig({
    prepare: ({ service }) => {
      service.reply = () => ({ quota: { remaining: 42 } });
    },
  });
  await pass(rig.clock, 2_000, 250);
  const { refiller } = openRig({
    restored: JSON.parse(JSON.stringify(rig.refiller.record())),
    idleAfterMs: 1,
  });
  expect(refiller.sources()[0]).toMatchObject({ drawn: 5, quota: { remaining: 42 } });
  const { refiller: invalid } = openRig({ restored: [7] });
  expect(invalid.sources()[0]).toMatchObject({ drawn: 0 });
});

const RIGHT_KEY = new Secret('fedcba9876543210');
const WRONG_KEY = 'akey错误';
const onlyRightKey = (call: DrawSourceOptions['call']) =>
  'key' in call && call.key.reveal() === RIGHT_KEY.reveal()
    ? { code: '10001' }
    : { code: '12001', message: WRONG_KEY };
const repaired = () => {
  const { call, ...rest } = sourceOptions();
  return settings([{ ...rest, call: { ...call, key: RIGHT_KEY } }]);
};

test('refill: after a reload the status of a repaired source shows nothing of the old configuration', async () => {
  const rig = openRig({
    prepare: ({ service }) => {
      service.reply = onlyRightKey;
    },
  });
  await pass(rig.clock, 1_000);
  expect(rig.status()).toMatchObject({ state: 'halted', code: '12001', message: WRONG_KEY });
  await rig.refiller.update(repaired());
  await settle();
  expect(rig.status()).toMatchObject({ state: 'waiting', reason: 'the pace allows one call every 10 s' });
  expect(rig.status()).toMatchObject({ code: null, message: null, advice: null });
  await pass(rig.clock, 10_800, 100);
  expect(rig.status()).toMatchObject({ state: 'ready', code: '10001' });
});

test('refill: an answer to the old configuration does not halt a reloaded source', async () => {
  const rig = openRig({
    prepare: ({ service }) => {
      service.reply = onlyRightKey;
    },
  });
  await pass(rig.clock, 100, 50);
  expect(rig.status().state).toBe('drawing');
  await rig.refiller.update(repaired());
  await pass(rig.clock, 200, 50);
  expect(rig.status()).toMatchObject({ state: 'waiting', reason: 'the pace allows one call every 10 s' });
  await pass(rig.clock, 10_800, 100);
  expect(rig.service.calls).toHaveLength(2);
  expect(rig.status()).toMatchObject({ state: 'ready', code: '10001' });
});

test('refill: a draw emits one event with its code and counts', async () => {
  const rig = openRig({
    prepare: ({ service }) => {
      service.reply = () => ({ entries: service.fresh(2), dropped: { private: 1, port: 2 } });
    },
  });
  await pass(rig.clock, 1_000, 100);
  expect(rig.emitted('draw.started')[0]).toEqual({ source: 'city', asked: 5 });
  expect(rig.emitted('draw.done')[0]).toEqual({
    ...{ source: 'city', code: '10001', asked: 5, received: 5, joined: 2, renewed: 0, rejected: 3 },
    ...{ forbidden: 1, ms: 200 },
  });
});

test('refill: a lifetime counts from the sending of the request; missing ones have the default, unknown ones no end', async () => {
  const added: DrawnMember[] = [];
  const clock = new ManualClock();
  const pool = new CountingPool(clock);
  const addMembers = pool.addMembers.bind(pool);
  pool.addMembers = (source, drawn) => {
    added.push(...drawn);
    return addMembers(source, drawn);
  };
  openRig({
    clock,
    pool,
    prepare: ({ service }) => {
      const host = '203.0.113.1';
      service.reply = () => ({
        entries: [
          {
            host,
            port: 1,
            lifetimeMs: 90_000,
            location: 'city',
            exitIp: '203.0.113.9',
            area: 'north',
            isNew: true,
            exitName: 'exit 1',
            login: { username: 'one', password: new Secret('x') },
          },
          { host, port: 2 },
          { host, port: 3, lifetimeMs: 'unknown', protocol: 'socks5' },
        ],
      });
    },
  });
  await pass(clock, 1_000, 100);
  const common = { host: '203.0.113.1', unproven: false, protocol: 'http' };
  expect(added).toEqual([
    {
      ...common,
      port: 1,
      endsAt: 90_000,
      location: 'city',
      exitIp: '203.0.113.9',
      exitName: 'exit 1',
      login: { username: 'one', password: expect.any(Secret) },
      facts: { area: 'north', isNew: true },
    },
    { ...common, port: 2, endsAt: 60_000 },
    { ...common, port: 3, endsAt: undefined, protocol: 'socks5' },
  ]);
});

test('refill: a proxy is left out if nothing names its protocol', async () => {
  const { call, protocol: _, ...rest } = sourceOptions();
  const rig = openRig({
    sources: [{ ...rest, call, protocol: undefined }],
    prepare: ({ service }) => {
      const host = '203.0.113.1';
      service.reply = () => ({
        entries: [
          { host, port: 1 },
          { host, port: 2, protocol: 'socks5' },
        ],
      });
    },
  });
  await pass(rig.clock, 1_000, 100);
  expect([...(rig.pool.members.get('city')?.keys() ?? [])]).toEqual(['203.0.113.1:2']);
});

test('refill: the budget counts exits: by exit IP, else by address and user', async () => {
  const at = (port: number, more: object = {}) => ({ host: '203.0.113.1', port, ...more });
  const login = (username: string) => ({ login: { username, password: new Secret('x') } });
  const rig = openRig({
    sources: [sourceOptions({ dailyBudget: 50, size: 7 })],
    prepare: ({ service }) => {
      service.reply = () => ({
        entries: [
          ...[at(1, { exitIp: '192.0.2.1' }), at(2, { exitIp: '192.0.2.1' }), at(3), at(4)],
          ...[at(5, login('a')), at(5, login('b')), at(5, login('b'))],
        ],
      });
    },
  });
  await pass(rig.clock, 1_000, 100);
  expect(rig.status().budget).toEqual({ limit: 50, used: 5 });
  const without = openRig();
  await pass(without.clock, 1_000, 100);
  expect(without.refiller.record(), 'without a budget it remembers no IPs').toMatchObject({
    city: { drawn: 5, budget: { drawn: [] } },
  });
  expect(without.emitted('draw.done')[0]).not.toHaveProperty('message');
});

test('refill: a reload to another instance resets the learned maximum, one of the size does not', async () => {
  const learned = { ...first, size: 8, count: 8 };
  const rig = openRig({
    sources: [learned],
    idleAfterMs: 0,
    prepare: ({ service }) => {
      service.reply = (call, index) =>
        index === 0 ? { code: '12003' } : { entries: service.fresh(call.count ?? 0) };
    },
  });
  await pass(rig.clock, 11_000, 250);
  await rig.refiller.update(settings([{ ...learned, size: 12 }]));
  await pass(rig.clock, 11_000, 250);
  const call = { ...first.call, instance: '9' };
  await rig.refiller.update(settings([{ ...learned, size: 20, call }]));
  await pass(rig.clock, 1_000, 250);
  expect(rig.service.calls.map(({ instance, count }) => [instance, count])).toEqual([
    ['1', 8],
    ['1', 4],
    ['1', 4],
    ['9', 8],
  ]);
});

test('refill: a reload that changes a source resets the spacing of fruitless draws', async () => {
  const rig = openRig({
    sources: [first],
    idleAfterMs: 0,
    prepare: ({ service }) => {
      service.reply = () => ({ code: '12009' });
    },
  });
  await pass(rig.clock, 900_000, 1_000);
  const before = rig.service.calls.length;
  const call = { ...first.call, params: { timespan: 0 } };
  await rig.refiller.update({ ...settings([{ ...first, call }]), idleAfterMs: 0 });
  await pass(rig.clock, 32_000, 250);
  expect(rig.service.calls.length - before).toBeGreaterThanOrEqual(3);
});

test('refill: what is asked for before the sources are open runs with them, and later at once', async () => {
  const clock = new ManualClock();
  const bus = new EventBus((_, error) => {
    throw error;
  });
  const [pool, service] = [new CountingPool(clock), new ScriptedService(clock)];
  pool.want('city', NO_CLIENT);
  pool.addMembers(
    'city',
    [1, 2, 3, 4, 5].map((port) => ({ host: 'h', port, endsAt: HOUR_MS, protocol: 'http', unproven: false })),
  );
  const refiller = new Refiller({ clock, bus, pool, random: () => 0.5 });
  onTestFinished(() => refiller.close());
  const ran: string[] = [];
  refiller.whenOpen(() => ran.push(`early ${refiller.pause('city')}`));
  await refiller.update(settings([first]));
  expect([ran, refiller.sources(), refiller.record()]).toEqual([[], [], {}]);
  refiller.open({
    ...settings([sourceOptions()]),
    extractor: service,
    pace: createPaceMemory(manualTimekeeper(clock)),
  });
  refiller.whenOpen(() => ran.push(`late ${refiller.resume('nobody')}`));
  expect(ran).toEqual(['early true', 'late false']);
  await settle();
  expect(refiller.sources()[0]).toMatchObject({ state: 'paused', reason: 'paused by the operator' });
});

test('refill: a source of a later priority wakes when an earlier one moves or loses a member, not the other way round', async () => {
  const rig = openRig({
    sources: [first, second, sourceOptions({ name: 'third', instance: '3', priority: 3, size: 2 })],
  });
  await pass(rig.clock, 5_000, 250);
  expect(rig.service.calls.map(({ instance }) => instance)).toEqual(['1']);
  const left = (source: string) =>
    rig.bus.emit('member.left', { source, member: 'm', protocol: 'http', reason: 'failed', uses: 1 });
  rig.pool.members.clear();
  left('third');
  left('second');
  await settle();
  const reasons = () => ['first', 'second', 'third'].map((name) => rig.status(name).state);
  expect(reasons(), 'the first one hears of nothing').toEqual(['ready', 'idle', 'idle']);
  left('unknown');
  left('first');
  await settle();
  expect(reasons()).toEqual(['waiting', 'idle', 'idle']);
  await rig.refiller.close();
  const calls = rig.service.calls.length;
  left('first');
  rig.bus.emit('demand.rose', { sources: ['first', 'second'] });
  rig.bus.emit('fleet.store', { up: true });
  await pass(rig.clock, HOUR_MS, 60_000);
  expect([rig.service.calls.length, rig.clock.armedCount]).toEqual([calls, 0]);
});
