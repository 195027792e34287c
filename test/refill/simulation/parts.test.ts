/** The simulated service and the simulated clients, each alone, with the random numbers that a test chooses. */
import { expect, test } from 'vitest';
import { DAY_MS, HOUR_MS, MINUTE_MS } from '../../../src/core/duration.ts';
import { EventBus } from '../../../src/core/events.ts';
import type {
  Lease,
  LeaseProvider,
  LeaseRefusal,
  LeaseReport,
  LeaseRequest,
} from '../../../src/pool/lease.ts';
import { advise } from '../../../src/refill/simulation/advice.ts';
import { rateInHours, SimulatedClients, type SimulatedLoad } from '../../../src/refill/simulation/clients.ts';
import {
  SimulatedService,
  type SimulatedServiceOptions,
  typicalLifetimeMs,
} from '../../../src/refill/simulation/service.ts';
import { SIMULATION_START_AT, simulate } from '../../../src/refill/simulation/simulate.ts';
import { VirtualClock } from '../../../src/refill/simulation/virtual-clock.ts';
import { OPERATIONS } from '../../../src/service/operations.ts';
import type { DrawCall } from '../../../src/service/request.ts';
import { CITY } from '../../support/pool-settings.ts';
import { sourceOptions } from '../rig.ts';
import { calmTrial } from './calm-trial.ts';

const CALL: DrawCall = { ...sourceOptions().call, count: 3 };
const LIFE_MS = 60_000;

/** @param numbers - the random numbers, one after the other; then always 0.5. */
function openService(numbers: readonly number[] = [], changes: Partial<SimulatedServiceOptions> = {}) {
  const clock = new VirtualClock(SIMULATION_START_AT);
  const left = [...numbers];
  const random = () => left.shift() ?? 0.5;
  const lifetimeMs = () => [LIFE_MS, LIFE_MS] as const;
  const service = new SimulatedService({ clock, random, lifetimeMs, ...changes });
  const gate: string[] = [];
  const noted = (what: string) => () => void gate.push(`${what} at ${clock.monotonic()}`);
  const call = async (signal = new AbortController().signal, { count = 1 } = {}) => {
    const connection = await service.connect(CALL, signal);
    const passes = { beforeWrite: noted('sent'), answered: noted('answered') };
    return connection.extract({ ...CALL, count }, { secrets: [], gate: passes });
  };
  return { clock, service, call, gate, random };
}

test('simulated service: a call takes its time, and its members begin to live when it arrives', async () => {
  const { clock, service, call, gate } = openService([0.5, 0.5, 0.4]);
  const calling = call(undefined, { count: 2 });
  await clock.runUntil(54);
  expect(gate, 'it still connects').toEqual([]);
  await clock.runUntil(10_000);
  const answer = await calling;
  expect(gate).toEqual(['sent at 55', 'answered at 705']);
  expect(answer).toMatchObject({ code: '10001', message: '', sentAt: 55, dropped: {}, quota: {} });
  expect(answer.entries.map(({ lifetimeMs }) => lifetimeMs)).toEqual([LIFE_MS, LIFE_MS]);
  expect([service.drawn, ...service.calls]).toEqual([2, ['10001', 1]]);
  const [{ host = '', port = 0 } = {}] = answer.entries;
  await clock.runUntil(55 + 260 + LIFE_MS - 1);
  expect(service.accepts(host, port)).toBe(true);
  service.sweep();
  expect([service.used, service.wasted]).toEqual([0, 0]);
  await clock.runUntil(55 + 260 + LIFE_MS);
  expect([service.accepts(host, port), service.member(host, port)]).toEqual([false, undefined]);
  expect([service.used, service.wasted]).toEqual([0, 0]);
  service.sweep();
  expect([service.used, service.wasted]).toEqual([1, 1]);
  service.sweep();
  expect([service.used, service.wasted]).toEqual([1, 1]);
});

test.each([20, 100, 500])(
  'simulated service: a call that is cancelled after %d ms ends then',
  async (atMs) => {
    const { clock, service, call, gate } = openService([0.5, 0.5, 0.4]);
    const abort = new AbortController();
    const calling = call(abort.signal);
    const failed = expect(calling).rejects.toMatchObject({ code: 'shutting-down' });
    await clock.runUntil(atMs);
    abort.abort();
    await failed;
    expect(gate).toEqual(atMs === 20 ? [] : ['sent at 55']);
    expect([service.drawn, clock.armedCount]).toEqual([atMs === 500 ? 1 : 0, 0]);
  },
);

