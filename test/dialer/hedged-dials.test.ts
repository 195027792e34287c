/** A second attempt in parallel with a slow first one, over real sockets: which one wins, and who is blamed. */
import { expect, test } from 'vitest';
import { OpenRequest } from '../../src/core/request-record.ts';
import {
  httpBehavior,
  openMember,
  refusingMember,
  silentBehavior,
  type TestMember,
} from '../support/bad-members.ts';
import { LoopClock } from '../support/loop-clock.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { collect, connectionOf, echo, makeDialer } from './make-dialer.ts';

/** A dialer's settings, and members that answer after a delay, on one clock. */
function timed() {
  const clock = new LoopClock();
  return {
    clock,
    fast: { clock, hedgeAfter: 40, attemptTimeoutMs: 1_000 } as const,
    slow: (ms: number): Promise<TestMember> =>
      openMember('http', httpBehavior('HTTP/1.1 200 OK\r\n\r\n', ms, clock)),
  };
}

test('hedged dial: a silent first member costs only the hedge delay, and is blamed later', async () => {
  const { clock, slow } = timed();
  const silent = await openMember('http', silentBehavior);
  const good = await slow(0);
  const { dial, dialer, pool, bus } = makeDialer(
    [
      { id: 'silent', at: silent },
      { id: 'good', at: good },
    ],
    { clock, hedgeAfter: 40, attemptTimeoutMs: 300 },
  );
  const attempts = collect(bus, 'dial.attempted');
  const hedges = collect(bus, 'hedge.ended');
  const connection = connectionOf(await dial('target.example:443'));
  expect(connection).toMatchObject({ lease: { member: 'good' }, attempts: 2 });
  await echo(connection, 'hello');
  expect(hedges).toEqual([{ outcome: 'won' }]);
  expect([pool.blames(), silent.open, dialer.openCount]).toEqual([[], 1, 1]);
  await until('the loser is blamed', () => pool.blames().length > 0);
  expect(pool.blames()).toEqual(['silent member-silent member-for-target']);
  expect([dialer.openCount, attempts.map(({ member, hedge }) => [member, hedge])]).toEqual([
    0,
    [
      ['good', true],
      ['silent', false],
    ],
  ]);
  await until('the loser is closed', () => silent.open === 0);
});

test('hedged dial: a slow first member that answers late is not blamed, and its latency is recorded', async () => {
  const { fast, slow } = timed();
  const late = await slow(150);
  const { dial, pool } = makeDialer(
    [
      { id: 'late', at: late },
      { id: 'good', at: await slow(0) },
    ],
    fast,
  );
  expect(connectionOf(await dial('target.example:443')).lease.member).toBe('good');
  const late$ = () => pool.reports.filter(({ lease }) => lease === 1);
  await until('the loser has answered', () => late$().length === 2);
  expect(pool.reports.filter(({ lease }) => lease === 2)[0]).not.toHaveProperty('late');
  expect(late$()).toMatchObject([
    { kind: 'accepted', latencyMs: expect.any(Number), late: true },
    { kind: 'closed', cut: false },
  ]);
  expect(late$()[0]).toSatisfy((report: { latencyMs: number }) => report.latencyMs >= 149);
  await until('the loser is closed', () => late.open === 0);
});

test('hedged dial: a hedge that loses continues until its own result', async () => {
  const { clock, slow } = timed();
  const silent = await openMember('http', silentBehavior);
  const { dial, pool, bus } = makeDialer(
    [
      { id: 'late', at: await slow(120) },
      { id: 'silent', at: silent },
    ],
    { clock, hedgeAfter: 40, attemptTimeoutMs: 250 },
  );
  const hedges = collect(bus, 'hedge.ended');
  expect(connectionOf(await dial('target.example:443')).lease.member).toBe('late');
  expect(hedges).toEqual([{ outcome: 'lost' }]);
  await until('the hedge is blamed', () => pool.blames().length > 0);
  expect(pool.blames()).toEqual(['silent member-silent member-for-target']);
  expect(hedges).toHaveLength(1);
});

