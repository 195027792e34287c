import { expect, test } from 'vitest';
import { MINUTE_MS } from '../../src/core/duration.ts';
import { Secret } from '../../src/core/secret.ts';
import type { UrlAccess } from '../../src/refill/options.ts';
import { createPaceMemory } from '../../src/state/pace-file.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { CountingPool, LIST_CALL, manualTimekeeper, openRig, pass, sourceOptions } from './rig.ts';

const EVERY_MS = 10 * MINUTE_MS;
const ROTATE = {
  url: new Secret('http://modem.test/rotate?id={port}'),
  everyMs: EVERY_MS,
  settleMs: 5_000,
  check: 'http://check.test/ip',
};
const LISTED = [8_001, 8_002].map((port) => ({ host: '192.0.2.1', port, lifetimeMs: 1e9 }));

/** A pool whose members have open tunnels while `busy`. */
class BusyPool extends CountingPool {
  busy = false;
  drained: number[] = [];

  override drainMember(source: string, member: Parameters<CountingPool['drainMember']>[1]) {
    super.drainMember(source, member);
    this.drained.push(member.port);
    return this.busy ? `id ${member.port}` : undefined;
  }
}

function openModems(options: { clock?: ManualClock; store?: ReturnType<typeof createPaceMemory> } = {}) {
  const { clock = new ManualClock() } = options;
  const pool = new BusyPool(clock);
  const calls: (readonly [at: number, port: string])[] = [];
  const exits = new Map<string, number>();
  const modems = { status: 200, changes: true, silent: false };
  const urls: UrlAccess = {
    exitOf: async (_source, { port }) =>
      modems.silent ? undefined : `203.0.113.${exits.get(String(port)) ?? 0}`,
    open: async () => ({
      close: () => {},
      get: async (url, gate) => {
        gate?.beforeWrite();
        gate?.answered();
        const port = new URL(url.reveal()).searchParams.get('id') ?? '';
        calls.push([clock.monotonic(), port]);
        if (modems.changes) exits.set(port, (exits.get(port) ?? 0) + 1);
        return { status: modems.status, text: '' };
      },
    }),
  };
  const { call: _, ...rest } = sourceOptions({ intervalMs: 0, defaultLifetimeMs: undefined });
  const rig = openRig({
    ...{ clock, pool, urls, ...(options.store && { store: options.store }) },
    sources: [{ ...rest, call: LIST_CALL, refreshMs: 60 * MINUTE_MS, rotate: ROTATE }],
    prepare: ({ service }) => {
      service.reply = () => ({ code: '10001', entries: LISTED });
    },
  });
  return { rig, clock, pool, calls, modems };
}

test('exit rotation: each member is drained, called and back with its new exit, one after another', async () => {
  const { rig, clock, pool, calls } = openModems();
  await pass(clock, EVERY_MS + 1_000);
  expect(pool.drained).toEqual([8_001]);
  expect(pool.usableAt('city', clock.monotonic()), 'the other one serves').toBe(1);
  await pass(clock, 15_000);
  expect(calls.map(([, port]) => port)).toEqual(['8001', '8002']);
  expect((calls[1]?.[0] ?? 0) - (calls[0]?.[0] ?? 0)).toBeGreaterThanOrEqual(ROTATE.settleMs);
  expect(pool.usableAt('city', clock.monotonic())).toBe(2);
  expect(rig.status().reason).toBe('the list has 2 members');
});

test('exit rotation: waits for the open tunnels of a member, at most half a minute', async () => {
  const { rig, clock, pool, calls } = openModems();
  pool.busy = true;
  await pass(clock, EVERY_MS + 20_000);
  expect(pool.drained).toEqual([8_001]);
  expect(calls).toHaveLength(0);
  rig.bus.emit('member.left', {
    ...{ source: 'city', member: 'id 8001', protocol: 'http', reason: 'removed', uses: 1 },
  });
  await pass(clock, 100, 100);
  expect(calls.map(([, port]) => port)).toEqual(['8001']);
  await pass(clock, 20_000);
  expect(calls, 'the second one still has tunnels').toHaveLength(1);
  await pass(clock, 20_000);
  expect(calls.map(([, port]) => port)).toEqual(['8001', '8002']);
});

test('exit rotation: the reason names the members without a new exit, and why', async () => {
  const { rig, clock, modems } = openModems();
  modems.changes = false;
  await pass(clock, EVERY_MS + 20_000);
  expect(rig.status().reason).toContain('192.0.2.1:8001: the exit 203.0.113.0 did not change');
  modems.status = 503;
  await pass(clock, EVERY_MS + 20_000);
  expect(rig.status().reason).toContain('192.0.2.1:8001: the rotate URL answered with status 503');
  modems.status = 200;
  modems.silent = true;
  await pass(clock, EVERY_MS + 60_000);
  expect(rig.status().reason).toContain('http://check.test/ip shows no exit through it');
  modems.silent = false;
  modems.changes = true;
  await pass(clock, EVERY_MS + 60_000);
  expect(rig.status().reason).toBe('the list has 2 members');
  expect(rig.emitted('source.warned').map(({ message }) => message)).toHaveLength(6);
});

test('exit rotation: neither a restart nor a second noria calls a modem before every has passed', async () => {
  const clock = new ManualClock();
  const store = createPaceMemory(manualTimekeeper(clock));
  const first = openModems({ clock, store });
  const second = openModems({ clock, store });
  await pass(clock, 3 * EVERY_MS + 30_000);
  const calls = [...first.calls, ...second.calls].sort(([one], [other]) => one - other);
  for (const port of ['8001', '8002']) {
    const times = calls.filter(([, called]) => called === port).map(([at]) => at);
    expect(times.length).toBeGreaterThanOrEqual(2);
    for (const [index, at] of times.entries())
      if (index > 0) expect(at - (times[index - 1] ?? 0)).toBeGreaterThanOrEqual(EVERY_MS);
  }
});
