import { expect, test } from 'vitest';
import { MINUTE_MS } from '../../src/core/duration.ts';
import { NoriaError } from '../../src/core/faults.ts';
import { Secret } from '../../src/core/secret.ts';
import type { UrlAccess } from '../../src/refill/options.ts';
import { createPaceMemory } from '../../src/state/pace-file.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { CountingPool, LIST_CALL, manualTimekeeper, openRig, pass, settle, sourceOptions } from './rig.ts';

const EVERY_MS = 10 * MINUTE_MS;
const ROTATE = {
  url: new Secret('http://modem.test/rotate?id={port}'),
  everyMs: EVERY_MS,
  settleMs: 5_000,
  check: 'http://check.test/ip',
};
const listed = (...ports: readonly number[]) =>
  ports.map((port) => ({ host: '192.0.2.1', port, lifetimeMs: 1e9 }));
const LISTED = listed(8_001, 8_002);

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

interface ModemOptions {
  readonly clock?: ManualClock;
  readonly store?: ReturnType<typeof createPaceMemory>;
  readonly url?: string;
}

function openModems(options: ModemOptions = {}) {
  const { clock = new ManualClock() } = options;
  const pool = new BusyPool(clock);
  const calls: (readonly [at: number, port: string])[] = [];
  const exits = new Map<string, number>();
  const modems = {
    ...{
      status: 200,
      text: '',
      changes: true,
      silent: false,
      isLate: false,
      entries: LISTED as readonly object[],
    },
    ...{ error: undefined as Error | undefined, urls: [] as string[], looks: [] as string[], open: 0 },
  };
  const urls: UrlAccess = {
    exitOf: async (_source, { port }) => {
      modems.looks.push(`${clock.monotonic()} ${port}`);
      return modems.silent ? undefined : `203.0.113.${exits.get(String(port)) ?? 0}`;
    },
    open: async (_url, signal) => ({
      close() {
        modems.open -= 1;
      },
      get: async (url, gate) => {
        modems.open += 1;
        if (signal.aborted) throw new NoriaError('shutting-down', 'cancelled');
        modems.urls.push(url.reveal());
        if (modems.error !== undefined) throw modems.error;
        if (modems.isLate) clock.advance(2_000);
        gate?.beforeWrite();
        gate?.answered();
        const port = new URL(url.reveal()).searchParams.get('id') ?? '';
        calls.push([clock.monotonic(), port]);
        if (modems.changes) exits.set(port, (exits.get(port) ?? 0) + 1);
        return { status: modems.status, text: modems.text };
      },
    }),
  };
  const rotate = { ...ROTATE, url: new Secret(options.url ?? ROTATE.url.reveal()) };
  const { call: _, ...rest } = sourceOptions({ intervalMs: 0, defaultLifetimeMs: undefined });
  const rig = openRig({
    ...{ clock, pool, urls, ...(options.store && { store: options.store }) },
    sources: [{ ...rest, call: LIST_CALL, refreshMs: 60 * MINUTE_MS, rotate }],
    prepare: ({ service }) => {
      service.reply = () => ({ code: '10001', entries: modems.entries as typeof LISTED });
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

const login = (username: string) => ({ login: { username, password: new Secret('x') } });

test('exit rotation: the URL gets host and port, and users of one address are different members', async () => {
  const url = 'http://modem.test/{host}/{port}?id={port}&h={host}';
  const { clock, modems, rig } = openModems({ url });
  const member = { host: '2001:db8::1', port: 1, lifetimeMs: 1e9 };
  modems.entries = [
    { ...member, ...login('a') },
    { ...member, ...login('b') },
  ];
  modems.changes = false;
  await pass(clock, EVERY_MS + 30_000);
  expect(modems.urls).toEqual(
    Array(2).fill('http://modem.test/2001%3Adb8%3A%3A1/1?id=1&h=2001%3Adb8%3A%3A1'),
  );
  expect(rig.status().reason).toBe(
    'the list has 1 member; a@[2001:db8::1]:1: the exit 203.0.113.0 did not change; b@[2001:db8::1]:1: the exit 203.0.113.0 did not change',
  );
  expect(modems.open, 'every connection is closed').toBe(0);
});

test('exit rotation: three members are named, and the others counted', async () => {
  const { clock, modems, rig } = openModems();
  modems.changes = false;
  const namedAt = async (ports: readonly number[]) => {
    modems.entries = listed(...ports);
    rig.refiller.refill('city');
    await pass(clock, 2 * EVERY_MS + 60_000);
    return rig.status().reason.split('; ').slice(1);
  };
  const problem = (port: number) => `192.0.2.1:${port}: the exit 203.0.113.0 did not change`;
  expect(await namedAt([1, 2, 3])).toEqual([1, 2, 3].map(problem));
  expect(await namedAt([1, 2, 3, 4])).toEqual([...[1, 2, 3].map(problem), '1 more without a new exit']);
  expect(await namedAt([2]), 'the others are not listed any more').toEqual([problem(2)]);
});

test('exit rotation: a member is asked up to five times for its exit, each time after it has settled', async () => {
  const { clock, modems, rig, pool } = openModems();
  modems.entries = listed(8_001);
  modems.silent = true;
  await pass(clock, EVERY_MS + 60_000);
  const looks = [0, 1, 2, 3, 4, 5].map((look) => `${EVERY_MS + 1_000 + look * ROTATE.settleMs} 8001`);
  expect(modems.looks).toEqual(looks);
  expect(rig.status().reason).toBe(
    'the list has 1 member; 192.0.2.1:8001: http://check.test/ip shows no exit through it, 25s after the rotation',
  );
  expect(pool.usableAt('city', clock.monotonic()), 'it is back').toBe(1);
  expect(rig.emitted('source.warned')).toHaveLength(1);
  await pass(clock, EVERY_MS + 60_000);
  expect(rig.emitted('source.warned'), 'the same problem is told once').toHaveLength(1);
});

test('exit rotation: what stops the call is told, and the next rotation is after every', async () => {
  const { clock, modems, rig, calls } = openModems();
  modems.entries = listed(8_001);
  modems.error = new NoriaError('service-transport', 'modem.test refused the connection');
  const reasonAfter = async () => {
    await pass(clock, EVERY_MS + 10_000);
    return rig.status().reason.replace(/^.*?: /, '');
  };
  expect(await reasonAfter()).toBe('modem.test refused the connection');
  modems.error = undefined;
  modems.isLate = true;
  expect(await reasonAfter()).toBe('the call to the rotate URL was late, and is repeated later');
  modems.isLate = false;
  Object.assign(modems, { status: 300, text: 'busy' });
  expect(await reasonAfter()).toBe('the rotate URL answered with status 300: busy');
  modems.status = 299;
  expect(await reasonAfter()).toBe('the list has 1 member');
  const times = calls.map(([at]) => at);
  for (const [index, at] of times.entries())
    expect(at - (times[index - 1] ?? -EVERY_MS)).toBeGreaterThanOrEqual(EVERY_MS);
  expect(modems.open).toBe(0);
});

test('exit rotation: a member that is away is not in the pool, and one that has left the list does not come back', async () => {
  const { clock, modems, rig, pool } = openModems();
  await pass(clock, EVERY_MS + 1_000);
  expect(pool.drained).toEqual([8_001]);
  modems.entries = listed(8_001, 8_002, 8_003);
  rig.refiller.refill('city');
  await pass(clock, 500, 100);
  expect([...(pool.members.get('city')?.keys() ?? [])]).toEqual(['192.0.2.1:8002', '192.0.2.1:8003']);
  modems.entries = listed(8_002);
  rig.refiller.refill('city');
  await pass(clock, 30_000);
  expect([...(pool.members.get('city')?.keys() ?? [])]).toEqual(['192.0.2.1:8002']);
});

test('exit rotation: nothing happens any more after a reload without it, and its timers end', async () => {
  const { clock, pool, rig, calls, modems } = openModems();
  pool.busy = true;
  await pass(clock, EVERY_MS + 1_000);
  expect(pool.drained).toEqual([8_001]);
  await rig.refiller.close();
  expect(clock.armedCount).toBe(0);
  await pass(clock, 2 * EVERY_MS, 60_000);
  expect([calls.length, pool.drained.length, modems.open]).toEqual([0, 1, 0]);
  expect(rig.emitted('source.warned')).toEqual([]);
});

test('exit rotation: the exit that the list names is the one before, and members have the new one', async () => {
  const { clock, modems, pool, rig } = openModems();
  modems.entries = listed(8_001).map((member) => ({ ...member, exitIp: '203.0.113.1' }));
  const added: unknown[] = [];
  const addMembers = pool.addMembers.bind(pool);
  pool.addMembers = (source, drawn) => {
    added.push(...drawn.map(({ exitIp }) => exitIp));
    return addMembers(source, drawn);
  };
  await pass(clock, EVERY_MS + 20_000);
  expect(modems.looks, 'it need not ask before').toHaveLength(1);
  expect(rig.status().reason, 'the first change brings exit 1').toContain(
    'the exit 203.0.113.1 did not change',
  );
  expect(added).toEqual(['203.0.113.1', '203.0.113.1']);
  await pass(clock, EVERY_MS + 20_000);
  expect(added.at(-1)).toBe('203.0.113.2');
  expect(rig.status().reason).toBe('the list has 1 member');
});

/** Its timers for a rotation fire half a millisecond too early. */
class EarlyClock extends ManualClock {
  override after(ms: number, fn: () => void): Disposable {
    return super.after(ms === EVERY_MS ? ms - 0.5 : ms, fn);
  }
}

test('exit rotation: a timer that fires a moment too early rotates nothing before its time', async () => {
  const clock = new EarlyClock();
  const { modems, pool } = openModems({ clock });
  modems.entries = listed(8_001);
  await settle();
  clock.advance(200);
  await settle();
  clock.advance(EVERY_MS - 0.5);
  await settle();
  expect([pool.drained, clock.armedMs]).toEqual([[], expect.arrayContaining([0.5])]);
  clock.advance(0.5);
  await settle();
  expect(pool.drained).toEqual([8_001]);
});

test('exit rotation: of the members that are due, the one that has waited longest is next', async () => {
  const { clock, modems, pool } = openModems();
  modems.entries = listed(1, 2);
  await pass(clock, EVERY_MS + 30_000);
  modems.entries = listed(2, 3, 1);
  await pass(clock, EVERY_MS + 60_000);
  expect(pool.drained.slice(0, 4)).toEqual([1, 2, 1, 2]);
});