test('hedged dial: a hedge that fails is replaced, one at a time', async () => {
  const { fast, slow } = timed();
  const silent = await openMember('http', silentBehavior);
  const { dial, pool, bus } = makeDialer(
    [
      { id: 'silent', at: silent },
      { id: 'dead1', at: await refusingMember() },
      { id: 'dead2', at: await refusingMember() },
      { id: 'good', at: await slow(0) },
      { id: 'spare', at: await slow(0) },
    ],
    fast,
  );
  const hedges = collect(bus, 'hedge.ended');
  const connection = connectionOf(await dial('target.example:443'));
  expect(connection).toMatchObject({ lease: { member: 'good' }, attempts: 4 });
  expect(hedges.map(({ outcome }) => outcome)).toEqual(['failed', 'failed', 'won']);
  expect(pool.blames()).toEqual(['dead1 member-unreachable member', 'dead2 member-unreachable member']);
});

test('hedged dial: a session whose member is slow is hedged', async () => {
  const { fast, slow } = timed();
  const { dial, pool } = makeDialer(
    [
      { id: 'late', at: await slow(150) },
      { id: 'good', at: await slow(0) },
    ],
    fast,
  );
  expect(connectionOf(await dial('target.example:443', { routing: { session: 's1' } }))).toMatchObject({
    lease: { member: 'good', session: 's1' },
    attempts: 2,
  });
  expect(pool.requests.map(({ hedge }) => hedge)).toEqual([false, true]);
});

test('hedged dial: without another ready member the first attempt continues', async () => {
  const { fast, slow } = timed();
  const { dial, pool } = makeDialer([{ id: 'late', at: await slow(120) }], fast);
  expect(connectionOf(await dial('target.example:443'))).toMatchObject({
    lease: { member: 'late' },
    attempts: 1,
  });
  expect(pool.requests.map(({ waitMs }) => waitMs > 0)).toEqual([true, false]);
});

test('hedged dial: the hedge for an unproven member starts sooner', async () => {
  const clock = ManualClock.dayOld();
  const doubtful = await openMember('http', silentBehavior);
  const { dial } = makeDialer(
    [
      { id: 'doubtful', at: doubtful, doubtful: true },
      { id: 'good', at: await openMember('http', httpBehavior()) },
    ],
    { clock, hedgeAfter: 'auto', attemptTimeoutMs: 4_000 },
  );
  const result = dial('target.example:443');
  await until('the first member is asked', () => doubtful.accepted === 1);
  clock.advance(900); // the hedge of a proven member would start after a quarter of 4 s
  expect(connectionOf(await result).lease.member).toBe('good');
});

test('hedged dial: the delay is learned from the latency of good members', async () => {
  const silent = await openMember('http', silentBehavior);
  const good = await openMember('http', httpBehavior());
  const clock = ManualClock.dayOld();
  const { dial, pool } = makeDialer([{ id: 'good', at: good }], {
    clock,
    hedgeAfter: 'auto',
    attemptTimeoutMs: 4_000,
  });
  for (let time = 0; time < 25; time += 1) connectionOf(await dial('target.example:443')).end({ cut: false });
  pool.members = [
    { id: 'silent', at: silent },
    { id: 'good', at: good },
  ];
  const result = dial('target.example:443');
  await until('the first member is asked', () => silent.accepted === 1);
  clock.advance(900); // without samples, the hedge would start after a quarter of 4 s
  expect(connectionOf(await result).lease.member).toBe('good');
});

test('hedged dial: avoids members with an overdue attempt, unless there is no other', async () => {
  const { fast, slow } = timed();
  const silent = { id: 'silent', at: await openMember('http', silentBehavior) };
  const late = { id: 'late', at: await slow(300) };
  const good = { id: 'good', at: await slow(0) };
  const { dial, pool } = makeDialer([silent, good], fast);
  expect(connectionOf(await dial('target.example:443')).lease.member).toBe('good');
  pool.members = [late, silent, good];
  expect(connectionOf(await dial('target.example:443'))).toMatchObject({
    lease: { member: 'good' },
    attempts: 2,
  });
  expect(pool.requests.at(-1)?.avoid).toEqual(['late', 'silent']);
  pool.members = [late, silent];
  expect(connectionOf(await dial('target.example:443'))).toMatchObject({
    lease: { member: 'late' },
    attempts: 2,
  });
  expect(pool.requests.slice(-2).map(({ avoid }) => avoid)).toEqual([['late', 'silent'], ['late']]);
});