test.each([
  [0.19, 'dead'],
  [0.2, 'early'],
  [0.39, 'early'],
  [0.4, 'slow'],
  [0.69, 'slow'],
  [0.7, 'good'],
])(
  'simulated service: of the members, a fifth is dead, a fifth dies early and three tenths are slow: %d is %s',
  async (chance, kind) => {
    const vendor = { dead: 0.2, early: 0.2, slow: 0.3 };
    const { clock, service, call } = openService([0.5, 0.5, 0.5, 0.5, chance], { vendor });
    const calling = call();
    await clock.runUntil(5_000);
    const [{ host = '', port = 0, lifetimeMs } = {}] = (await calling).entries;
    expect(lifetimeMs).toBe(LIFE_MS);
    expect(service.accepts(host, port)).toBe(kind !== 'dead');
    expect(service.delayOf(host, port)).toBe(kind === 'slow' ? 2_000 : 0);
    await clock.runUntil(20_379);
    expect(service.member(host, port)).toBeDefined();
    await clock.runUntil(20_380);
    expect(service.member(host, port) === undefined, 'a third of a minute after the call').toBe(
      kind === 'early',
    );
    expect([service.accepts('192.0.2.1', port), service.delayOf('192.0.2.1', port)]).toEqual([false, 0]);
  },
);

test('simulated service: addresses do not repeat, and old members are dropped with the next call', async () => {
  const { clock, service, call } = openService();
  const addresses = new Set<string>();
  const calling = call(undefined, { count: 1_000 });
  await clock.runUntil(5_000);
  for (const { host, port } of (await calling).entries) addresses.add(`${host}:${port}`);
  expect(addresses.size).toBe(1_000);
  for (const address of addresses) expect(address).toMatch(/^198\.51\.\d{1,3}\.\d{1,3}:1\d{4}$/);
  await clock.runUntil(2 * LIFE_MS);
  void call();
  await clock.runUntil(2 * LIFE_MS + 5_000);
  expect([service.wasted, service.calls.get('10001')]).toEqual([1_000, 2]);
});

test('simulated service: a product has the lifetimes of its specification', () => {
  const minutesOf = (product: DrawCall['product'], timespan?: number) =>
    typicalLifetimeMs({ product, params: timespan === undefined ? {} : { timespan } }).map(
      (ms) => ms / MINUTE_MS,
    );
  expect(Object.keys(OPERATIONS)).toContain('short-classic');
  for (const product of ['link', 'gateway', 'list'] as const) expect(minutesOf(product, 3)).toEqual([1, 5]);
  for (const product of ['long-residential', 'residential-socks5'] as const) {
    expect([minutesOf(product), minutesOf(product, 0), minutesOf(product, 5)]).toEqual([
      [1, 30],
      [0, 30],
      [5, 30],
    ]);
  }
  for (const product of ['short-socks5', 'short-classic', 'short-pure'] as const) {
    expect([minutesOf(product), minutesOf(product, 0), minutesOf(product, 3)]).toEqual([
      [1, 6],
      [1, 6],
      [3, 6],
    ]);
  }
  for (const product of ['shared', 'exclusive', 'free'] as const) {
    expect([minutesOf(product), minutesOf(product, 0), minutesOf(product, 3)]).toEqual([
      [1, 10],
      [1, 10],
      [3, 10],
    ]);
  }
});

type Answer = Lease | LeaseRefusal | Promise<Lease | LeaseRefusal>;
const REFUSED = { code: 'pool-empty', reason: 'none' } as unknown as LeaseRefusal;

