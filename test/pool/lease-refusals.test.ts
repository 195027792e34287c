/**
 * The reason and the time of an answer to a client that gets no member. They depend only on the sources that can serve
 * the client.
 */
import { expect, test } from 'vitest';
import type { SourceForecast } from '../../src/pool/lease.ts';
import { isLease } from '../../src/pool/lease.ts';
import { DEFAULT_SITE_RULE } from '../../src/pool/options.ts';
import { CITY } from '../support/pool-settings.ts';
import { acquire, addMembers, drawn, openKit, refusal, request } from './pool-kit.ts';

const TOWN = { ...CITY, name: 'town' };
const WAIT = { waitMs: 15_000 };

const READY_SOON: SourceForecast = {
  name: 'town',
  state: 'waiting',
  reason: 'the pace',
  nextDrawMs: 4_000,
  nextMemberMs: 4_300,
  suspendedMs: 0,
};
const HALTED: SourceForecast = {
  name: 'city',
  state: 'halted',
  reason: '12001: The key is wrong.',
  suspendedMs: Number.POSITIVE_INFINITY,
};

/** A pool with two sources. `city` is halted, unless a test changes that. */
function openTwo(changes: Parameters<typeof openKit>[0] = {}) {
  const forecasts: SourceForecast[] = [HALTED, READY_SOON];
  const kit = openKit({ sources: [CITY, TOWN], forecasts: () => forecasts, ...changes });
  const move = (forecast: SourceForecast) => {
    forecasts[0] = forecast;
    kit.bus.emit('source.moved', { source: 'city', from: 'drawing', to: 'halted', reason: forecast.reason });
  };
  return { kit, forecasts, move };
}

test('refusal: a client that only a halted source can serve is refused at once, with its reason', () => {
  const { kit } = openTwo();
  expect(refusal(kit, { source: 'city' }, WAIT)).toEqual({
    code: 'pool-empty',
    reason: 'No source that can serve this request will have a member soon.',
    sources: [{ name: 'city', state: 'halted', reason: '12001: The key is wrong.' }],
  });
});

test('refusal: the time of the next draw is that of a source that can serve the client', () => {
  const { kit, forecasts } = openTwo();
  expect(refusal(kit)).toMatchObject({ retryAfterMs: 4_300, sources: [{ name: 'city' }, { name: 'town' }] });
  forecasts[0] = { ...HALTED, nextDrawMs: 1_500_000, nextMemberMs: 1_500_200, suspendedMs: 1_500_000 };
  expect(refusal(kit, { source: 'city' }, WAIT)).toMatchObject({ retryAfterMs: 1_500_200 });
  forecasts[0] = { ...READY_SOON, name: 'city', nextDrawMs: 100, nextMemberMs: 400 };
  expect(refusal(kit)).toMatchObject({ retryAfterMs: 400 });
  expect(refusal(kit, { source: 'town' })).toMatchObject({ retryAfterMs: 4_300 });
});

test.each([
  ['protocol', { protocol: 'socks5' }, { protocol: 'http' }],
  ['life', { minLifeMs: 600_000 }, { maxLifetimeMs: 360_000 }],
  ['location', { location: '上海' }, { locationParams: { nadr: '上海' } }],
] as const)('refusal: a client does not wait for a source whose %s excludes it', (_, routing, facts) => {
  const { kit } = openTwo({ sources: [CITY, { ...TOWN, ...facts }] });
  expect(refusal(kit, routing, WAIT)).toEqual({
    code: 'pool-empty',
    reason: expect.any(String),
    sources: [{ name: 'city', state: 'halted', reason: '12001: The key is wrong.' }],
  });
});

test('refusal: clients wait for a source that may draw in time, and for one whose suspension they shorten', () => {
  const { kit, forecasts } = openTwo();
  const waits = (routing = {}) => kit.pool.acquire(request(routing, WAIT)) instanceof Promise;
  expect(waits()).toBe(true);
  expect(waits({ source: 'town' })).toBe(true);
  forecasts[0] = { ...HALTED, state: 'paused', suspendedMs: 14_999 };
  expect(waits({ source: 'city' })).toBe(true);
  forecasts[0] = { ...HALTED, state: 'paused', suspendedMs: 15_000 };
  expect(waits({ source: 'city' })).toBe(false);
  forecasts.shift();
  expect(waits({ source: 'city' }), 'nothing is known about it yet').toBe(true);
});