test('dial: after a failed attempt, the next one avoids members with an overdue attempt', async () => {
  const { fast, slow } = timed();
  const silent = { id: 'silent', at: await openMember('http', silentBehavior) };
  const dead = { id: 'dead', at: await refusingMember() };
  const good = { id: 'good', at: await slow(0) };
  const { dial, pool } = makeDialer([silent, good], fast);
  expect(connectionOf(await dial('target.example:443')).lease.member).toBe('good');
  pool.members = [dead, silent, good];
  expect(connectionOf(await dial('target.example:443'))).toMatchObject({
    lease: { member: 'good' },
    attempts: 2,
  });
  expect(pool.requests.slice(-2).map(({ hedge, avoid }) => [hedge, avoid])).toEqual([
    [false, []],
    [false, ['dead', 'silent']],
  ]);
});

test('hedged dial: avoids the member of a lost hedge until that ends', async () => {
  const { clock, slow } = timed();
  const late = { id: 'late', at: await slow(120) };
  const silent = { id: 'silent', at: await openMember('http', silentBehavior) };
  const { dial, pool } = makeDialer([late, silent], { clock, hedgeAfter: 40, attemptTimeoutMs: 400 });
  expect(connectionOf(await dial('target.example:443'))).toMatchObject({
    lease: { member: 'late' },
    attempts: 2,
  });
  pool.members = [late];
  await dial('target.example:443');
  expect(pool.requests.map(({ avoid }) => avoid)).toContainEqual(['late', 'silent']);
  await until('it is blamed', () => pool.blames().length > 0);
  const before = pool.requests.length;
  await dial('other.example:443');
  expect(pool.requests.slice(before).map(({ avoid }) => avoid)).toEqual([[], ['late']]);
});

test('hedged dial: continues when the first attempt fails before the pool refuses a hedge', async () => {
  const { clock, slow } = timed();
  const closing = await openMember('http', (socket) => {
    socket.once('data', () => clock.after(60, () => socket.end()));
  });
  const { dial, pool } = makeDialer([{ id: 'closing', at: closing }], { clock, hedgeAfter: 40 });
  const answers: (() => void)[] = [];
  const take = pool.acquire.bind(pool);
  pool.acquire = (request) =>
    request.waitMs > 0 ? take(request) : new Promise((resolve) => answers.push(() => resolve(take(request))));
  const result = dial('target.example:443');
  await until('the hedge waits for its answer', () => answers.length === 1);
  await until('the first attempt has failed', () => closing.open === 0);
  pool.members = [];
  answers[0]?.();
  await until('the next attempt waits for a member', () => pool.waiting === 1);
  pool.add({ id: 'good', at: await slow(0) });
  expect(connectionOf(await result)).toMatchObject({ lease: { member: 'good' }, attempts: 2 });
});

test('hedged dial: returns a lease that arrives after the result', async () => {
  const { clock, slow } = timed();
  const { dial, pool } = makeDialer([{ id: 'late', at: await slow(100) }], { clock, hedgeAfter: 40 });
  const answers: (() => void)[] = [];
  const take = pool.acquire.bind(pool);
  pool.acquire = (request) =>
    request.waitMs > 0 ? take(request) : new Promise((resolve) => answers.push(() => resolve(take(request))));
  connectionOf(await dial('target.example:443'));
  expect([answers.length, pool.cancelled.length]).toEqual([1, 1]);
  pool.members = [{ id: 'spare', at: await slow(0) }];
  answers[0]?.();
  await until('the lease is released', () => pool.blames().length === 1);
  expect(pool.blames()).toEqual(['spare client-gone nobody']);
});

