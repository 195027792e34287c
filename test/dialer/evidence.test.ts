/**
 * Replays: what members do for one request after another, and what that costs each of them. Dead targets cost nothing,
 * a dead network costs nothing, and a member that works otherwise is told from one that does not.
 */
import { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { memberSockets } from '../../src/dialer/member-socket.ts';
import {
  closingManner,
  httpManner,
  type Manner,
  openMember,
  readUntil,
  refusingMember,
  silentManner,
  socks5Manner,
  type TestMember,
} from '../support/bad-members.ts';
import { collect, failureOf, makeDialer, targetOf, wayOf } from './make-dialer.ts';

const openMemberSocket = memberSockets();

const BAD_GATEWAY = 'HTTP/1.1 502 Bad Gateway\r\n\r\n';

/** Works, but for the host `dead.example`, for which it does this. */
function worksBut(manner: Manner): Manner {
  return async (socket, hear) => {
    const head = await readUntil(socket, '\r\n\r\n');
    hear(head);
    if (head.toString().includes('dead.example')) {
      socket.unshift(head);
      await manner(socket, hear);
    } else {
      socket.write('HTTP/1.1 200 OK\r\n\r\n');
      socket.pipe(socket);
    }
  };
}

async function members(count: number, manner: Manner) {
  return Promise.all(
    Array.from({ length: count }, async (_, index) => ({
      id: `m${index + 1}`,
      at: await openMember('http', manner),
    })),
  );
}

test('evidence: a target that two members call unreachable costs neither anything, and a third is not asked', async () => {
  const { dial, pool } = makeDialer(await members(3, httpManner(BAD_GATEWAY)));
  const failure = failureOf(await dial('dead.example:443'));
  expect(failure).toMatchObject({ code: 'target-unreachable', attempts: 2, targetRefused: false });
  expect(failure.reason).toMatch(/^2 members tried in \d+ ms: 2 could not reach the target$/);
  expect(pool.verdicts()).toEqual(['m1 target-doubted target', 'm2 target-doubted target']);
});

test('evidence: a target that refuses is told as such', async () => {
  const at = await openMember('socks5', socks5Manner({ reply: 5 }));
  const { dial } = makeDialer([
    { id: 'm1', at },
    { id: 'm2', at },
  ]);
  expect(failureOf(await dial('dead.example:443'))).toMatchObject({
    code: 'target-unreachable',
    targetRefused: true,
  });
});

test('evidence: one member that met the refusal is enough to tell it, whatever the other could say', async () => {
  const vague = await openMember('http', httpManner(BAD_GATEWAY));
  const unreachable = await openMember('socks5', socks5Manner({ reply: 4 }));
  const refused = await openMember('socks5', socks5Manner({ reply: 5 }));
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

test('evidence: where a target was reached a moment ago, members that deny it in a row are not believed', async () => {
  const good = await openMember('http', httpManner());
  const { dial, pool } = makeDialer([{ id: 'good', at: good }]);
  wayOf(await dial('target.example:443'));
  pool.members = [...(await members(4, httpManner(BAD_GATEWAY))), { id: 'good', at: good }];
  expect(wayOf(await dial('target.example:443'))).toMatchObject({ member: 'good', attempts: 5 });
  expect(pool.verdicts()).toEqual(['m1', 'm2', 'm3', 'm4'].map((id) => `${id} target-doubted member`));
});

test('evidence: a second opinion is not waited for as long as a member is', async () => {
  const { dial, pool } = makeDialer(await members(1, httpManner(BAD_GATEWAY)), {
    waitForMemberMs: 60_000,
    deadlineMs: 400,
  });
  expect(failureOf(await dial('dead.example:443')).code).toBe('deadline');
  expect(pool.requests.map(({ waitMs }) => waitMs <= 2_000)).toEqual([true, true]);
  expect(pool.verdicts()).toEqual(['m1 target-doubted nobody']);
});

test('evidence: one member alone that calls a target unreachable is not blamed, and the client is told', async () => {
  const { dial, pool } = makeDialer(await members(1, httpManner(BAD_GATEWAY)), { waitForMemberMs: 0 });
  expect(failureOf(await dial('dead.example:443')).code).toBe('target-unreachable');
  expect(pool.verdicts()).toEqual(['m1 target-doubted nobody']);
});

test.each([
  ['are silent for it', silentManner],
  ['hang up on it', closingManner],
  ['refuse it', httpManner('HTTP/1.1 403 Forbidden\r\n\r\n')],
])('evidence: members that work otherwise and %s show that it is the target', async (_, manner) => {
  const { dial, pool } = makeDialer(await members(3, worksBut(manner)), {
    attemptTimeoutMs: 500,
    hedgeAfter: 'off', // on a busy machine a hedge would win what is to prove a member
    waitForMemberMs: 0,
  });
  for (let time = 0; time < 3; time += 1) wayOf(await dial('fine.example:443')).end({ cut: false });
  expect(failureOf(await dial('dead.example:443')).code).toBe('members-failed');
  expect(pool.verdicts().map((verdict) => verdict.split(' ').at(-1))).toEqual(['target', 'target', 'target']);
});

test('evidence: members that never worked and hang up are at fault, so that the pool can be replaced', async () => {
  const { dial, pool } = makeDialer(await members(3, closingManner), { waitForMemberMs: 0 });
  expect(failureOf(await dial('dead.example:443')).code).toBe('members-failed');
  expect(pool.verdicts()).toEqual(['m1', 'm2', 'm3'].map((id) => `${id} member-closed member`));
});

test('evidence: a member that calls every target unreachable is found out by itself', async () => {
  const { dial, pool } = makeDialer(await members(1, httpManner(BAD_GATEWAY)), { waitForMemberMs: 0 });
  for (let index = 0; index < 10; index += 1) await dial(`site${index}.example:443`);
  const blames = pool.verdicts().map((verdict) => verdict.split(' ').at(-1));
  expect(blames).toEqual([...new Array<string>(8).fill('nobody'), 'member', 'nobody']);
});

test('evidence: connections to many members that nobody answers are the network, until one answers', async () => {
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
  expect(pool.verdicts().map((verdict) => verdict.split(' ').at(-1))).toEqual([
    'member',
    'member',
    'member',
    'network',
    'network',
    'network',
  ]);
  pool.members = [{ id: 'good', at: await openMember('http', httpManner()) }];
  wayOf(await dial('target.example:443'));
  expect([networkDown, judged]).toEqual([
    [true, false],
    [{ down: true }, { down: false }],
  ]);
});

test('evidence: a refused connection is an answer: the network is up', async () => {
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
  expect([networkDown, pool.verdicts().filter((verdict) => verdict.endsWith('network'))]).toEqual([[], []]);
});

test('evidence: a probe that is answered shows that the network is up, one that is not shows nothing', async () => {
  const gone = { protocol: 'http', host: '192.0.2.1', port: 1 } as const;
  const lost = Array.from({ length: 6 }, (_, index) => ({ id: `m${index + 1}`, at: gone }));
  const { dial, dialer, pool, networkDown } = makeDialer(lost, {
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
    const lease = { id: 99, member, source: 'city', ...at, waitedMs: 0, doubtful: true };
    return dialer.attempt({ lease, target: targetOf('probe.invalid:443'), use: 'tunnel', timeoutMs: 1_000 })
      .result;
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

test('evidence: members that refuse and one that doubts are not the target’s fault towards the client', async () => {
  const members = [
    { id: 'm1', at: await openMember('http', httpManner(BAD_GATEWAY)) },
    { id: 'm2', at: await openMember('http', httpManner('HTTP/1.1 403 No\r\n\r\n')) },
  ];
  const { dial } = makeDialer(members, { waitForMemberMs: 0 });
  const failure = failureOf(await dial('dead.example:443'));
  expect([failure.code, failure.targetRefused]).toEqual(['members-failed', undefined]);
});

test('evidence: while the service answers, members that nobody answers at are at fault', async () => {
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
  expect([networkDown, new Set(pool.verdicts().map((verdict) => verdict.split(' ').at(-1)))]).toEqual([
    [],
    new Set(['member']),
  ]);
});

test('evidence: running out of sockets here is nobody else’s fault', async () => {
  const at = { protocol: 'http', host: '192.0.2.1', port: 1 } as const;
  const { dial, pool, networkDown } = makeDialer([{ id: 'm1', at }], {
    waitForMemberMs: 0,
    openSocket: () => {
      const socket = new Socket().on('error', () => {});
      return socket.destroy(Object.assign(new Error('too many'), { code: 'EMFILE' }));
    },
  });
  await dial('target.example:443');
  expect([pool.verdicts(), networkDown]).toEqual([['m1 member-unreachable network'], []]);
});
