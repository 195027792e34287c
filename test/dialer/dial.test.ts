/** What one dial decides, and exactly when: its waits, its attempts and hedges, and what it reports about them. */
import { expect, test } from 'vitest';
import { OpenRequest } from '../../src/core/request-record.ts';
import { Secret } from '../../src/core/secret.ts';
import type { SourceSettings } from '../../src/dialer/source-memory.ts';
import { collect, connectionOf, failureOf, start, targetOf } from './make-dialer.ts';
import { ended, makeScriptedDialer } from './scripted-dialer.ts';

const TARGET = 'target.example:443';
const AUTO: SourceSettings = {
  auth: 'auto',
  instance: 'i',
  password: new Secret('12345678'),
  neverInstance: false,
  forwardMode: 'direct',
  handshake: 'plain',
};
const withCity = (city: Partial<SourceSettings> = {}) => ({
  sources: new Map([['city', { ...AUTO, ...city }]]),
});

test.each<[string, attempts: number, failures: readonly (readonly [status: number, ms: number])[]]>([
  ['of 100 ms is slow', 1, [[403, 100]]],
  [
    'of 99 ms is not',
    1,
    [
      [403, 99],
      [403, 100],
    ],
  ],
  [
    'counts against dial.attempts',
    2,
    [
      [403, 100],
      [403, 100],
    ],
  ],
  [
    'of 500 ms does not count if noria withholds its credentials',
    1,
    [
      [407, 500],
      [403, 100],
    ],
  ],
])('dial: a failure %s', async (_, attempts, failures) => {
  const { dial, answer } = makeScriptedDialer(['a', 'b', 'c'], { ...withCity(), attempts });
  const result = dial(TARGET);
  for (const [index, [status, ms]] of failures.entries()) answer('abc'.charAt(index), status, ms);
  expect(failureOf(await ended(result))).toMatchObject({ code: 'members-failed', attempts: failures.length });
});

test('dial: a member that requires credentials although others work without is tried twice, not for ever', async () => {
  const { dial, pool, answer, openedTo, memberOf } = makeScriptedDialer(['open'], withCity());
  const first = dial(TARGET);
  answer('open', 200);
  connectionOf(await ended(first));
  pool.members = [memberOf('asks')];
  const result = dial(TARGET, { avoid: ['open'] });
  answer('asks', 407);
  answer('asks', 407);
  expect(failureOf(await ended(result))).toMatchObject({ code: 'members-failed', attempts: 2 });
  expect(openedTo('asks')).toEqual([2]);
  expect(pool.requests.some(({ hedge }) => hedge)).toBe(false);
  expect(pool.requests.slice(1).map(({ avoid, waitMs }) => [avoid, waitMs])).toEqual([
    [['open'], 60_000],
    [['open', 'asks'], 0],
    [['open'], 0],
    [['open', 'asks'], 0],
  ]);
});

test('dial: one failure of another kind, or without withheld credentials, ends it when no member is left', async () => {
  for (const [city, statuses] of [
    [AUTO, [407, 403]],
    [{ auth: 'none' }, [407, 407]],
  ] as const) {
    const { dial, answer, openedTo } = makeScriptedDialer(['a', 'b'], {
      ...withCity(city),
      waitForMemberMs: 0,
    });
    const result = dial(TARGET);
    answer('a', statuses[0]);
    answer('b', statuses[1]);
    expect(failureOf(await ended(result))).toMatchObject({ code: 'members-failed', attempts: 2 });
    expect(openedTo('a', 'b')).toEqual([1, 1]);
  }
});

test("dial: the pool's refusal is the result, except that it is empty after failed attempts", async () => {
  const { dial, pool, answer } = makeScriptedDialer(['a']);
  const acquire = pool.acquire.bind(pool);
  pool.acquire = (request) =>
    request.avoid.length === 0
      ? acquire(request)
      : { code: 'session-ended', reason: 'its member left', sources: [] };
  const result = dial(TARGET);
  answer('a', 403);
  expect(failureOf(await ended(result))).toEqual({
    code: 'session-ended',
    reason: 'its member left',
    sources: [],
    attempts: 1,
  });
});

