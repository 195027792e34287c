/**
 * Blame over real sockets, for sequences of dials: unreachable targets, a network that is down, and members that work
 * for other targets.
 */
import { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { memberSockets } from '../../src/dialer/member-socket.ts';
import {
  type Behavior,
  closingBehavior,
  httpBehavior,
  openMember,
  readUntil,
  refusingMember,
  silentBehavior,
  socks5Behavior,
  type TestMember,
} from '../support/bad-members.ts';
import { LoopClock } from '../support/loop-clock.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { collect, connectionOf, failureOf, makeDialer, targetOf } from './make-dialer.ts';
import { copies, makeDialerWithPool } from './real-pool.ts';

const openMemberSocket = memberSockets();

const BAD_GATEWAY = 'HTTP/1.1 502 Bad Gateway\r\n\r\n';

/** Accepts every target except `dead.example`, to which it answers with this behavior. */
function worksBut(behavior: Behavior): Behavior {
  return async (socket, record) => {
    const head = await readUntil(socket, '\r\n\r\n');
    record(head);
    if (head.toString().includes('dead.example')) {
      socket.unshift(head);
      await behavior(socket, record);
    } else {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      socket.pipe(socket);
    }
  };
}

async function members(count: number, behavior: Behavior) {
  return Promise.all(
    Array.from({ length: count }, async (_, index) => ({
      id: `m${index + 1}`,
      at: await openMember('http', behavior),
    })),
  );
}

test('blame: two members that report a target as unreachable are not blamed, and no third is tried', async () => {
  const { dial, pool } = makeDialer(await members(3, worksBut(httpBehavior(BAD_GATEWAY))));
  connectionOf(await dial('fine.example:443'));
  const failure = failureOf(await dial('dead.example:443'));
  expect(failure).toMatchObject({ code: 'target-unreachable', attempts: 2, targetRefused: false });
  expect(failure.reason).toMatch(/^2 members tried in \d+ ms: 2 could not reach the target$/);
  expect(pool.blames()).toEqual(['m2 target-doubted target', 'm3 target-doubted target']);
});

test('blame: a refused connection at the target is reported as such', async () => {
  const at = await openMember('socks5', socks5Behavior({ reply: 5 }));
  const { dial } = makeDialer([
    { id: 'm1', at },
    { id: 'm2', at },
  ]);
  expect(failureOf(await dial('dead.example:443'))).toMatchObject({
    code: 'target-unreachable',
    targetRefused: true,
  });
});

test('blame: one report of a refused connection is enough, in any order', async () => {
  const vague = await openMember('http', httpBehavior(BAD_GATEWAY));
  const unreachable = await openMember('socks5', socks5Behavior({ reply: 4 }));
  const refused = await openMember('socks5', socks5Behavior({ reply: 5 }));
  for (const other of [vague, unreachable]) {
    for (const pair of [
      [refused, other],
      [other, refused],
    ]) {
      const { dial } = makeDialer(pair.map((at, index) => ({ id: `m${index + 1}`, at })));
      expect(failureOf(await dial('dead.example:443'))).toMatchObject({ attempts: 2, targetRefused: true });
    }
  }
});

test('blame: a target that was reached recently needs five reports to be unreachable', async () => {
  const good = await openMember('http', httpBehavior());
  const { dial, pool } = makeDialer([{ id: 'good', at: good }]);
  connectionOf(await dial('target.example:443'));
  pool.members = [...(await members(4, httpBehavior(BAD_GATEWAY))), { id: 'good', at: good }];
  expect(connectionOf(await dial('target.example:443'))).toMatchObject({
    lease: { member: 'good' },
    attempts: 5,
  });
  expect(pool.blames()).toEqual(
    ['m1', 'm2', 'm3', 'm4'].map((id) => `${id} target-doubted member-for-target`),
  );
});

test('blame: members that fail for a target which others reach fail one dial each, and no client notices', async () => {
  const worked = copies(await openMember('http', worksBut(closingBehavior)), 8);
  const good = copies(await openMember('http', httpBehavior()), 4, 100);
  const { dial, bus } = makeDialerWithPool([...worked, ...good]);
  const attempted = collect(bus, 'dial.attempted');
  for (let time = 0; time < 12; time += 1) connectionOf(await dial('fine.example:443')).end({ cut: false });
  // One success shows noria that the target works.
  let reached = false;
  while (!reached) reached = (await dial('dead.example:443')).ok;
  attempted.length = 0;
  for (let time = 0; time < 24; time += 1) connectionOf(await dial('dead.example:443')).end({ cut: false });
  const failed = attempted.filter(({ outcome }) => outcome !== 'accepted');
  expect(failed.length).toBeLessThanOrEqual(8);
});

test('blame: a member to avoid for a target is better than none', async () => {
  const { dial, pool } = makeDialer(await members(1, worksBut(closingBehavior)), { waitForMemberMs: 0 });
  connectionOf(await dial('fine.example:443'));
  const good = { id: 'good', at: await openMember('http', httpBehavior()) };
  pool.members = [...pool.members, good];
  connectionOf(await dial('dead.example:443'));
  pool.members = pool.members.filter(({ id }) => id !== 'good');
  expect(failureOf(await dial('dead.example:443'))).toMatchObject({ attempts: 1 });
});

test('blame: the wait for a second report is at most two seconds', async () => {
  const { dial, pool } = makeDialer(await members(1, httpBehavior(BAD_GATEWAY)), {
    clock: new LoopClock(),
    waitForMemberMs: 60_000,
    deadlineMs: 1_900,
  });
  expect(failureOf(await dial('dead.example:443')).code).toBe('deadline');
  expect(pool.requests.map(({ waitMs }) => waitMs <= 2_000)).toEqual([true, true]);
  expect(pool.blames()).toEqual(['m1 target-doubted unclear']);
});

test('blame: a single report that the target is unreachable is unclear and reaches the client', async () => {
  const { dial, pool } = makeDialer(await members(1, httpBehavior(BAD_GATEWAY)), { waitForMemberMs: 0 });
  expect(failureOf(await dial('dead.example:443')).code).toBe('target-unreachable');
  expect(pool.blames()).toEqual(['m1 target-doubted unclear']);
});

test.each([
  ['are silent for it', silentBehavior],
  ['hang up on it', closingBehavior],
  ['refuse it', httpBehavior('HTTP/1.1 403 Forbidden\r\n\r\n')],
])('blame: members that worked recently and %s mean that the target is at fault', async (_, behavior) => {
  const { dial, pool } = makeDialer(await members(3, worksBut(behavior)), {
    clock: new LoopClock(),
    attemptTimeoutMs: 4_000,
    waitForMemberMs: 0,
  });
  for (let time = 0; time < 3; time += 1) connectionOf(await dial('fine.example:443')).end({ cut: false });
  expect(failureOf(await dial('dead.example:443'))).toMatchObject({
    code: 'target-unreachable',
    attempts: 2,
  });
  expect(pool.blames().map((verdict) => verdict.split(' ').at(-1))).toEqual(['target', 'target']);
});

test('blame: while no member of the source works, failures for one target are unclear', async () => {
  for (const behavior of [closingBehavior, httpBehavior(BAD_GATEWAY)]) {
    const { dial, pool } = makeDialer(await members(3, behavior), { waitForMemberMs: 0 });
    expect(failureOf(await dial('dead.example:443')).code).toBe('target-unreachable');
    expect(new Set(pool.blames().map((verdict) => verdict.split(' ').at(-1)))).toEqual(new Set(['unclear']));
  }
});

test('blame: silent members that never worked do not show that the target is unreachable', async () => {
  const { dial } = makeDialer(await members(2, silentBehavior), {
    clock: new LoopClock(),
    attempts: 2,
    attemptTimeoutMs: 4_000,
    waitForMemberMs: 0,
  });
  expect(failureOf(await dial('dead.example:443')).code).toBe('members-failed');
});

test('blame: several members without an answer mean that the network is down, until one answers', async () => {
  const at = { protocol: 'http', host: '192.0.2.1', port: 1 } as const;
  const lost = Array.from({ length: 6 }, (_, index) => ({ id: `m${index + 1}`, at }));
  const { dial, pool, bus, networkDown } = makeDialer(lost, {
    attempts: 6,
    waitForMemberMs: 0,
    openSocket: (member, use) => {
      if (member.port !== 1) return openMemberSocket(member, use);
      const socket = new Socket().on('error', () => {});
      return socket.destroy(Object.assign(new Error('no route'), { code: 'EHOSTUNREACH' }));
    },
  });
  const judged = collect(bus, 'network.judged');
  expect(failureOf(await dial('target.example:443')).code).toBe('members-failed');
  expect(pool.blames().map((verdict) => verdict.split(' ').at(-1))).toEqual([
    'member',
    'member',
    'member',
    'network',
    'network',
    'network',
  ]);
  pool.members = [{ id: 'good', at: await openMember('http', httpBehavior()) }];
  connectionOf(await dial('target.example:443'));
  expect([networkDown, judged]).toEqual([
    [true, false],
    [{ down: true }, { down: false }],
  ]);
});

test('blame: a refused connection shows that the network is up', async () => {
  const gone = { protocol: 'http', host: '192.0.2.1', port: 1 } as const;
  const lost = Array.from({ length: 6 }, (_, index) => ({ id: `m${index + 1}`, at: gone }));
  const refusing = { id: 'refusing', at: await refusingMember() };
  const { dial, pool, networkDown } = makeDialer([...lost.slice(0, 3), refusing, ...lost.slice(3)], {
    attempts: 7,
    waitForMemberMs: 0,
    openSocket: (member, use) => {
      if (member.port !== 1) return openMemberSocket(member, use);
      const socket = new Socket().on('error', () => {});
      return socket.destroy(Object.assign(new Error('no route'), { code: 'EHOSTUNREACH' }));
    },
  });
  expect(failureOf(await dial('target.example:443')).attempts).toBe(7);
  expect([networkDown, pool.blames().filter((verdict) => verdict.endsWith('network'))]).toEqual([[], []]);
});

test('blame: a probe with an answer shows that the network is up, one without shows nothing', async () => {
  const gone = { protocol: 'http', host: '192.0.2.1', port: 1 } as const;
  const lost = Array.from({ length: 6 }, (_, index) => ({ id: `m${index + 1}`, at: gone }));
  const { dial, dialer, pool, networkDown } = makeDialer(lost, {
    clock: new LoopClock(), // an answer counts only for the attempts that run at that moment
    attempts: 3,
    waitForMemberMs: 0,
    openSocket: (member, use) => {
      if (member.port !== 1) return openMemberSocket(member, use);
      const socket = new Socket().on('error', () => {});
      return socket.destroy(Object.assign(new Error('no route'), { code: 'EHOSTUNREACH' }));
    },
  });
  pool.members = lost.slice(0, 3);
  await dial('target.example:443');
  const probe = (at: Pick<TestMember, 'protocol' | 'host' | 'port'>, member: string) => {
    const lease = { id: 99, member, source: 'city', ...at, exit: at.host, waitedMs: 0, doubtful: true };
    const task = { lease, target: targetOf('probe.invalid:443'), use: 'tunnel', timeoutMs: 1_000 } as const;
    return dialer.attempt(task, new AbortController().signal);
  };
  for (const { id, at } of lost) await probe(at, `probed-${id}`);
  expect(networkDown).toEqual([]);
  await probe(await refusingMember(), 'refusing');
  pool.members = lost.slice(3);
  await dial('target.example:443');
  expect(networkDown).toEqual([]);
  await dial('target.example:443', { avoid: ['m4', 'm5'] });
  pool.members = lost.slice(0, 1);
  await dial('target.example:443');
  expect(networkDown).toEqual([true]);
});

test('blame: one refusal among reports of an unreachable target makes it members-failed', async () => {
  const members = [
    { id: 'm1', at: await openMember('http', httpBehavior(BAD_GATEWAY)) },
    { id: 'm2', at: await openMember('http', httpBehavior('HTTP/1.1 403 No\r\n\r\n')) },
  ];
  const { dial } = makeDialer(members, { waitForMemberMs: 0 });
  const failure = failureOf(await dial('dead.example:443'));
  expect([failure.code, failure.targetRefused]).toEqual(['members-failed', undefined]);
});

test('blame: members without an answer are at fault while the service answers', async () => {
  const at = { protocol: 'http', host: '192.0.2.1', port: 1 } as const;
  const { dial, pool, bus, networkDown } = makeDialer(
    Array.from({ length: 8 }, (_, index) => ({ id: `m${index + 1}`, at })),
    {
      attempts: 4,
      waitForMemberMs: 0,
      openSocket: () => {
        const socket = new Socket().on('error', () => {});
        return socket.destroy(Object.assign(new Error('no route'), { code: 'EHOSTUNREACH' }));
      },
    },
  );
  const drawn = {
    source: 'city',
    asked: 1,
    received: 1,
    joined: 1,
    renewed: 0,
    rejected: 0,
    forbidden: 0,
    ms: 1,
  };
  bus.on('dial.attempted', () => bus.emit('draw.done', { ...drawn, code: '10001' }));
  await dial('target.example:443');
  expect([networkDown, new Set(pool.blames().map((verdict) => verdict.split(' ').at(-1)))]).toEqual([
    [],
    new Set(['member']),
  ]);
});

test("blame: a lack of local sockets is not the member's fault", async () => {
  const at = { protocol: 'http', host: '192.0.2.1', port: 1 } as const;
  const { dial, pool, networkDown } = makeDialer([{ id: 'm1', at }], {
    waitForMemberMs: 0,
    openSocket: () => {
      const socket = new Socket().on('error', () => {});
      return socket.destroy(Object.assign(new Error('too many'), { code: 'EMFILE' }));
    },
  });
  await dial('target.example:443');
  expect([pool.blames(), networkDown]).toEqual([['m1 member-unreachable network'], []]);
});

test('blame: an exit is banned after two resets of a host that answers others, kept connections do not count', async () => {
  const { port } = await openMember('http', httpBehavior());
  const [a, b] = ['127.0.0.1', '127.0.0.2'].map((host) => ({
    id: host,
    at: { protocol: 'http', host, port } as const,
  }));
  if (a === undefined || b === undefined) throw new Error('no members');
  const clock = ManualClock.dayOld();
  const { dial, pool } = makeDialer([], {
    clock,
    openSocket: (member, use) => openMemberSocket({ ...member, host: '127.0.0.1' }, use),
  });
  const through = async (member: typeof a, use: 'tunnel' | 'forward' = 'tunnel') => {
    clock.advance(1);
    pool.members = [member];
    return connectionOf(await dial('shop.example:80', { use }));
  };
  const answer = async (member: typeof a) => (await through(member)).end({ cut: false, answered: true });
  for (const cut of [true, 'after-tls'] as const) {
    await answer(a);
    (await through(a)).end({ cut });
    (await through(a)).end({ cut });
    expect(pool.bans, 'no other exit got an answer since').toEqual([]);
    await answer(b);
    (await through(a)).end({ cut });
    expect(pool.bans.splice(0)).toEqual(['shop.example 127.0.0.1 reset']);
  }
  pool.members = [a, b];
  connectionOf(await dial('shop.example:80')).end({ cut: false });
  expect(pool.requests.at(-1)?.avoid, 'the next request prefers another exit').toEqual(['127.0.0.1']);
  for (let round = 0; round < 3; round += 1) {
    (await through(a, 'forward')).end({ cut: false, answered: true, keep: true });
    const kept = await through(a, 'forward');
    expect(kept.reused).toBe(true);
    kept.end({ cut: true });
  }
  expect(pool.bans).toEqual([]);
});

test('blame: a request in absolute form that a member took does not show that it reached the target', async () => {
  const city = {
    auth: 'none',
    instance: '',
    neverInstance: true,
    forwardMode: 'absolute',
    handshake: 'auto',
  } as const;
  const { dial } = makeDialer(await members(4, httpBehavior(BAD_GATEWAY)), {
    sources: new Map([['city', city]]),
    waitForMemberMs: 0,
  });
  const forwarded = connectionOf(await dial('dead.example:80', { use: 'forward' }));
  expect(forwarded.forwardMode).toBe('absolute');
  forwarded.end({ cut: false });
  expect(failureOf(await dial('dead.example:80'))).toMatchObject({ code: 'target-unreachable', attempts: 2 });
  connectionOf(await dial('dead.example:80', { use: 'forward' })).end({ cut: false, answered: true });
  expect(failureOf(await dial('dead.example:80')), 'an answer shows it').toMatchObject({ attempts: 4 });
});