test('hedged dial: a hedge that never started is not charged to the budget', async () => {
  const { clock, slow } = timed();
  const fast = { id: 'fast', at: await slow(0) };
  const late = { id: 'late', at: await slow(400) };
  const { dial, pool } = makeDialer([fast], { clock, hedgeAfter: 'auto' });
  await Promise.all(Array.from({ length: 30 }, () => dial('target.example:443')));
  let answers: (() => void)[] = [];
  const take = pool.acquire.bind(pool);
  pool.acquire = (request) =>
    request.waitMs > 0 ? take(request) : new Promise((resolve) => answers.push(() => resolve(take(request))));
  for (let time = 0; time < 2; time += 1) {
    pool.members = [late];
    await Promise.all(Array.from({ length: 8 }, () => dial('target.example:443')));
    expect(answers, 'hedges that were asked for').toHaveLength(8);
    pool.members = [fast];
    for (const answer of answers) answer();
    answers = [];
    await until('all leases are released', () => pool.blames().length === 8 * (time + 1));
  }
});

test('hedged dial: only lost hedges are charged to the budget, and only with an automatic delay', async () => {
  const hedgesOf = async (hedgeAfter: 'auto' | number) => {
    const { clock, slow } = timed();
    const late = { id: 'late', at: await slow(80) };
    const silent = { id: 'silent', at: await openMember('http', silentBehavior) };
    const { dial, dialer, bus, pool } = makeDialer([late, silent], {
      clock,
      hedgeAfter,
      attemptTimeoutMs: 200,
    });
    const hedges = collect(bus, 'hedge.ended');
    for (let time = 0; time < 20; time += 1) {
      pool.members = [late, silent];
      connectionOf(await dial('target.example:443')).end({ cut: false });
      await until('the dial is over', () => dialer.openCount === 0);
    }
    return hedges.filter(({ outcome }) => outcome === 'lost').length;
  };
  // 10 hedges at the start, and a tenth for each of 20 dials
  expect(await hedgesOf('auto')).toBe(11);
  expect(await hedgesOf(50)).toBe(20);
});

test('hedged dial: close ends attempts that outlive their dial', async () => {
  const { fast, slow } = timed();
  const silent = await openMember('http', silentBehavior);
  const { dial, dialer, pool } = makeDialer(
    [
      { id: 'silent', at: silent },
      { id: 'good', at: await slow(0) },
    ],
    fast,
  );
  connectionOf(await dial('target.example:443')).end({ cut: false });
  await dialer.close();
  expect([dialer.openCount, pool.openLeases]).toEqual([0, 0]);
  expect(pool.blames()).toEqual(['silent client-gone nobody']);
  await until('the loser is closed', () => silent.open === 0);
});

test('hedged dial: a kept connection wins at once, and the request has both attempts', async () => {
  const clock = new LoopClock();
  const good = { id: 'good', at: await openMember('http', httpBehavior()) };
  const { dial, pool, bus } = makeDialer([good], { clock, hedgeAfter: 40, attemptTimeoutMs: 300 });
  const hedges = collect(bus, 'hedge.ended');
  connectionOf(await dial('target.example:80', { use: 'forward' })).end({ cut: false, keep: true });
  pool.members = [{ id: 'silent', at: await openMember('http', silentBehavior) }, good];
  const record = new OpenRequest(clock, '192.0.2.7');
  const connection = connectionOf(await dial('target.example:80', { use: 'forward', record }));
  expect([connection.reused, connection.lease.member, hedges]).toEqual([true, 'good', [{ outcome: 'won' }]]);
  await until('the loser is blamed', () => pool.blames().length > 0);
  expect(record.attempts).toMatchObject([
    { member: 'silent', code: 'member-silent' },
    { member: 'good', code: null, ms: 0 },
  ]);
});

test('hedged dial: the delay of a second attempt counts from its own start', async () => {
  const { clock, fast, slow } = timed();
  const closing = await openMember('http', (socket) => void clock.after(30, () => socket.end()));
  const members = [
    { id: 'closing', at: closing },
    { id: 'calm', at: await slow(30) },
    { id: 'spare', at: await slow(0) },
  ];
  const { dial, bus } = makeDialer(members, fast);
  const hedges = collect(bus, 'hedge.ended');
  expect(connectionOf(await dial('target.example:443'))).toMatchObject({
    lease: { member: 'calm' },
    attempts: 2,
  });
  expect(hedges).toEqual([]);
});