test('refusal: clients wait for a member that the halted source still has', () => {
  const { kit } = openTwo({ rotation: { maxTunnelsPerMember: 1 } });
  addMembers(kit, 1, 60_000, { location: '广东' });
  const { member } = acquire(kit);
  const waits = (routing = {}, changes = {}) =>
    kit.pool.acquire(request({ source: 'city', ...routing }, { ...WAIT, ...changes })) instanceof Promise;
  expect(waits()).toBe(true);
  expect(waits({ location: '广东' })).toBe(true);
  expect(waits({ location: '江苏' })).toBe(false);
  expect([waits({ minLifeMs: 60_000 }), waits({ minLifeMs: 60_001 })]).toEqual([true, false]);
  expect(waits({}, { avoid: [member] })).toBe(false);
  kit.pool.ban({ holder: { member }, host: 'banned.example', verdict: 'banned' });
  expect(waits({}, { targetHost: 'banned.example' })).toBe(false);
  kit.pool.evict(member);
  expect(waits(), 'it drains').toBe(false);
});

test('refusal: a source that halts refuses its waiting clients at once, and no other', async () => {
  const { kit, forecasts, move } = openTwo();
  forecasts[0] = { ...READY_SOON, name: 'city', state: 'drawing' };
  const answers: string[] = [];
  for (const source of ['city', 'town']) {
    const answer = kit.pool.acquire(request({ source }, WAIT));
    void Promise.resolve(answer).then((later) =>
      answers.push(isLease(later) ? 'lease' : `${source} ${later.code}`),
    );
  }
  move(HALTED);
  await Promise.resolve();
  expect(answers).toEqual(['city pool-empty']);
  expect(kit.pool.waitingCount).toBe(1);
});

test('refusal: a source whose members refuse its credentials refuses clients at once, with that reason', async () => {
  const { kit } = openTwo({ forecasts: () => [{ ...READY_SOON, name: 'city' }, READY_SOON] });
  kit.pool.blockSource('city', 'its members refuse the credentials');
  expect(refusal(kit, { source: 'city' }, WAIT)).toEqual({
    code: 'pool-empty',
    reason: expect.any(String),
    sources: [{ name: 'city', state: 'paused', reason: 'its members refuse the credentials' }],
  });
  const waiting = kit.pool.acquire(request({ source: 'town' }, WAIT));
  kit.pool.blockSource('town', 'its members refuse the credentials');
  expect(await waiting).toMatchObject({ code: 'pool-empty', sources: [{ name: 'town' }] });
});

test('refusal: a minimum life that no product has is refused at once, with both durations in the reason', () => {
  const kit = openKit({
    sources: [
      { ...CITY, maxLifetimeMs: 360_000 },
      { ...TOWN, maxLifetimeMs: 600_000 },
    ],
  });
  const reasonFor = (routing: object) => refusal(kit, routing, WAIT).reason;
  expect(reasonFor({ minLifeMs: 1_800_000 })).toBe(
    'life is 30m, but members of source city live for at most 6m, members of source town live for at most 10m.',
  );
  expect(reasonFor({ minLifeMs: 480_000, source: 'city' })).toMatch(/^life is 8m, .* city .* 6m\.$/);
  expect(kit.pool.acquire(request({ minLifeMs: 480_000 }, WAIT))).toBeInstanceOf(Promise);
  kit.pool.addMembers('city', [drawn(kit, 1, 500_000)]);
  expect(acquire(kit, { minLifeMs: 480_000, source: 'city' }), 'the service gave more').toBeDefined();
});

test('refusal: a source with an unknown maximum life refuses no minimum life', () => {
  const kit = openKit({ sources: [CITY, { ...TOWN, maxLifetimeMs: 360_000 }] });
  expect(kit.pool.acquire(request({ minLifeMs: 1_800_000 }, WAIT))).toBeInstanceOf(Promise);
});

test('refusal: a protocol that no source has is refused at once', () => {
  const kit = openKit({ sources: [{ ...CITY, protocol: 'http' }] });
  const { code, reason } = refusal(kit, { protocol: 'socks5' }, WAIT);
  expect([code, reason]).toEqual([
    'bad-routing',
    'protocol is socks5, but members of source city speak http.',
  ]);
});

test('refusal: a location that the configuration excludes is refused at once', () => {
  const kit = openKit({ sources: [{ ...CITY, locationParams: { nadr: '上海' } }] });
  const { code, reason } = refusal(kit, { location: '上海' }, WAIT);
  expect([code, reason]).toEqual([
    'bad-routing',
    expect.stringMatching(/^adr matches no member .* source city excludes/),
  ]);
  expect(kit.pool.acquire(request({ location: '广州' }, WAIT))).toBeInstanceOf(Promise);
  kit.pool.addMembers('city', [drawn(kit, 1, 60_000, { location: '上海市' })]);
  expect(acquire(kit, { location: '上海' }), 'it has one all the same').toBeDefined();
});

