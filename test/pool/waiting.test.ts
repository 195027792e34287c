import { expect, test } from 'vitest';
import {
  isLease,
  type Lease,
  type LeaseRefusal,
  type LeaseRequest,
  type RoutingOptions,
} from '../../src/pool/lease.ts';
import {
  close,
  LateClock,
  lend,
  offer,
  openKit,
  type PoolKit,
  pourMembers,
  refusal,
  request,
} from './pool-kit.ts';

interface Asked {
  readonly request: LeaseRequest;
  /** Undefined while it waits. */
  answer: Lease | LeaseRefusal | undefined;
}

/** A client that has to wait. */
function wait(kit: PoolKit, routing: RoutingOptions = {}, changes: Partial<LeaseRequest> = {}): Asked {
  const asked: Asked = { request: request(routing, { waitMs: 15_000, ...changes }), answer: undefined };
  const answer = kit.pool.acquire(asked.request);
  if (!(answer instanceof Promise)) throw new Error('it need not wait');
  void answer.then((late) => {
    asked.answer = late;
  });
  return asked;
}

/** Lets promises that are settled tell so. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
}

function served(asked: readonly Asked[]): boolean[] {
  return asked.map(({ answer }) => answer !== undefined && isLease(answer));
}

test('waiting: each has its own deadline, and one timer serves all of them', async () => {
  const outlook = () => ({
    retryAfterMs: 4_000,
    sources: [{ name: 'city', state: 'waiting', reason: 'the pace', nextDrawMs: 4_000 }],
  });
  const kit = openKit({ outlook });
  const early = wait(kit, {}, { waitMs: 1_000 });
  const late = wait(kit, {}, { waitMs: 2_000 });
  expect(kit.clock.armedCount).toBe(1);
  kit.clock.advance(1_000);
  await settle();
  expect(early.answer).toEqual({ refused: 'pool-empty', reason: expect.any(String), ...outlook() });
  expect(late.answer).toBeUndefined();
  kit.clock.advance(1_000);
  await settle();
  expect(late.answer).toMatchObject({
    refused: 'pool-empty',
    reason: expect.stringMatching(/^Waited [\d.]+ s for a member that fits the routing options\.$/),
  });
  expect(kit.events('client.waited')).toEqual([
    { ms: 1_000, outcome: 'refused' },
    { ms: 2_000, outcome: 'refused' },
  ]);
});

test('waiting: who came first is served first, one for each tunnel that ends', async () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  pourMembers(kit, 1);
  const tunnel = lend(kit);
  const queue = [wait(kit), wait(kit), wait(kit)];
  close(kit, tunnel);
  await settle();
  expect(served(queue)).toEqual([true, false, false]);
  const [first] = queue;
  if (first?.answer === undefined || !isLease(first.answer)) throw new Error('not served');
  close(kit, first.answer);
  await settle();
  expect(served(queue)).toEqual([true, true, false]);
});

test('waiting: order holds across different wishes', async () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  pourMembers(kit, 1);
  const tunnel = lend(kit);
  const queue = [wait(kit), wait(kit, { protocol: 'http' }), wait(kit)];
  close(kit, tunnel);
  await settle();
  expect(served(queue)).toEqual([true, false, false]);
  for (const [index, expected] of [[0, [true, true, false]] as const, [1, [true, true, true]] as const]) {
    const answer = queue[index]?.answer;
    if (answer === undefined || !isLease(answer)) throw new Error('not served');
    close(kit, answer);
    await settle();
    expect(served(queue)).toEqual(expected);
  }
});

test('waiting: those whose wish nobody can meet hold up no one', async () => {
  const kit = openKit();
  const hopeless = [
    wait(kit, { protocol: 'socks5' }),
    wait(kit, { location: '上海' }),
    wait(kit, { minLifeMs: 3_600_000 }),
  ];
  const plain = wait(kit);
  kit.pool.addMembers('city', [offer(kit, 1, 180_000, { location: '广东 电信' })]);
  await settle();
  expect(served([...hopeless, plain])).toEqual([false, false, false, true]);
  kit.pool.addMembers('city', [offer(kit, 2, 180_000, { location: '上海 联通' })]);
  await settle();
  expect(served(hopeless)).toEqual([false, true, false]);
});

test('waiting: members to avoid are not given to the one that avoids them, and are to the next', async () => {
  const kit = openKit();
  pourMembers(kit, 1);
  const only = lend(kit);
  const picky = wait(kit, {}, { avoid: [only.member] });
  expect(lend(kit).member).toBe(only.member);
  kit.pool.addMembers('city', [offer(kit, 0, 300_000)]);
  await settle();
  expect(picky.answer).toBeUndefined();
  kit.pool.addMembers('city', [offer(kit, 1)]);
  await settle();
  expect(served([picky])).toEqual([true]);
});

test('waiting: a client that leaves is told so, once', async () => {
  const kit = openKit();
  const asked = wait(kit);
  kit.pool.cancel(asked.request.id);
  kit.pool.cancel(asked.request.id);
  kit.pool.cancel(987_654);
  await settle();
  expect(asked.answer).toMatchObject({ refused: 'client-gone' });
  expect(kit.events('client.waited')).toEqual([{ ms: 0, outcome: 'gave-up' }]);
});

test('waiting: when the pool closes everyone is told', async () => {
  const kit = openKit();
  const queue = [wait(kit), wait(kit, { source: 'city' })];
  kit.pool.close();
  await settle();
  expect(queue.map(({ answer }) => answer)).toMatchObject([
    { refused: 'shutting-down' },
    { refused: 'shutting-down' },
  ]);
  expect(kit.clock.armedCount).toBe(0);
});

test('waiting: one request cannot wait twice', () => {
  const kit = openKit();
  const asked = wait(kit);
  expect(() => kit.pool.acquire(asked.request)).toThrow(TypeError);
});

test('waiting: a client that will not wait is told what the sources wait for', () => {
  const kit = openKit({ outlook: () => ({ retryAfterMs: 9_000, sources: [] }) });
  expect(refusal(kit)).toMatchObject({ refused: 'pool-empty', retryAfterMs: 9_000 });
});

test('waiting: ten thousand may, and one more than the limit may not', async () => {
  const kit = openKit({ limits: { waiting: 10_000 } });
  const queue = Array.from({ length: 10_000 }, () => wait(kit));
  expect(refusal(kit, {}, { waitMs: 15_000 }).reason).toContain('10000 clients wait');
  expect(kit.clock.armedCount).toBe(1);
  expect(kit.events('demand.rose').length).toBeLessThan(20);
  pourMembers(kit, 3);
  await settle();
  expect(served(queue)).not.toContain(false);
  expect(kit.pool.waitingCount).toBe(0);
});

test('waiting: with spacing a client is served when the first member may be used for its host again', async () => {
  const kit = openKit({ rotation: { perHostSpacingMs: 5_000 } });
  pourMembers(kit, 2);
  const first = lend(kit);
  kit.clock.advance(1_000);
  lend(kit);
  expect(lend(kit, {}, { targetHost: 'other.example' }).member).toBe(first.member);
  const asked = wait(kit);
  kit.clock.advance(3_999);
  await settle();
  expect(asked.answer).toBeUndefined();
  kit.clock.advance(1);
  await settle();
  expect(asked.answer).toMatchObject({ member: first.member, waitedMs: 4_000 });
});

test('waiting: with spacing those behind are served as further moments come', async () => {
  const kit = openKit({ rotation: { perHostSpacingMs: 5_000 } });
  pourMembers(kit, 1);
  lend(kit);
  const queue = [wait(kit), wait(kit)];
  kit.clock.advance(5_000);
  await settle();
  expect(served(queue)).toEqual([true, false]);
  kit.clock.advance(5_000);
  await settle();
  expect(served(queue)).toEqual([true, true]);
});

test('waiting: when timers are late nobody who comes meanwhile is served before those who wait', async () => {
  const clock = new LateClock();
  const kit = openKit({ clock, rotation: { perHostSpacingMs: 5_000 } });
  pourMembers(kit, 1);
  lend(kit);
  const asked = wait(kit);
  clock.lateMs = 6_000;
  expect(refusal(kit).refused).toBe('pool-empty');
  await settle();
  expect(served([asked])).toEqual([true]);
});

test('waiting: a source that may hold no more lets one in when enough of its tunnels have ended', async () => {
  const kit = openKit();
  pourMembers(kit, 4);
  const tunnels = Array.from({ length: 4 }, () => lend(kit));
  kit.pool.limitTunnels('city', 0.5);
  const asked = wait(kit);
  const seen: boolean[] = [];
  for (const tunnel of tunnels.slice(0, 3)) {
    close(kit, tunnel);
    await settle();
    seen.push(...served([asked]));
  }
  expect(seen, 'with 3, 2 and 1 open, and 2 allowed').toEqual([false, false, true]);
});

test('waiting: a limit halves again while it holds, and is gone when it is lifted', async () => {
  const kit = openKit();
  pourMembers(kit, 8);
  const tunnels = Array.from({ length: 8 }, () => lend(kit));
  kit.pool.limitTunnels('city', 0.5);
  for (const tunnel of tunnels.splice(0, 5)) close(kit, tunnel);
  lend(kit);
  expect(refusal(kit).refused, 'four are open').toBe('pool-empty');
  for (const tunnel of tunnels) close(kit, tunnel);
  kit.pool.limitTunnels('city', 0.5);
  lend(kit);
  const asked = wait(kit);
  expect(kit.pool.counts(), 'two are open').toMatchObject([{ openTunnels: 2 }]);
  kit.pool.unlimitTunnels('city');
  await settle();
  expect(served([asked])).toEqual([true]);
});

test('waiting: a limit is never less than one tunnel, nor more than it was', () => {
  const kit = openKit();
  pourMembers(kit, 1);
  kit.pool.limitTunnels('city', 0.5);
  const only = lend(kit);
  expect(refusal(kit).refused).toBe('pool-empty');
  kit.pool.limitTunnels('city', 0.5);
  close(kit, only);
  lend(kit);
  expect(refusal(kit).refused).toBe('pool-empty');
});

test('waiting: a ban that is taken back lets in who waited because of it', async () => {
  const kit = openKit();
  pourMembers(kit, 1);
  const { member } = lend(kit);
  kit.pool.ban({ of: { member }, host: 'example.com', verdict: 'banned' });
  const asked = wait(kit);
  kit.pool.ban({ of: { member }, host: 'example.com', verdict: 'ok' });
  await settle();
  expect(served([asked])).toEqual([true]);
});

test('waiting: when a source is unblocked those who wait are served', async () => {
  const kit = openKit({
    outlook: () => ({ sources: [{ name: 'city', state: 'ready', reason: 'all is well' }] }),
  });
  pourMembers(kit, 2);
  kit.pool.blockSource('city', 'its members refuse the credentials');
  expect(refusal(kit).sources).toEqual([
    { name: 'city', state: 'ready', reason: 'its members refuse the credentials' },
  ]);
  expect(kit.pool.counts()).toMatchObject([{ ready: 2, blocked: 'its members refuse the credentials' }]);
  const asked = wait(kit);
  kit.pool.blockSource('city', undefined);
  await settle();
  expect(served([asked])).toEqual([true]);
  expect(kit.pool.counts()).toMatchObject([{ ready: 2, blocked: null }]);
});