/** Clients of a pool that answers so, and of a service whose members have the hosts `good` and `slow`. */
function openClients(
  load: Partial<SimulatedLoad>,
  acquire: (request: LeaseRequest, lease: (host: string, waitedMs?: number) => Lease) => Answer,
  random = () => 0.5,
) {
  const clock = new VirtualClock(SIMULATION_START_AT);
  const [requests, reports, dials]: [LeaseRequest[], LeaseReport[], unknown[]] = [[], [], []];
  const bus = new EventBus((_, error) => {
    throw error;
  });
  bus.on('dial.attempted', ({ member, ms, outcome, blame, hedge }) => {
    dials.push([member, ms, outcome, blame, hedge]);
  });
  let leases = 0;
  const lease = (host: string, waitedMs = 0): Lease => {
    leases += 1;
    const about = { id: leases, member: `m${leases}`, source: 'city', protocol: 'http' } as const;
    return { ...about, host, port: 1, exit: host, waitedMs, doubtful: false };
  };
  const pool: LeaseProvider = {
    acquire(request) {
      requests.push({ ...request, avoid: [...(request.avoid ?? [])] });
      return acquire(request, lease);
    },
    report: (report) => reports.push(report),
    cancel() {},
    upcoming: () => [],
  };
  const service = {
    accepts: (host: string) => host !== 'dead',
    delayOf: (host: string) => (host === 'slow' ? 2_000 : 0),
  } as unknown as SimulatedService;
  const banned: string[] = [];
  const clients = new SimulatedClients({
    ...{ clock, random, bus, pool, service, waitForMemberMs: 15_000 },
    load: { ratesByHour: rateInHours(0), tunnelMs: 5_000, ...load },
    onBan: ({ host }) => banned.push(host),
  });
  return { clock, clients, requests, reports, dials, banned };
}

const once = (...moments: readonly number[]) => ({ log: { moments, everyMs: DAY_MS } });

test('simulated clients: a request is served, holds its tunnel and ends', async () => {
  const { clock, clients, requests, reports, dials } = openClients(once(1_000), (_, lease) => lease('good'));
  await clock.runUntil(1_100);
  expect(clients.openCount).toBe(1);
  await clock.runUntil(60_000);
  expect(requests).toEqual([{ id: 1, routing: {}, targetHost: 'target.test', avoid: [], waitMs: 15_000 }]);
  expect(reports).toEqual([
    { lease: 1, kind: 'accepted', latencyMs: 225 },
    { lease: 1, kind: 'closed', cut: false },
  ]);
  expect(dials).toEqual([['m1', 225, 'accepted', 'nobody', false]]);
  expect(clients).toMatchObject({
    ...{ endings: { served: 1, noMember: 0, membersFailed: 0 }, delays: [225], waits: [], openCount: 0 },
    longestEmptyMs: 0,
  });
  clients.stop();
  expect(clock.armedCount).toBe(0);
});

test('simulated clients: a tunnel lasts as long as its random number says', async () => {
  const { clock, reports } = openClients(once(0), (_, lease) => lease('good'));
  const endMs = 225 + Math.ceil(Math.LN2 * 5_000);
  await clock.runUntil(endMs - 1);
  expect(reports).toHaveLength(1);
  await clock.runUntil(endMs);
  expect(reports).toHaveLength(2);
});

test('simulated clients: a dead member costs a second, and the next attempt avoids it', async () => {
  const hosts = ['dead', 'dead', 'slow'];
  const { clock, clients, requests, reports, dials } = openClients(once(0), (_, lease) =>
    lease(hosts.shift() ?? ''),
  );
  await clock.runUntil(60_000);
  expect(requests.map(({ avoid, waitMs }) => [avoid, waitMs])).toEqual([
    [[], 15_000],
    [['m1'], 14_000],
    [['m1', 'm2'], 13_000],
  ]);
  const failed = { kind: 'failed', blame: 'member', fault: 'member-silent' };
  expect(reports.slice(0, 3)).toEqual([
    { lease: 1, ...failed },
    { lease: 2, ...failed },
    { lease: 3, kind: 'accepted', latencyMs: 2_225 },
  ]);
  expect(dials[0]).toEqual(['m1', 1_000, 'member-silent', 'member', false]);
  expect([clients.delays, clients.endings.served]).toEqual([[4_225], 1]);
});

test.each<[string, readonly string[], object]>([
  ['three dead members', ['dead', 'dead', 'dead', 'good'], { membersFailed: 1 }],
  ['a dead member, then none', ['dead'], { membersFailed: 1 }],
  ['no member', [], { noMember: 1 }],
])('simulated clients: a request fails after %s', async (_, given, endings) => {
  const hosts = [...given];
  const { clock, clients } = openClients(once(0), (_request, lease) => {
    const host = hosts.shift();
    return host === undefined ? REFUSED : lease(host);
  });
  await clock.runUntil(60_000);
  expect(clients.endings).toEqual({ served: 0, noMember: 0, membersFailed: 0, ...endings });
  expect([clients.delays, clients.openCount]).toEqual([[], 0]);
});