test.each([
  ['waitForMember', 15_000, 60_000, 15_000],
  ['the deadline', 15_000, 8_000, 8_000],
])('dial: the first wait is limited by %s', async (_, waitForMemberMs, deadlineMs, waitMs) => {
  const { dialer, pool } = makeScriptedDialer([], { waitForMemberMs, deadlineMs });
  start(dialer, { target: targetOf(TARGET), routing: {}, use: 'tunnel' }).cancel();
  expect(pool.requests).toMatchObject([{ waitMs, hedge: false, avoid: [], targetHost: 'target.example' }]);
  expect(pool.cancelled).toEqual([pool.requests[0]?.id]);
});

test('dial: no wait is left after a wait that took longer than allowed', async () => {
  const { dial, pool, clock, memberOf, close } = makeScriptedDialer([], { waitForMemberMs: 15_000 });
  const result = dial(TARGET);
  clock.advance(16_000);
  pool.add(memberOf('a'));
  await Promise.resolve();
  close('a', 'ECONNREFUSED');
  expect(failureOf(await ended(result)).code).toBe('members-failed');
  expect(pool.requests.map(({ waitMs }) => waitMs)).toEqual([15_000, 0]);
});

test.each([
  ['every member required credentials', 407, 0],
  ['a member refused the request', 403, 2_000],
  ['the failure says nothing about the target', 200, 60_000],
])('dial: how long it waits for the next member after %s', async (_, status, waitMs) => {
  const { dialer, pool, answer, close } = makeScriptedDialer(['a'], withCity({ auth: 'none' }));
  const dialing = start(dialer, { target: targetOf(TARGET), routing: {}, use: 'tunnel' });
  if (status === 200) close('a', 'ECONNREFUSED');
  else answer('a', status);
  dialing.cancel();
  failureOf(await ended(dialing.result));
  expect(pool.requests.at(-1)?.waitMs).toBe(waitMs);
});

test('dial: a session keeps a member that failed for the target, other requests avoid it', async () => {
  const { dial, pool, answer } = makeScriptedDialer(['a', 'b']);
  const first = dial(TARGET);
  answer('a', 403);
  answer('b', 200);
  connectionOf(await ended(first)).end({ cut: false });
  for (const routing of [{}, { session: 's' }]) {
    const next = dial(TARGET, { routing });
    answer(routing.session === undefined ? 'b' : 'a', 200);
    connectionOf(await ended(next));
  }
  expect(pool.requests.slice(-2).map(({ avoid }) => avoid)).toEqual([['a'], []]);
});

test('dial: reports each attempt once, with its time, its phase and its blame', async () => {
  const { dial, pool, clock, answer, close, connect, events, bus } = makeScriptedDialer(
    ['a', 'b', 'c', 'd'],
    {
      attempts: 9,
    },
  );
  const outcomes = collect(bus, 'dial.ended');
  const record = new OpenRequest(clock, '192.0.2.7');
  const result = dial(TARGET, { record });
  clock.advance(30);
  close('a', 'ECONNREFUSED');
  connect('b');
  clock.advance(200);
  close('b', 'ECONNRESET');
  answer('c', 502, 10);
  answer('d', 200, 7);
  connectionOf(await ended(result));
  expect(events, 'later attempts decide about the blame for two of them').toEqual([
    'a member-unreachable connect member 30',
    'd accepted done nobody 7',
    'b member-closed answer member-for-target 200',
    'c target-doubted answer member-for-target 10',
  ]);
  expect(record.attempts.map(({ member, ms, code, exit }) => [member, ms, code, exit])).toEqual([
    ['a', 30, 'member-unreachable', '192.0.2.1'],
    ['b', 200, 'member-closed', '192.0.2.1'],
    ['c', 10, 'target-doubted', '192.0.2.1'],
    ['d', 7, null, '192.0.2.1'],
  ]);
  expect(outcomes).toEqual([
    {
      outcome: 'accepted',
      attempts: 4,
      ms: 247,
      waitedMs: 0,
      target: TARGET,
      request: record.id,
      source: 'city',
      member: 'd',
    },
  ]);
  expect(pool.reports.filter(({ kind }) => kind === 'accepted')).toEqual([
    { lease: 4, kind: 'accepted', latencyMs: 7 },
  ]);
});

test('dial: an accepted request in absolute form does not show that others should have reached the target', async () => {
  const { dial, pool, connect, say, events, memberOf } = makeScriptedDialer(
    [],
    withCity({ forwardMode: 'absolute' }),
  );
  pool.members = [memberOf('socks', 'socks5'), memberOf('http')];
  const result = dial('target.example:80', { use: 'forward' });
  connect('socks');
  say('socks', '\x05\x00');
  say('socks', '\x05\x04');
  connect('http');
  const connection = connectionOf(await ended(result));
  expect(connection).toMatchObject({ forwardMode: 'absolute', attempts: 2, reused: false });
  expect(events).toEqual(['http accepted done nobody 0', 'socks target-doubted answer unclear 0']);
});

