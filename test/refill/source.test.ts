import { expect, test } from 'vitest';
import { NoriaError } from '../../src/core/faults.ts';
import { mayMove, SOURCE_MOVES, type SourcePhaseName } from '../../src/refill/phase.ts';
import { createPaceMemory, type PaceStore } from '../../src/state/pace-file.ts';
import { ManualClock } from '../support/manual-clock.ts';
import {
  CountingReservoir,
  manualTimekeeper,
  openRig,
  pass,
  type Reply,
  type Rig,
  ScriptedService,
  settle,
  sourceOptions,
} from './rig.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;

/** A rig whose service answers each call with the next of `codes`, then with members. */
function answering(codes: readonly Reply[], changes: Parameters<typeof openRig>[0] = {}): Rig {
  return openRig({
    ...changes,
    prepare: ({ service }) => {
      service.reply = (_call, index) => codes[index] ?? { code: '10001' };
    },
  });
}

const code = (text: string, changes: Reply = {}): Reply => ({ code: text, ...changes });
const wake = ({ bus }: Rig, ...sources: string[]) => bus.emit('demand.rose', { sources });

test('source: the table of moves names every phase, and only phases', () => {
  const names = Object.keys(SOURCE_MOVES) as SourcePhaseName[];
  expect(names).toHaveLength(7);
  for (const [from, tos] of Object.entries(SOURCE_MOVES)) {
    for (const to of tos) expect(names, `${from} -> ${to}`).toContain(to);
  }
  expect(mayMove('idle', 'drawing')).toBe(false);
  expect(mayMove('waiting', 'waiting')).toBe(true);
});

test('source: it goes idle when no client has come for long, and draws at once when one does', async () => {
  const rig = openRig({ idleAfterMs: MINUTE_MS });
  await pass(rig.clock, HOUR_MS, 10_000);
  expect(rig.status()).toMatchObject({ state: 'idle', reason: 'no client has come lately' });
  expect(rig.status()).not.toHaveProperty('nextCallAt');
  expect(rig.service.calls).toHaveLength(1);
  expect(rig.clock.armedCount, 'an idle source needs no timer').toBe(0);
  rig.reservoir.want('city', { lastWantedAt: rig.clock.monotonic(), waiting: 1 });
  wake(rig, 'city');
  await settle();
  expect(rig.service.calls.at(-1)).toEqual({ at: HOUR_MS, instance: '1001', count: 5 });
});

test('source: with idleAfter 0 it never stops', async () => {
  const rig = openRig({ idleAfterMs: 0 });
  await pass(rig.clock, HOUR_MS, 5_000);
  expect(rig.service.calls.length).toBeGreaterThanOrEqual(20);
});

test('source: a wrong key halts it until a person does something; resuming tries once, within the pace', async () => {
  const rig = answering([code('12001', { message: 'akey错误' }), code('12001')]);
  await pass(rig.clock, 24 * HOUR_MS, MINUTE_MS);
  expect(rig.service.calls).toHaveLength(1);
  expect(rig.status()).toMatchObject({ state: 'halted', code: '12001', message: 'akey错误' });
  expect(rig.status().reason).toBe('12001: The key is wrong.');
  expect(rig.status().advice).toMatch(/noria key/);
  expect(rig.refiller.outlook()).toEqual({
    sources: [{ name: 'city', state: 'halted', reason: '12001: The key is wrong.' }],
  });

  expect(rig.refiller.resume('city')).toBe(true);
  await pass(rig.clock, MINUTE_MS, 100);
  expect(rig.service.calls).toHaveLength(2);
  expect(rig.status().state).toBe('halted');
  rig.refiller.resume('city');
  rig.refiller.resume('city');
  await pass(rig.clock, MINUTE_MS, 100);
  expect(rig.status().state).toBe('idle'); // the third call was fine, and nobody wants anything any more
  expect(rig.service.calls).toHaveLength(3);
  expect(Math.min(...rig.service.gaps)).toBeGreaterThanOrEqual(10_250);
});

