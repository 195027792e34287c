/** Connections to members through front proxies of other projects, and what a failing front proxy costs members. */
import { once } from 'node:events';
import { describe, expect, test } from 'vitest';
import { makeMark } from '../../src/core/front-proxy.ts';
import type { MemberProtocol } from '../../src/core/protocol.ts';
import { FRONT_PROXIES, frontProxyAt, openBrokenProxy } from '../foreign-members/front-proxies.ts';
import {
  httpBehavior,
  openMember,
  refusingMember,
  socks4Behavior,
  socks5Behavior,
  type TestMember,
} from '../support/bad-members.ts';
import { hasCommand } from '../support/tools.ts';
import { connectionOf, echo, failureOf, makeDialer } from './make-dialer.ts';
import { makeDialerWithPool } from './real-pool.ts';

const MEMBERS: Readonly<Record<MemberProtocol, () => Promise<TestMember>>> = {
  http: () => openMember('http', httpBehavior()),
  https: () => openMember('https', httpBehavior()),
  socks5: () => openMember('socks5', socks5Behavior()),
  socks4: () => openMember('socks4', socks4Behavior()),
};

describe.each(FRONT_PROXIES)('dialer through $name', ({ command, open }) => {
  test.skipIf(command !== undefined && !hasCommand(command)).each(Object.entries(MEMBERS))(
    'a tunnel through a member that speaks %s carries bytes in both directions',
    async (_, openOne) => {
      const via = frontProxyAt(await open());
      const member = await openOne();
      const { dial, pool } = makeDialer([{ id: 'm1', at: member }], { via });
      const connection = connectionOf(await dial('target.example:443'));
      await echo(connection, 'hello');
      await echo(connection, 'x'.repeat(300_000));
      connection.end({ cut: false });
      expect(member.accepted).toBe(1);
      expect(pool.reports.map(({ kind }) => kind)).toEqual(['accepted', 'closed']);
    },
  );
});

/** The settings that a reload may change. */
const OPTIONS = {
  attempts: 3,
  attemptTimeoutMs: 60_000,
  hedgeAfter: 'off',
  deadlineMs: 60_000,
  waitForMemberMs: 60_000,
  warm: 'off',
  sources: new Map(),
} as const;

/** Opens a dialer with three members and dials through this front proxy. */
async function dialThrough(url: string, members?: readonly TestMember[]) {
  const all = members ?? (await Promise.all([MEMBERS.http(), MEMBERS.socks5(), MEMBERS.https()]));
  const kit = makeDialerWithPool(all, { via: frontProxyAt(url) });
  const blames: string[] = [];
  kit.bus.on('dial.attempted', ({ blame }) => blames.push(blame));
  return { ...kit, blames, members: all };
}

const refusals: readonly [string, () => Promise<string>, RegExp][] = [
  [
    'is down',
    async () => `http://127.0.0.1:${(await refusingMember()).port}`,
    /^could not connect to the front proxy \(ECONNREFUSED\); check that the front proxy runs .* in dial\.via$/,
  ],
  [
    'requires a valid user name and password',
    async () =>
      `http://127.0.0.1:${await openBrokenProxy('HTTP/1.1 407 Proxy Authentication Required\r\n\r\n')}`,
    /^the front proxy requires a valid user name and password \(status 407\); set the user name and password of the front proxy in dial\.via$/,
  ],
  [
    'does not allow the port of the members',
    async () => `http://127.0.0.1:${await openBrokenProxy('HTTP/1.1 403 Forbidden\r\n\r\n')}`,
    /^the front proxy refused to connect to a member \(status 403\); allow the host and the port in the front proxy/,
  ],
  [
    'is no proxy',
    async () => `socks5://127.0.0.1:${await openBrokenProxy('HTTP/1.1 400 Bad Request\r\n\r\n')}`,
    /^the front proxy did not answer like a proxy \(not a SOCKS5 reply\); check the scheme and the port in dial\.via$/,
  ],
  [
    'closes every connection',
    async () => `http://127.0.0.1:${await openBrokenProxy('')}`,
    /^the front proxy did not answer \(end of stream\); check that the front proxy works/,
  ],
];

test.each(refusals)('dialer: a front proxy that %s costs no member anything', async (_, open, reason) => {
  const { dial, quarantined, left, blames, members } = await dialThrough(await open());
  for (let time = 0; time < 3; time += 1) {
    const failure = failureOf(await dial('target.example:443'));
    expect(failure).toMatchObject({ code: 'front-proxy-failed', reason: expect.stringMatching(reason) });
  }
  expect([quarantined, left]).toEqual([[], []]);
  expect(new Set(blames)).toEqual(new Set(['front-proxy']));
  expect(
    members.map(({ accepted }) => accepted),
    'no direct connection',
  ).toEqual([0, 0, 0]);
});

test('dialer: a front proxy that hangs costs no member anything', async () => {
  const port = await openBrokenProxy(undefined);
  const { dial, clock, dialer, quarantined, left, members } = await dialThrough(`http://127.0.0.1:${port}`);
  const dialing = dial('target.example:443');
  let done = false;
  void dialing.finally(() => (done = true));
  while (!done) {
    await new Promise((resolve) => setImmediate(resolve));
    clock.advance(100);
  }
  expect(failureOf(await dialing)).toMatchObject({
    code: 'front-proxy-failed',
    reason: expect.stringMatching(/^the front proxy did not answer \(no answer within \d+ ms\)/),
  });
  expect(dialer.openCount).toBe(0);
  expect([quarantined, left]).toEqual([[], []]);
  expect(members.map(({ accepted }) => accepted)).toEqual([0, 0, 0]);
});

