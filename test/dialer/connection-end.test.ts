/** What the end of a connection through a member reports and teaches: to the pool, to later dials, and about bans. */
import { expect, test } from 'vitest';
import { Secret } from '../../src/core/secret.ts';
import type { ConnectionOutcome, DialRequest } from '../../src/dialer/contract.ts';
import type { SourceSettings } from '../../src/dialer/source-memory.ts';
import { connectionOf } from './make-dialer.ts';
import { ended, makeScriptedDialer } from './scripted-dialer.ts';

const TARGET = 'shop.example:80';

/** Three members with different exits. */
function makeConnections(city?: SourceSettings) {
  const kit = makeScriptedDialer([], {
    waitForMemberMs: 0,
    ...(city && { sources: new Map([['city', city]]) }),
  });
  const { pool, memberOf, dial, answer, connect, clock } = kit;
  const open = async (id: string, request: Partial<DialRequest> = {}) => {
    const { at } = memberOf(id);
    pool.members = [{ id, at: { ...at, host: `192.0.2.${at.port}` } }];
    const before = kit.opened.length;
    const result = dial(TARGET, request);
    if (kit.opened.length > before) {
      if (city?.forwardMode === 'absolute') connect(id);
      else answer(id, 200);
    }
    return connectionOf(await ended(result));
  };
  const end = async (id: string, outcome: ConnectionOutcome, request: Partial<DialRequest> = {}) => {
    clock.advance(1);
    const connection = await open(id, request);
    const result = connection.end(outcome);
    return { connection, result, report: pool.reports.at(-1) };
  };
  /** The members that the next dial to the target avoids. */
  const avoided = async () => {
    await open('z');
    return pool.requests.at(-1)?.avoid;
  };
  return { ...kit, open, end, avoided };
}

test.each<[string, ConnectionOutcome, Partial<DialRequest>, object]>([
  ['nothing more', { cut: false }, {}, { cut: false, answered: false }],
  ['an answer', { cut: false, answered: true }, {}, { cut: false, answered: true }],
  ['a cut', { cut: true }, {}, { cut: 'unclear', answered: false }],
  ['a cut after a TLS handshake', { cut: 'after-tls' }, {}, { cut: false, answered: false }],
  ['silence', { cut: false, mute: true }, { use: 'forward' }, { cut: false, answered: false }],
])('connection: the report of its end with %s', async (_, outcome, request, expected) => {
  const { end } = makeConnections();
  const { report, result } = await end('a', outcome, request);
  expect([report, result]).toEqual([{ lease: 1, kind: 'closed', ...expected }, undefined]);
});

test('connection: its member is at fault if the target answered another one, and no other was cut since', async () => {
  const { end, avoided } = makeConnections();
  await end('b', { cut: false, answered: true });
  expect((await end('a', { cut: true })).report).toMatchObject({ cut: 'member-for-target' });
  expect((await end('c', { cut: true })).report).toMatchObject({ cut: 'unclear' });
  expect(await avoided()).toEqual([]);
});

test('connection: silence while the target answers others is reported once, and its member is avoided', async () => {
  const { end, avoided, bus, clock, open, pool } = makeConnections();
  const attempted: object[] = [];
  await end('b', { cut: false, answered: true });
  const connection = await open('a', { use: 'forward' });
  bus.on('dial.attempted', (event) => attempted.push(event));
  clock.advance(4_000);
  expect(connection.end({ cut: false, mute: true })).toBe('member-mute');
  expect(pool.reports.at(-1)).toEqual({ lease: 2, kind: 'closed', cut: 'member-for-target', mute: true });
  expect(connection.end({ cut: false, mute: true })).toBeUndefined();
  expect(attempted).toEqual([
    {
      source: 'city',
      member: 'a',
      outcome: 'member-mute',
      phase: 'done',
      blame: 'member-for-target',
      ms: 4_000,
      hedge: false,
      request: undefined,
    },
  ]);
  const { report } = await end('c', { cut: false });
  expect(report).toMatchObject({ lease: 3 });
  expect(await avoided()).toEqual(['a']);
});

test('connection: an exit that has answered and is cut is avoided, whatever kind of cut', async () => {
  for (const [outcome, expected] of [
    [{ cut: true }, ['a']],
    [{ cut: 'after-tls' }, ['a']],
    [{ cut: false }, []],
  ] as const) {
    const { end, open, avoided } = makeConnections();
    expect((await open('a')).hasWorked).toBe(false);
    await end('a', { cut: false, answered: true });
    const { connection } = await end('a', outcome);
    expect(connection.hasWorked).toBe(true);
    expect(await avoided()).toEqual(expected);
    const never = makeConnections();
    await never.end('a', outcome);
    expect(await never.avoided()).toEqual([]);
  }
});