test('refusal: after a full draw without Latin letters, a location in Latin letters is refused at once', () => {
  const kit = openKit();
  const waits = (location: string) => kit.pool.acquire(request({ location }, WAIT)) instanceof Promise;
  addMembers(kit, 4, 60_000, { location: '广东省深圳市 电信' });
  expect(waits('Shanghai'), 'not a full draw yet').toBe(true);
  kit.pool.addMembers('city', [drawn(kit, 9, 60_000, { location: '上海市 电信' })]);
  expect(refusal(kit, { location: 'Shanghai' }, WAIT).reason).toMatch(
    /source city has no location in Latin letters/,
  );
  expect(waits('北京'), 'a later draw may bring it').toBe(true);
  kit.pool.addMembers('city', [drawn(kit, 10, 60_000, { location: '美国 Amazon' })]);
  expect(waits('Shanghai'), 'there are Latin letters').toBe(true);
});

test('refusal: locations in several languages say nothing about others', () => {
  const kit = openKit({ sources: [{ ...CITY, mixedLocations: true }] });
  addMembers(kit, 20, 60_000, { location: '日本' });
  expect(kit.pool.acquire(request({ location: 'Amazon' }, WAIT))).toBeInstanceOf(Promise);
});

/** A halted source, whose only member is full: whether a client may wait for that member. */
test.each<[string, object, (kit: ReturnType<typeof openKit>, id: string) => unknown, boolean]>([
  ['it lives long enough', { minLifeMs: 60_000 }, () => {}, true],
  ['it expires before', { minLifeMs: 180_001 }, () => {}, false],
  ['its site is banned for the time', {}, (kit) => ban(kit, 15_001), false],
  ['its quarantine may end', {}, (kit, id) => failOf(kit, id), true],
])(
  'refusal: whether a client waits for a full member of a halted source: %s',
  (_, routing, change, waits) => {
    const kit = openKit({
      rotation: { maxTunnelsPerMember: 1 },
      forecasts: () => [HALTED],
      health: { maxFailures: 9, quarantineMs: 5_000 },
    });
    addMembers(kit, 1);
    acquire(kit, {}, { targetHost: 'other.example' });
    change(kit, kit.pool.members()[0]?.id ?? '');
    const answer = kit.pool.acquire(request(routing, WAIT));
    expect(answer instanceof Promise).toBe(waits);
  },
);

function ban(kit: ReturnType<typeof openKit>, forMs: number): void {
  kit.pool.banExit({ host: 'example.com', exit: '203.0.0.1', evidence: 'report', forMs });
}

function failOf(kit: ReturnType<typeof openKit>, id: string): void {
  const [lease = 0] = kit.pool.leases.of({ member: id });
  kit.pool.report({ lease, kind: 'failed', blame: 'member', fault: 'member-unreachable' });
  acquire(kit, {}, { targetHost: 'other.example' });
}

test('refusal: a client avoids the members that it tried, so a halted source may have none for it', () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 }, forecasts: () => [HALTED] });
  addMembers(kit, 1);
  const { member } = acquire(kit);
  expect(kit.pool.acquire(request({}, WAIT))).toBeInstanceOf(Promise);
  expect(refusal(kit, {}, { ...WAIT, avoid: [member] }).code).toBe('pool-empty');
});

test('refusal: without draws for its bans, a site is refused while each exit was used a moment ago', () => {
  const rule = { ...DEFAULT_SITE_RULE, match: ['example.com'], spacing: 60_000, drawsForBans: 0 };
  const kit = openKit({ targets: [rule] });
  addMembers(kit, 2);
  acquire(kit);
  kit.clock.advance(20_000);
  acquire(kit);
  expect(refusal(kit, {}, WAIT)).toEqual({
    code: 'site-banned',
    reason:
      'Each exit was used for this site a short time ago. noria has drawn as many IPs for this site in the last hour as drawsForBans allows (0 for each source).',
    sources: [],
    retryAfterMs: 40_000,
  });
  kit.clock.advance(25_000);
  expect(kit.pool.acquire(request({}, WAIT)), 'the first exit is free in time').toBeInstanceOf(Promise);
});

test('refusal: a client is told how long it waited, or that its site is limited', async () => {
  const kit = openKit();
  const waiting = kit.pool.acquire(request({}, { waitMs: 1_260 }));
  kit.clock.advance(1_260);
  await expect(waiting).resolves.toMatchObject({
    code: 'pool-empty',
    reason: 'Waited 1.3 s for a member that can serve this request.',
  });
});

test('refusal: the first bans end is named, with the time since the oldest', () => {
  const kit = openKit({ targets: [{ ...DEFAULT_SITE_RULE, match: ['example.com'], drawsForBans: 0 }] });
  kit.clock.advance(60_000);
  addMembers(kit, 2);
  kit.pool.banExit({ host: 'example.com', exit: '203.0.0.1', evidence: 'report', forMs: 3_600_000 });
  kit.clock.advance(120_000);
  addMembers(kit, 2);
  kit.pool.banExit({ host: 'example.com', exit: '203.0.0.2', evidence: 'report', forMs: 1_800_000 });
  const { reason } = refusal(kit, {}, WAIT);
  expect(reason).toMatch(
    'noria knows of 2 exits that this site has banned, since 2 min; in 30 min the first ban ends.',
  );
});