test('dial: nothing happens when it is cancelled after its result', async () => {
  const { dialer, answer, events, pool, clock } = makeScriptedDialer(['a', 'b']);
  const dialing = start(dialer, { target: targetOf(TARGET), routing: {}, use: 'tunnel' });
  answer('a', 200);
  const connection = connectionOf(await ended(dialing.result));
  dialing.cancel();
  clock.advance(60_000);
  expect([connection.socket.destroyed, dialer.openCount]).toEqual([false, 0]);
  expect([events, pool.reports.length]).toEqual([['a accepted done nobody 0'], 1]);
  connection.end({ cut: false });
});

test('dial: a cancelled attempt is reported with its phase, and what failed before with what is known then', async () => {
  const { dialer, answer, connect, events, clock } = makeScriptedDialer(['a', 'b', 'c'], { hedgeAfter: 40 });
  const dialing = start(dialer, { target: targetOf(TARGET), routing: {}, use: 'tunnel' });
  answer('a', 502, 10);
  connect('b');
  clock.advance(50);
  dialing.cancel();
  expect(failureOf(await ended(dialing.result))).toMatchObject({
    code: 'client-gone',
    attempts: 3,
    reason: '3 members tried in 60 ms: 1 could not reach the target',
  });
  expect(events).toEqual([
    'b cancelled answer nobody 50',
    'c cancelled connect nobody 10 hedge',
    'a target-doubted answer nobody 10',
  ]);
  expect(dialer.openCount).toBe(0);
});

test('dial: at its deadline it says what it tried, and what has already failed may be the target', async () => {
  const { dial, answer, events, clock } = makeScriptedDialer(['a', 'b'], { deadlineMs: 3_000 });
  const result = dial(TARGET);
  answer('a', 502, 10);
  clock.advance(2_980);
  expect(events).toEqual([]);
  clock.advance(10);
  expect(failureOf(await ended(result))).toEqual({
    code: 'deadline',
    attempts: 2,
    reason: '2 members tried in 3000 ms: 1 could not reach the target',
  });
  expect(events).toEqual(['b cancelled connect nobody 2990', 'a target-doubted answer unclear 10']);
});

test('dial: a failure without a description still counts', async () => {
  const { dial, clock } = makeScriptedDialer(['a'], { deadlineMs: 2_000 });
  const result = dial(TARGET);
  clock.advance(2_000);
  expect(failureOf(await ended(result)).reason).toBe('1 member tried in 2000 ms');
});

test('hedge: starts after its delay, avoids slow and overdue members, and is not overdue itself', async () => {
  const { dial, clock, pool, memberOf, connect, answer } = makeScriptedDialer(['a', 'b'], { hedgeAfter: 40 });
  const first = dial(TARGET);
  clock.advance(39);
  expect(pool.requests).toHaveLength(1);
  clock.advance(1);
  expect(pool.requests.map(({ hedge, avoid, waitMs }) => [hedge, avoid, waitMs])).toEqual([
    [false, [], 60_000],
    [true, ['a'], 0],
  ]);
  connect('b');
  clock.advance(50); // the hedge has now taken longer than the delay
  pool.members = [memberOf('c'), memberOf('d')];
  const second = dial(TARGET);
  answer('c', 502);
  expect(pool.requests.at(-1)?.avoid).toEqual(['c', 'a']);
  answer('d', 200);
  answer('b', 200);
  connectionOf(await ended(first));
  connectionOf(await ended(second));
});

test('hedge: avoids members that are slow by their latency', async () => {
  const { dial, clock, pool, memberOf, answer } = makeScriptedDialer([], { hedgeAfter: 'auto' });
  const through = async (id: string, ms: number) => {
    pool.members = [memberOf(id)];
    const result = dial(TARGET);
    answer(id, 200, ms);
    connectionOf(await ended(result)).end({ cut: false });
    clock.advance(100);
  };
  for (let time = 0; time < 12; time += 1) {
    await through('fast', 60);
    await through('quick', 60);
    await through('slow', 140);
  }
  pool.members = [memberOf('fast'), memberOf('slow'), memberOf('quick')];
  const result = dial(TARGET);
  clock.advance(59);
  expect(pool.requests.at(-1)?.hedge).toBe(false);
  clock.advance(1);
  expect(pool.requests.at(-1)).toMatchObject({ hedge: true, avoid: ['fast', 'slow'] });
  answer('quick', 200);
  connectionOf(await ended(result));
});