test.each<[string, readonly (readonly [id: string, outcome: ConnectionOutcome])[], string[]]>([
  [
    'resets before any byte',
    [
      ['a', { cut: false, answered: true }],
      ['a', { cut: true }],
      ['b', { cut: false, answered: true }],
      ['a', { cut: true }],
    ],
    ['shop.example 192.0.2.1 reset'],
  ],
  [
    'ends after TLS of an exit that never answered',
    [
      ['a', { cut: 'after-tls' }],
      ['b', { cut: false, answered: true }],
      ['a', { cut: 'after-tls' }],
    ],
    ['shop.example 192.0.2.1 reset'],
  ],
  [
    'resets of an exit that never relayed',
    [
      ['a', { cut: true }],
      ['b', { cut: false, answered: true }],
      ['a', { cut: true }],
    ],
    [],
  ],
  [
    'a 429 while another exit gets pages',
    [
      ['b', { cut: false, answered: true, response: { status: 200, path: '/' } }],
      ['a', { cut: false, answered: true, response: { status: 429, path: '/' } }],
    ],
    ['shop.example 192.0.2.1 status'],
  ],
  [
    'a 429 without an answer',
    [
      ['b', { cut: false, answered: true, response: { status: 200, path: '/' } }],
      ['a', { cut: false, response: { status: 429, path: '/' } }],
    ],
    [],
  ],
])('connection: the bans after %s', async (_, ends, bans) => {
  const { end, pool, memberOf } = makeConnections();
  memberOf('a');
  for (const [id, outcome] of ends) await end(id, outcome);
  expect(pool.bans).toEqual(bans);
});

test.each<[string, DialRequest['use'], isReused: boolean, outcome: ConnectionOutcome, costs: boolean]>([
  ['a cut forward', 'forward', false, { cut: true }, true],
  ['a cut tunnel', 'tunnel', false, { cut: true }, false],
  ['a forward that ended well', 'forward', false, { cut: false }, false],
  ['a forward on a kept connection', 'forward', true, { cut: true }, false],
])('connection: whether %s costs its client a further attempt', async (_, use, isReused, outcome, costs) => {
  const { open, pool, dial } = makeConnections();
  const request = { use, routing: { client: 'ann' } } as const;
  for (let time = 0; time < 130; time += 1) {
    if (isReused) (await open('a', request)).end({ cut: false, keep: true });
    (await open('a', request)).end(outcome);
  }
  pool.requests.length = 0;
  pool.members = [];
  await ended(dial(TARGET, { ...request, avoid: ['m0'] }));
  expect(pool.requests).toHaveLength(costs ? 0 : 1);
});

const ABSOLUTE: SourceSettings = {
  auth: 'instance',
  instance: 'i',
  password: new Secret('12345678'),
  neverInstance: false,
  forwardMode: 'absolute',
  handshake: 'plain',
};

test('connection: an answer in absolute form shows that the member works, and that its credentials do', async () => {
  for (const [outcome, blame] of [
    [{ cut: false, answered: true }, 'member'],
    [{ cut: false, answered: true, proxyAuthRequired: true }, 'nobody'],
    [{ cut: false }, 'nobody'],
  ] as const) {
    const { end, dial, pool, memberOf, answer, events } = makeConnections(ABSOLUTE);
    const { connection } = await end('a', outcome, { use: 'forward' });
    expect(connection).toMatchObject({
      forwardMode: 'absolute',
      proxyAuthorization: `Basic ${btoa('i:12345678')}`,
    });
    events.length = 0;
    pool.members = [memberOf('b')];
    const result = dial(TARGET);
    answer('b', 407);
    await ended(result);
    expect(events).toEqual([`b member-auth answer ${blame} 0`]);
  }
});

test('connection: through CONNECT no answer is that of the member, and its credentials are not for the request', async () => {
  const { open } = makeConnections({ ...ABSOLUTE, forwardMode: 'direct' });
  const connection = await open('a', { use: 'forward' });
  expect(connection.isMemberError({ status: 503, fields: [['server', 'squid/6']], isRead: true })).toBe(
    false,
  );
  expect([connection.forwardMode, connection.proxyAuthorization]).toEqual(['direct', undefined]);
});

test('connection: a kept one outlives a reload, but not a change of the front proxy', async () => {
  const { open, dialer, events } = makeConnections();
  const settings = {
    attempts: 3,
    attemptTimeoutMs: 60_000,
    hedgeAfter: 'off',
    warm: 'off',
    deadlineMs: 60_000,
    waitForMemberMs: 0,
    sources: new Map(),
  } as const;
  (await open('a', { use: 'forward' })).end({ cut: false, keep: true });
  dialer.configure(settings);
  expect(dialer.openCount).toBe(1);
  const kept = await open('a', { use: 'forward' });
  expect([kept.reused, events]).toEqual([true, ['a accepted done nobody 0']]);
  kept.end({ cut: false, keep: true });
  dialer.configure({ ...settings, via: { protocol: 'http', host: '192.0.2.9', port: 3128 } });
  expect(dialer.openCount).toBe(0);
});

test('connection: an end without a first byte teaches nothing about when the next one is late', async () => {
  const { end, open } = makeConnections();
  await end('a', { cut: false }, { use: 'forward' });
  expect((await open('b', { use: 'forward' })).muteAfterMs).toBe(4_000);
  await end('c', { cut: false, firstByteMs: 2_000 }, { use: 'forward' });
  expect((await open('b', { use: 'forward' })).muteAfterMs).toBe(6_000);
});