/** All front proxies except the one that reports a dead server with status 404, as a web server answers CONNECT. */
const REPORTING = FRONT_PROXIES.filter(({ name }) => !name.includes('only knows CONNECT'));

test.each(REPORTING)(
  'dialer through $name: a dead member is at fault, and another one serves',
  async ({ command, open }) => {
    if (command !== undefined && !hasCommand(command)) return;
    const members = [await refusingMember(), await MEMBERS.http()];
    const { dial, quarantined, blames } = await dialThrough(await open(), members);
    const connection = connectionOf(await dial('target.example:443'));
    await echo(connection, 'hello');
    expect(connection.attempts).toBe(2);
    expect(quarantined).toHaveLength(1);
    expect(blames.sort()).toEqual(['member', 'nobody']);
    connection.socket.destroy();
    connection.end({ cut: false, answered: true });
  },
);

test('dialer: after a change of the front proxy, no connection that was opened before is used again', async () => {
  const [first, second] = [FRONT_PROXIES.at(-1), FRONT_PROXIES.at(-1)];
  const old = frontProxyAt((await first?.open()) ?? '');
  const via = frontProxyAt((await second?.open()) ?? '');
  const member = await MEMBERS.http();
  const settings = { via: old };
  const { dialer, dial } = makeDialer([{ id: 'm1', at: member }], settings);
  const forward = async () =>
    connectionOf(await dial('target.example:80', { use: 'forward', connectOnly: true }));
  const kept = await forward();
  kept.end({ cut: false, keep: true });
  const reused = await forward();
  expect(reused.reused).toBe(true);
  (await forward()).end({ cut: false, keep: true });
  expect(dialer.openCount, 'one idle connection').toBe(1);
  dialer.configure({ ...OPTIONS, via });
  expect(dialer.openCount, 'idle connections').toBe(0);
  reused.end({ cut: false, keep: true });
  expect(dialer.openCount, 'idle connections').toBe(0);
  const fresh = await forward();
  expect(fresh.reused).toBe(false);
  fresh.end({ cut: false });
});

test("dialer through a front proxy at one of noria's own addresses: sends nothing, and says so", async () => {
  const member = await MEMBERS.http();
  const own = await openMember('http', httpBehavior());
  const { dial, pool } = makeDialer([{ id: 'm1', at: member }], {
    via: frontProxyAt(`http://localhost:${own.port}`),
    guard: { mark: makeMark(), ownAddresses: () => [{ host: '127.0.0.1', port: own.port }] },
  });
  expect(failureOf(await dial('target.example:443'))).toEqual({
    code: 'proxy-loop',
    reason:
      "the front proxy leads back to noria (one of noria's own addresses); set dial.via to a front proxy that does not send its connections to noria",
    attempts: 1,
  });
  expect([own.received.length, member.accepted]).toEqual([0, 0]);
  expect(pool.blames()).toEqual(['m1 proxy-loop front-proxy']);
});

test('dialer through a front proxy: CONNECT lists the norias on its way, and a reported loop blames no member', async () => {
  const heads: string[] = [];
  const answer = 'HTTP/1.1 502 Bad Gateway\r\nProxy-Status: noria; error=proxy_loop_detected\r\n\r\n';
  const front = await openMember('http', (socket) => {
    socket.once('data', (bytes) => {
      heads.push(bytes.toString('latin1'));
      socket.end(answer);
    });
  });
  const { dial, pool } = makeDialer([{ id: 'm1', at: await MEMBERS.http() }], {
    via: frontProxyAt(`http://127.0.0.1:${front.port}`),
    guard: { mark: 'noria-00000000000000aa', ownAddresses: () => [] },
  });
  const failure = failureOf(await dial('target.example:443', { marks: ['noria-00000000000000bb'] }));
  expect(failure).toMatchObject({ code: 'proxy-loop', attempts: 1 });
  expect(heads[0]).toContain('\r\nVia: 1.1 noria-00000000000000bb, 1.1 noria-00000000000000aa\r\n');
  expect(pool.blames()).toEqual(['m1 proxy-loop front-proxy']);
});

test.each([-1, 70_000, 0.5])(
  'dialer: an attempt survives a member whose port %s Node rejects, with and without a front proxy',
  async (port) => {
    const good = { id: 'good', at: await MEMBERS.http() };
    const program = FRONT_PROXIES.find(({ command }) => command === undefined);
    for (const via of [undefined, frontProxyAt((await program?.open()) ?? '')]) {
      for (const protocol of ['http', 'https', 'socks5'] as const) {
        const bad = { id: 'bad', at: { host: '127.0.0.1', port, protocol } };
        const { dial, pool, networkDown } = makeDialer([bad, good], { via });
        const connection = connectionOf(await dial('target.example:443'));
        expect([connection.lease.member, pool.blames()]).toEqual(['good', ['bad member-unreachable member']]);
        expect(networkDown).toEqual([]);
      }
    }
  },
);

test('dialer through a front proxy: a tunnel through a member that speaks TLS closes when both sides have ended', async () => {
  const front = FRONT_PROXIES.find(({ command }) => command === undefined);
  const { dial } = makeDialer([{ id: 'm1', at: await MEMBERS.https() }], {
    via: frontProxyAt((await front?.open()) ?? ''),
  });
  const connection = connectionOf(await dial('target.example:443'));
  await echo(connection, 'hello');
  const closed = once(connection.socket, 'close');
  connection.socket.resume().end();
  await closed;
  expect(connection.socket.readableEnded).toBe(true);
});