test('hedge: at most one runs, and dial.attempts counts running attempts', async () => {
  for (const [attempts, expected] of [
    [1, [1, 0, 0]],
    [2, [1, 1, 0]],
    [9, [1, 1, 0]],
  ] as const) {
    const { dial, clock, openedTo, answer } = makeScriptedDialer(['a', 'b', 'c'], {
      hedgeAfter: 40,
      attempts,
    });
    const result = dial(TARGET);
    clock.advance(1_000);
    expect(openedTo('a', 'b', 'c')).toEqual(expected);
    answer('a', 200);
    connectionOf(await ended(result));
  }
});

test('hedge: the first attempt that fails later is blamed, one that succeeds later gives its latency', async () => {
  const { dial, dialer, clock, answer, events, pool, socketOf } = makeScriptedDialer(['a', 'b'], {
    hedgeAfter: 40,
  });
  for (const status of [200, 502]) {
    const result = dial(TARGET);
    clock.advance(40);
    answer('b', 200, 10);
    connectionOf(await ended(result)).end({ cut: false });
    expect(dialer.openCount).toBe(1);
    pool.reports.length = 0;
    answer('a', status, 50);
    expect(dialer.openCount).toBe(0);
    expect(socketOf('a').destroyed).toBe(true);
    expect(events.splice(0)).toEqual([
      'b accepted done nobody 10 hedge',
      'hedge won',
      status === 200 ? 'a accepted done nobody 100' : 'a target-doubted answer member-for-target 100',
    ]);
    const lease = status === 200 ? 1 : 3;
    expect(pool.reports).toEqual(
      status === 200
        ? [
            { lease, kind: 'accepted', latencyMs: 100, late: true },
            { lease, kind: 'closed', cut: false },
          ]
        : [{ lease, kind: 'failed', blame: 'member-for-target', fault: 'target-doubted' }],
    );
  }
});

test('dial: only failures that the target can cause show that it is unreachable', async () => {
  const { dial, pool, memberOf, answer, close, events } = makeScriptedDialer(['works'], {
    waitForMemberMs: 0,
  });
  const first = dial(TARGET);
  answer('works', 200);
  connectionOf(await ended(first)).end({ cut: false });
  for (const [other, blame] of [
    ['ECONNREFUSED', 'unclear'],
    [502, 'target'],
  ] as const) {
    pool.members = [memberOf('a'), memberOf('b')];
    events.length = 0;
    const result = dial('dead.example:443');
    if (other === 502) answer('a', 502);
    else close('a', other);
    answer('b', 502);
    failureOf(await ended(result));
    expect(events.at(-1)).toBe(`b target-doubted answer ${blame} 0`);
  }
});

test('dial: members that got no credentials are tried again, although the last one has refused them', async () => {
  const { dial, answer, openedTo, opened } = makeScriptedDialer(['a', 'b', 'c'], {
    ...withCity(),
    attempts: 9,
  });
  const result = dial(TARGET);
  for (const id of ['a', 'b', 'c', 'c']) answer(id, 407); // the third one that asks gets them
  expect(openedTo('a', 'b', 'c')).toEqual([2, 1, 2]);
  answer('a', 407);
  answer('a', 200);
  expect(connectionOf(await ended(result))).toMatchObject({ lease: { member: 'a' }, attempts: 4 });
  expect(opened.at(-1)?.written).toContain(`Proxy-Authorization: Basic ${btoa('i:12345678')}`);
});

test('dial: a failure of this machine does not show that the network is up', async () => {
  for (const [code, down] of [
    ['EMFILE', [true]],
    ['ECONNREFUSED', []],
  ] as const) {
    const { dial, close, clock, networkDown } = makeScriptedDialer(['a', 'b', 'c', 'x', 'd'], {
      waitForMemberMs: 0,
      attempts: 9,
    });
    clock.advance(1_000);
    const result = dial(TARGET);
    for (const id of ['a', 'b', 'c', 'x', 'd']) close(id, id === 'x' ? code : 'EHOSTUNREACH');
    failureOf(await ended(result));
    expect(networkDown).toEqual(down);
  }
});