test('simulated clients: the longest time without a member ends when nobody waits any longer', async () => {
  const clockOf: { clock?: VirtualClock } = {};
  const waits = [3_000, 1_000, 500, 4_000];
  const { clock, clients } = openClients(once(0, 2_500, 10_000, 20_000), (_, lease) => {
    const ms = waits.shift() ?? 0;
    return new Promise((resolve) => {
      clockOf.clock?.after(ms, () => resolve(ms === 4_000 ? REFUSED : lease('good', ms)));
    });
  });
  clockOf.clock = clock;
  await clock.runUntil(19_000);
  expect([clients.waits, clients.longestEmptyMs]).toEqual([[3_000, 1_000, 500], 3_500]);
  await clock.runUntil(60_000);
  expect([clients.waits.length, clients.longestEmptyMs]).toEqual([3, 4_000]);
});

test('simulated clients: a log comes again after its period, and an empty one never', async () => {
  const log = { moments: [100, 300], everyMs: 1_000 };
  const arrivals: number[] = [];
  const { clock, clients } = openClients({ log }, () => {
    arrivals.push(clock.monotonic());
    return REFUSED;
  });
  await clock.runUntil(2_200);
  expect(arrivals).toEqual([100, 300, 1_100, 1_300, 2_100]);
  clients.stop();
  await clock.runUntil(5_000);
  expect(arrivals).toHaveLength(5);
  const empty = openClients({ log: { moments: [], everyMs: 1_000 } }, () => REFUSED);
  await empty.clock.runUntil(300 * DAY_MS);
  expect(empty.requests).toEqual([]);
});

test.each([
  [rateInHours(5), Math.LN2 / 5],
  [rateInHours(5, [1, 2]), 60 + Math.LN2 / 5],
  [rateInHours(0.001).fill(1, 2, 3), 120 + (Math.LN2 - 0.12)],
])(
  'simulated clients: the rate of the hour decides when the next request comes (%#)',
  async (ratesByHour, minutes) => {
    const { clock, requests } = openClients({ ratesByHour }, () => REFUSED);
    const atMs = Math.ceil(minutes * MINUTE_MS);
    await clock.runUntil(atMs - 1);
    expect(requests).toHaveLength(0);
    await clock.runUntil(atMs + 1);
    expect(requests).toHaveLength(1);
  },
);

test('simulated clients: a day repeats, and requests may stop for ever', async () => {
  const busy = openClients({ ratesByHour: rateInHours(1, [23, 24]) }, () => REFUSED);
  await busy.clock.runUntil(2 * DAY_MS);
  const perDay = HOUR_MS / (Math.LN2 * MINUTE_MS);
  expect(busy.requests.length).toBeGreaterThan(2 * perDay - 4);
  expect(busy.requests.length).toBeLessThan(2 * perDay + 4);
  const none = openClients({}, () => REFUSED);
  await none.clock.runUntil(300 * DAY_MS);
  expect(none.requests).toEqual([]);
});

test('simulated clients: sessions share the requests, and each takes another name in its turn', async () => {
  const numbers = [0.1, 0.9];
  let next = 0;
  const { clock, requests } = openClients(
    { ...once(0, 29_000, 31_000, 61_000), sessions: { count: 2, lengthMs: 60_000 } },
    () => REFUSED,
    () => numbers[next++ % 2] ?? 0,
  );
  await clock.runUntil(90_000);
  expect(requests.map(({ routing }) => routing.session)).toEqual(['0-0', '1-0', '0-0', '1-1']);
});

test('simulated clients: a site bans an exit for ten minutes after too many pages in a minute', async () => {
  const { clock, clients, requests, reports, banned } = openClients(
    { ...once(0, 60_000, 119_000, 719_000, 720_000), pagesPerExit: 1, tunnelMs: 0 },
    ({ avoid = [] }, lease) => lease(avoid.length === 0 ? 'first' : `other ${avoid.length}`),
  );
  await clock.runUntil(119_300);
  expect(banned, 'the two pages before were a minute apart').toEqual(['first']);
  expect(requests.at(-1)?.avoid).toEqual(['m3']);
  expect(reports.at(-1)).toEqual({ lease: 3, kind: 'closed', cut: false });
  await clock.runUntil(719_224);
  expect(banned).toHaveLength(1);
  await clock.runUntil(719_900);
  expect(banned, 'the last moment of the ban').toHaveLength(1);
  await clock.runUntil(800_000);
  expect(clients.endings.served).toBe(5);
});