test('source: an instance that has expired is tried again every half hour while someone wants it', async () => {
  const rig = answering(new Array<Reply>(100).fill(code('12005')), { idleAfterMs: 0 });
  await pass(rig.clock, 3 * HOUR_MS + MINUTE_MS, 2_000);
  expect(rig.status()).toMatchObject({ state: 'halted', code: '12005' });
  expect(rig.service.calls).toHaveLength(7);
});

test('source: a halt is still one when nobody wants anything', async () => {
  const rig = answering([code('12004')]);
  await pass(rig.clock, 2 * HOUR_MS, MINUTE_MS);
  expect(rig.status().state).toBe('halted');
  expect(rig.service.calls).toHaveLength(1);
});

test('source: 12003 with more than one asked for halves the count and remembers; only one at 1 halts', async () => {
  const refused = code('12003');
  const rig = answering([refused, refused, refused], { sources: [sourceOptions({ count: 8, size: 8 })] });
  await pass(rig.clock, 25_000);
  expect(rig.service.calls.map(({ count }) => count)).toEqual([8, 4, 2]);
  expect(rig.heard('source.warned').map(({ message }) => message)).toEqual([
    'the service refused a count of 8 (12003): from now on at most 4 are asked for at once',
    'the service refused a count of 4 (12003): from now on at most 2 are asked for at once',
    'the service refused a count of 2 (12003): from now on at most 1 are asked for at once',
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

test('source: 12003 at 1 halts', async () => {
  const rig = answering([code('12003')], { sources: [sourceOptions({ size: 1 })] });
  await pass(rig.clock, 5_000);
  expect(rig.status()).toMatchObject({ state: 'halted', code: '12003' });
});

test('source: left out, count is at most five, and twenty for the free product', async () => {
  const free = sourceOptions({ size: 50, count: undefined });
  const { call } = free;
  const rig = openRig({
    sources: [free, { ...free, name: 'free', call: { ...call, product: 'free', instance: 'app' } }],
  });
  await settle();
  expect(rig.service.calls.map(({ count }) => count)).toEqual([5, 20]);
});

test('source: 12008 of the long-term residential product halves its tunnels until a call succeeds', async () => {
  const { call, ...rest } = sourceOptions();
  const rig = answering([code('12008')], {
    sources: [{ ...rest, call: { ...call, product: 'long-residential' } }],
    idleAfterMs: 0,
  });
  await pass(rig.clock, MINUTE_MS);
  expect(rig.status()).toMatchObject({ state: 'paused', code: '12008' });
  expect(rig.reservoir.limits.get('city')).toBe(0.5);
  await pass(rig.clock, 5 * MINUTE_MS);
  expect(rig.reservoir.limits.has('city')).toBe(false);
});

test('source: 12012 is met with two minutes of silence, also after a restart, also when a person asks', async () => {
  const clock = new ManualClock();
  const store = createPaceMemory(manualTimekeeper(clock));
  const { call, ...rest } = sourceOptions();
  const sources = [{ ...rest, call: { ...call, product: 'free' as const } }];
  const rig = answering([code('12012')], { clock, store, sources });
  await pass(clock, 1_000);
  expect(rig.status()).toMatchObject({ state: 'paused', code: '12012' });
  await rig.refiller.close();

  const restarted = openRig({ clock, store, sources, pool: new CountingReservoir(clock) });
  restarted.refiller.refill('city');
  await pass(clock, 118_000);
  expect(restarted.service.calls).toEqual([]);
  expect(restarted.status()).toMatchObject({
    state: 'waiting',
    reason: expect.stringMatching(/an earlier answer of the service/),
  });
  await pass(clock, 3_000);
  expect(restarted.service.calls).toHaveLength(1);
});

test('source: empty answers go on at the pace while a client waits, are told after three, and slow down otherwise', async () => {
  const rig = answering(new Array<Reply>(1_000).fill(code('12009')), { idleAfterMs: 0 });
  rig.reservoir.want('city', { waiting: 1 });
  await pass(rig.clock, 2 * MINUTE_MS, 250);
  expect(rig.service.calls).toHaveLength(12);
  expect(rig.status()).toMatchObject({ state: 'waiting', code: '12009' });
  expect(rig.heard('source.warned')).toHaveLength(1);
  expect(rig.heard('source.warned')[0]?.message).toMatch(/^3 empty answers in a row: 12009: .*adr, timespan/);
  rig.reservoir.want('city', { waiting: 0 });
  await pass(rig.clock, HOUR_MS, 5_000);
  expect(rig.service.calls.length).toBeLessThan(12 + 35);
});

test('source: a draw of which nothing may be used is told at once, with what to do, and counts as drawn for nothing', async () => {
  const dropped: Reply = { entries: [], dropped: { private: 4, own: 1, port: 2 } };
  const good = code('10001');
  const rig = answering([dropped, dropped, dropped, dropped, good, dropped], { idleAfterMs: 0 });
  rig.reservoir.want('city', { waiting: 1 });
  await pass(rig.clock, 5_000, 250);
  expect(rig.service.calls).toHaveLength(1);
  expect(rig.heard('source.warned')).toHaveLength(1);
  expect(rig.heard('source.warned')[0]?.message).toMatch(/private 4.*pool\.allowPrivateAddresses: true/);
  expect(rig.heard('draw.done')[0]).toMatchObject({ received: 7, rejected: 7, forbidden: 5 });
  expect(rig.status()).toMatchObject({ state: 'waiting', drawn: 5, unused: 5 });
  await pass(rig.clock, MINUTE_MS, 250);
  expect(rig.heard('source.warned'), 'the same is told once').toHaveLength(1);
});

test('source: while a client waits, a service that could not be reached is tried every minute', async () => {
  const down = new NoriaError('service-transport', 'no answer');
  const rig = answering(new Array<Reply>(1_000).fill(down), { idleAfterMs: 0 });
  await pass(rig.clock, 2 * HOUR_MS, 5_000);
  const before = rig.service.calls.length;
  rig.reservoir.want('city', { waiting: 1 });
  wake(rig, 'city');
  await pass(rig.clock, 10 * MINUTE_MS);
  expect(rig.service.calls.length - before).toBeGreaterThanOrEqual(9);
  expect(rig.service.calls.length - before).toBeLessThanOrEqual(11);
});

test('source: a person pauses it, a call under way still lands, and resumes it', async () => {
  const rig = openRig({ sources: [sourceOptions({ size: 10 })], idleAfterMs: 0 });
  await settle();
  rig.refiller.pause('city');
  await pass(rig.clock, HOUR_MS, MINUTE_MS);
  expect(rig.service.calls).toHaveLength(1);
  expect(rig.status()).toMatchObject({ state: 'paused', reason: 'a person paused it', drawn: 5 });
  expect(rig.status()).not.toHaveProperty('nextCallMs');
  rig.refiller.refill('city');
  await settle();
  expect(rig.service.calls).toHaveLength(1);
  rig.refiller.resume('city');
  await settle();
  expect(rig.service.calls).toHaveLength(2);
});

test('source: paused while it waits for the pace, it makes no call', async () => {
  const rig = openRig({ sources: [sourceOptions({ size: 10 })], idleAfterMs: 0 });
  await pass(rig.clock, 5_000);
  expect(rig.status().state).toBe('waiting');
  rig.refiller.pause('city');
  await settle();
  expect(rig.status().state).toBe('paused');
  expect(rig.clock.armedCount).toBe(0);
});

test('source: a refill tops it up also when no client comes, at the pace, and asks for nothing that is not missing', async () => {
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

test('source: a name that is not there is said to be so', () => {
  const { refiller } = openRig();
  expect([refiller.refill('x'), refiller.pause('x'), refiller.resume('x')]).toEqual([false, false, false]);
});

test("source: the daily budget bounds what is drawn, until the service's midnight, across restarts", async () => {
  const clock = new ManualClock(Date.UTC(2030, 0, 1, 15, 55)); // five minutes before midnight in UTC+8
  const sources = [sourceOptions({ dailyBudget: 7, size: 20 })];
  const rig = openRig({ clock, sources, idleAfterMs: 0 });
  await pass(clock, MINUTE_MS);
  expect(rig.service.calls.map(({ count }) => count)).toEqual([5, 2]);
  expect(rig.status()).toMatchObject({
    state: 'paused',
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

test('source: a quota that runs out is not overdrawn, and is looked at again at midnight at the latest', async () => {
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

test('source: members that die before anyone can use them make it slow down and say so; one that serves ends that', async () => {
  const rig = openRig({ sources: [sourceOptions({ size: 5 })], idleAfterMs: 0 });
  const kill = () => {
    for (const member of rig.reservoir.members.get('city')?.keys() ?? []) {
      const gone = { source: 'city', member, protocol: 'http', reason: 'failed', uses: 0 } as const;
      rig.bus.emit('member.left', gone);
    }
    rig.reservoir.members.clear();
  };
  for (let second = 0; second < HOUR_MS / 1_000; second += 1) {
    kill();
    await pass(rig.clock, 1_000);
  }
  expect(rig.service.calls.length).toBeLessThan(45);
  expect(rig.service.calls.at(-1)?.count).toBe(1);
  expect(rig.heard('source.warned')[0]?.message).toMatch(
    /^10 members in a row failed before anyone could use them/,
  );
  expect(rig.status()).toMatchObject({ used: 0, unused: rig.status().drawn });
  rig.bus.emit('dial.attempted', {
    ...{ source: 'city', member: 'm', outcome: 'accepted', phase: 'done' },
    ...{ blame: 'nobody', ms: 1, hedge: false },
  });
  kill();
  rig.bus.emit('demand.rose', { sources: ['city'] });
  await pass(rig.clock, 11_000);
  expect(rig.service.calls.at(-1)?.count).toBe(5);
});

test('source: in a crash loop with a service that always answers 12009 the pace holds', async () => {
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

test('source: where the pace cannot be written no call is made; it rests, says why, and goes on when it can', async () => {
  const clock = new ManualClock();
  const memory = createPaceMemory(manualTimekeeper(clock));
  let full = true;
  const store: PaceStore = {
    now: memory.now,
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

test('source: a pace that cannot be written after a call is told as well, and a halt that the call led to stays', async () => {
  const clock = new ManualClock();
  const memory = createPaceMemory(manualTimekeeper(clock));
  let changes = 0;
  const store: PaceStore = {
    now: memory.now,
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

test('source: closing in the middle of a call, or of a wait, leaves nothing behind', async () => {
  const drawing = openRig();
  await settle();
  expect(drawing.status().state).toBe('drawing');
  await Promise.all([drawing.refiller.close(), drawing.refiller.close()]);
  wake(drawing, 'city');
  await pass(drawing.clock, HOUR_MS, MINUTE_MS);
  expect(drawing.service.calls).toHaveLength(1);
  expect(drawing.reservoir.members.size).toBe(0);

  const waiting = openRig({ sources: [sourceOptions({ size: 10 })] });
  await pass(waiting.clock, 5_000);
  await waiting.refiller.close();
  expect(waiting.clock.armedCount).toBe(0);
});

test('source: every move is one of the table, and told with its reason', async () => {
  const rig = answering([
    code('12009'),
    code('12002'),
    new NoriaError('service-transport', 'x'),
    code('12008'),
  ]);
  await pass(rig.clock, HOUR_MS, 5_000);
  const moves = rig.heard('source.moved');
  expect(moves.length).toBeGreaterThan(8);
  for (const { from, to, reason } of moves) {
    expect(mayMove(from as SourcePhaseName, to as SourcePhaseName), `${from} -> ${to}`).toBe(true);
    expect(reason).not.toBe('');
  }
});