test.each(['won', 'failed', 'lost'] as const)(
  'hedge: of those that are %s, only lost ones are limited',
  async (outcome) => {
    const { dial, clock, answer, close, pool, memberOf, events } = makeScriptedDialer([], {
      hedgeAfter: 'auto',
      attemptTimeoutMs: 4_000,
    });
    let hedges = 0;
    for (let time = 0; time < 16; time += 1) {
      pool.members = [memberOf('a'), memberOf('b')];
      const before = pool.requests.length;
      const result = dial(TARGET);
      clock.advance(1_000);
      if (pool.requests.length === before + 2) hedges += 1;
      pool.members = [];
      if (outcome === 'failed') close('b', 'ECONNREFUSED');
      answer(outcome === 'won' ? 'b' : 'a', 200);
      connectionOf(await ended(result)).end({ cut: false });
      if (outcome !== 'failed') {
        if (hedges === time + 1) close(outcome === 'won' ? 'a' : 'b', 'ECONNREFUSED');
      }
    }
    expect(hedges).toBe(outcome === 'lost' ? 11 : 16);
    expect(events.filter((event) => event === `hedge ${outcome}`)).toHaveLength(hedges);
  },
);

test('dial: failures that the target can cause cost the client, also beside others', async () => {
  for (const [other, costs] of [
    [502, true],
    ['ECONNREFUSED', false],
  ] as const) {
    const { dial, pool, memberOf, answer, close } = makeScriptedDialer([], {
      waitForMemberMs: 0,
      attempts: 9,
    });
    for (let time = 0; time < 130; time += 1) {
      pool.members = [memberOf('a'), memberOf('b')];
      const result = dial('dead.example:443', { routing: { client: 'ann' } });
      close('a', 'ECONNREFUSED');
      if (other === 502) answer('b', 502);
      else close('b', other);
      failureOf(await ended(result));
    }
    pool.requests.length = 0;
    pool.members = [];
    await ended(dial(TARGET, { routing: { client: 'ann' }, avoid: ['m0'] }));
    expect(pool.requests).toHaveLength(costs ? 0 : 1);
  }
});

test('hedge: none starts while no attempt runs and the dial waits for a member', async () => {
  const { dial, clock, close, pool, memberOf, answer } = makeScriptedDialer(['a'], { hedgeAfter: 40 });
  const result = dial(TARGET);
  close('a', 'ECONNREFUSED');
  clock.advance(1_000);
  expect(pool.requests.map(({ hedge }) => hedge)).toEqual([false, false]);
  pool.add(memberOf('b'));
  await new Promise((next) => setImmediate(next));
  answer('b', 200);
  connectionOf(await ended(result));
});

test.each([
  [407, 1, 'front-proxy-failed'],
  [403, 3, 'front-proxy-failed'],
  [502, 5, 'members-failed'],
])('dial: after status %i of the front proxy, %i members are tried', async (status, attempts, code) => {
  const { dial, opened } = makeScriptedDialer(['a', 'b', 'c', 'd', 'e'], {
    via: { protocol: 'http', host: '192.0.2.9', port: 3128 },
    attempts: 3,
    waitForMemberMs: 0,
  });
  const result = dial(TARGET);
  for (let asked = 0; asked < opened.length; asked += 1) {
    opened[asked]?.socket.emit('connect');
    opened[asked]?.socket.emit('data', Buffer.from(`HTTP/1.1 ${status} No\r\n\r\n`));
    opened[asked]?.socket.emit('close');
  }
  expect(failureOf(await ended(result))).toMatchObject({ code, attempts });
});

test('dial: a member that is silent in TLS behind the front proxy was reached', async () => {
  const { dial, opened, pool, memberOf, clock } = makeScriptedDialer([], {
    via: { protocol: 'http', host: '192.0.2.9', port: 3128 },
    attemptTimeoutMs: 1_000,
    waitForMemberMs: 0,
  });
  for (const [answers, blame] of [
    [true, 'a member-silent member'],
    [false, 'a front-proxy-silent front-proxy'],
  ] as const) {
    pool.members = [memberOf('a', 'https')];
    const result = dial(TARGET);
    const { socket } = opened.at(-1) as (typeof opened)[number];
    socket.emit('connect');
    if (answers) socket.emit('data', Buffer.from('HTTP/1.1 200 OK\r\n\r\n'));
    clock.advance(800);
    failureOf(await ended(result));
    expect(pool.blames().at(-1)).toBe(blame);
  }
});