const PERFECT = { dead: 0, slow: 0, early: 0, lifetimeMs: [180_000, 180_000] } as const;

test('simulation: two norias share members, pace and the requests of a log, and each IP has the price of its source', async () => {
  const { refill, pool, ...calm } = calmTrial();
  const sources = refill.sources.map((one) => ({ ...one, size: 2 }));
  const moments = Array.from({ length: 20 }, (_, at) => 5_000 + at * 1_000);
  const report = await simulate({
    ...{ ...calm, pool, days: 1 / 48, replicas: 2, vendor: PERFECT, prices: new Map([['city', 0.5]]) },
    refill: { ...refill, sources, fill: 'demand' },
    load: { ...calm.load, log: { moments, everyMs: DAY_MS } },
  });
  expect(report.clients).toEqual({ served: 20, noMember: 0, membersFailed: 0 });
  expect(report.drawn).toBe(report.used + report.wasted);
  expect(report.drawn, 'what the first draw of one brings is enough for both').toBeLessThanOrEqual(6);
  expect(report.costPerDay).toBeCloseTo(report.drawn * 0.5 * 48);
  expect(report).toMatchObject({ days: 1 / 48, seed: 1, waits: { count: 0 }, longestEmptyMs: 0 });
});

test('simulation: a link without a lifetime has the one that the pool assumes', async () => {
  const { refill, pool, ...calm } = calmTrial();
  const call = { ...sourceOptions().call, product: 'link' as const };
  const sources = refill.sources.map((one) => ({
    ...one,
    call,
    size: 1,
    count: 1,
    defaultLifetimeMs: undefined,
  }));
  const drawn = async (unknownLifetimeMs: number) => {
    const report = await simulate({
      ...{ ...calm, days: 1 / 48, refill: { ...refill, sources: sources as never } },
      pool: { ...pool, sources: [{ ...CITY, unknownLifetimeMs }] },
      load: { ...calm.load, log: { moments: [0], everyMs: 5_000 } },
    });
    return report.drawn;
  };
  const [long, short] = [await drawn(1_200_000), await drawn(60_000)];
  expect(long).toBeLessThanOrEqual(5);
  expect(short).toBeGreaterThan(20);
});

test('advice: it tries fills and sizes with the load, and names the cheapest that serve it as well', async () => {
  const { refill, pool, ...calm } = calmTrial();
  const options = {
    ...{ ...calm, pool, vendor: PERFECT, prices: new Map([['city', 0.5]]) },
    refill: { ...refill, sources: refill.sources.map((one) => ({ ...one, size: 4, count: 3 })) },
    load: { ...calm.load, log: { moments: [1_000, 2_000], everyMs: HOUR_MS } },
  };
  const { now, best } = await advise(options, []);
  expect(now).toMatchObject({ fill: 'size', size: 4, count: 3, timespan: 3, failedShare: 0 });
  expect(now.costPerDay).toBeCloseTo(now.drawnPerDay * 0.5);
  expect(now.drawnPerDay, 'four members of three minutes, for some minutes an hour').toBeGreaterThan(4 * 24);
  expect(best).toHaveLength(3);
  const costs = best.map(({ costPerDay }) => costPerDay ?? Infinity);
  expect(costs).toEqual([...costs].sort((a, b) => a - b));
  expect(best[0]).toMatchObject({ fill: 'demand', size: 1, count: 1, timespan: 3 });
  expect(costs[0]).toBeLessThan(now.costPerDay ?? 0);
});

test('advice: where nobody is served, no settings are better, and a source may have no timespan', async () => {
  const { refill, pool, ...calm } = calmTrial();
  const call = { ...sourceOptions().call, params: {} };
  const { now, best } = await advise(
    {
      ...{ ...calm, pool, vendor: { ...PERFECT, dead: 1 } },
      refill: { ...refill, sources: [sourceOptions({ call, size: 2 })] },
      load: { ...calm.load, log: { moments: [1_000, 2_000], everyMs: HOUR_MS } },
    },
    [],
  );
  expect(now).toMatchObject({ failedShare: 1, timespan: null, costPerDay: null, p99Ms: 0 });
  expect(best).toHaveLength(3);
});
