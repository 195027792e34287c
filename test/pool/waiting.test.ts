import { expect, test } from 'vitest';
import {
  isLease,
  type Lease,
  type LeaseRefusal,
  type LeaseRequest,
  type RoutingOptions,
} from '../../src/pool/lease.ts';
import { CITY } from '../support/pool-settings.ts';
import {
  acquire,
  addMembers,
  close,
  drawn,
  LateClock,
  openKit,
  type PoolKit,
  refusal,
  request,
} from './pool-kit.ts';

interface Waiting {
  readonly request: LeaseRequest;
  /** Undefined until the pool answers. */
  answer: Lease | LeaseRefusal | undefined;
}

/** Sends a request that has to wait. */
function wait(kit: PoolKit, routing: RoutingOptions = {}, changes: Partial<LeaseRequest> = {}): Waiting {
  const client: Waiting = { request: request(routing, { waitMs: 15_000, ...changes }), answer: undefined };
  const answer = kit.pool.acquire(client.request);
  if (!(answer instanceof Promise)) throw new Error('the request does not wait');
  void answer.then((late) => {
    client.answer = late;
  });
  return client;
}

/** Runs the callbacks of settled promises. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 5; turn += 1) await Promise.resolve();
}

function served(client: readonly Waiting[]): boolean[] {
  return client.map(({ answer }) => answer !== undefined && isLease(answer));
}

test('waiting: each client has its own deadline, and all share one timer', async () => {
  const outlook = { name: 'city', state: 'waiting', reason: 'the pace', nextDrawMs: 3_800 };
  const kit = openKit({ forecasts: () => [{ ...outlook, nextMemberMs: 4_000, suspendedMs: 0 }] });
  const early = wait(kit, {}, { waitMs: 1_000 });
  const late = wait(kit, {}, { waitMs: 2_000 });
  expect(kit.clock.armedCount).toBe(1);
  kit.clock.advance(1_000);
  await settle();
  expect(early.answer).toEqual({
    code: 'pool-empty',
    reason: expect.any(String),
    retryAfterMs: 4_000,
    sources: [outlook],
  });
  expect(late.answer).toBeUndefined();
  kit.clock.advance(1_000);
  await settle();
  expect(late.answer).toMatchObject({
    code: 'pool-empty',
    reason: expect.stringMatching(/^Waited [\d.]+ s for a member that can serve this request\.$/),
  });
  expect(kit.events('client.waited')).toEqual([
    { ms: 1_000, outcome: 'refused' },
    { ms: 2_000, outcome: 'refused' },
  ]);
});

test('waiting: clients are served in order of arrival, one for each tunnel that ends', async () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  addMembers(kit, 1);
  const tunnel = acquire(kit);
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

test('waiting: the order of arrival applies across different filters', async () => {
  const kit = openKit({ rotation: { maxTunnelsPerMember: 1 } });
  addMembers(kit, 1);
  const tunnel = acquire(kit);
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

test('waiting: clients that no member fits do not block others', async () => {
  const kit = openKit();
  const hopeless = [
    wait(kit, { protocol: 'socks5' }),
    wait(kit, { location: '上海' }),
    wait(kit, { minLifeMs: 3_600_000 }),
  ];
  const plain = wait(kit);
  kit.pool.addMembers('city', [drawn(kit, 1, 180_000, { location: '广东 电信' })]);
  await settle();
  expect(served([...hopeless, plain])).toEqual([false, false, false, true]);
  kit.pool.addMembers('city', [drawn(kit, 2, 180_000, { location: '上海 联通' })]);
  await settle();
  expect(served(hopeless)).toEqual([false, true, false]);
});

test('waiting: a member that one client avoids goes to the next client', async () => {
  const kit = openKit();
  addMembers(kit, 1);
  const only = acquire(kit);
  const picky = wait(kit, {}, { avoid: [only.member] });
  expect(acquire(kit).member).toBe(only.member);
  kit.pool.addMembers('city', [drawn(kit, 0, 300_000)]);
  await settle();
  expect(picky.answer).toBeUndefined();
  kit.pool.addMembers('city', [drawn(kit, 1)]);
  await settle();
  expect(served([picky])).toEqual([true]);
});

test('waiting: a cancelled request is answered once', async () => {
  const kit = openKit();
  const client = wait(kit);
  kit.pool.cancel(client.request.id);
  kit.pool.cancel(client.request.id);
  kit.pool.cancel(987_654);
  await settle();
  expect(client.answer).toMatchObject({ code: 'client-gone' });
  expect(kit.events('client.waited')).toEqual([{ ms: 0, outcome: 'gave-up' }]);
});

test('waiting: closing the pool refuses every client', async () => {
  const kit = openKit();
  const queue = [wait(kit), wait(kit, { source: 'city' })];
  kit.pool.close();
  await settle();
  expect(queue.map(({ answer }) => answer)).toMatchObject([
    { code: 'shutting-down' },
    { code: 'shutting-down' },
  ]);
  expect(kit.clock.armedCount).toBe(0);
});

test('waiting: a request cannot wait twice', () => {
  const kit = openKit();
  const client = wait(kit);
  expect(() => kit.pool.acquire(client.request)).toThrow(TypeError);
});

test('waiting: ten thousand clients may wait, but none beyond the limit', async () => {
  const kit = openKit({ limits: { waiting: 10_000 } });
  const queue = Array.from({ length: 10_000 }, () => wait(kit));
  expect(refusal(kit, {}, { waitMs: 15_000 }).reason).toContain('10000 other clients');
  expect(kit.clock.armedCount).toBe(1);
  expect(kit.events('demand.rose').length).toBeLessThan(20);
  addMembers(kit, 3);
  await settle();
  expect(served(queue)).not.toContain(false);
  expect(kit.pool.waitingCount).toBe(0);
});

test('waiting: with spacing, a client is served when the first member is free for its host again', async () => {
  const kit = openKit({ rotation: { perHostSpacingMs: 5_000 } });
  addMembers(kit, 2);
  const first = acquire(kit);
  kit.clock.advance(1_000);
  acquire(kit);
  expect(acquire(kit, {}, { targetHost: 'other.example' }).member).toBe(first.member);
  const client = wait(kit);
  kit.clock.advance(3_999);
  await settle();
  expect(client.answer).toBeUndefined();
  kit.clock.advance(1);
  await settle();
  expect(client.answer).toMatchObject({ member: first.member, waitedMs: 4_000 });
});

test('waiting: with spacing, clients behind are served one interval later', async () => {
  const kit = openKit({ rotation: { perHostSpacingMs: 5_000 } });
  addMembers(kit, 1);
  acquire(kit);
  const queue = [wait(kit), wait(kit)];
  kit.clock.advance(5_000);
  await settle();
  expect(served(queue)).toEqual([true, false]);
  kit.clock.advance(5_000);
  await settle();
  expect(served(queue)).toEqual([true, true]);
});

test('waiting: a new client never overtakes waiting ones, even when the timer is late', async () => {
  const clock = new LateClock();
  const kit = openKit({ clock, rotation: { perHostSpacingMs: 5_000 } });
  addMembers(kit, 1);
  acquire(kit);
  const client = wait(kit);
  clock.lateMs = 6_000;
  expect(refusal(kit).code).toBe('pool-empty');
  await settle();
  expect(served([client])).toEqual([true]);
});

test('waiting: a source at its limit serves a client when enough of its tunnels have ended', async () => {
  const kit = openKit();
  addMembers(kit, 4);
  const tunnels = Array.from({ length: 4 }, () => acquire(kit));
  kit.pool.limitTunnels('city', 0.5);
  const client = wait(kit);
  const seen: boolean[] = [];
  for (const tunnel of tunnels.slice(0, 3)) {
    close(kit, tunnel);
    await settle();
    seen.push(...served([client]));
  }
  expect(seen, 'with 3, 2 and 1 open, and 2 allowed').toEqual([false, false, true]);
});

test('waiting: a limit is halved again while it applies, and can be lifted', async () => {
  const kit = openKit();
  addMembers(kit, 8);
  const tunnels = Array.from({ length: 8 }, () => acquire(kit));
  kit.pool.limitTunnels('city', 0.5);
  for (const tunnel of tunnels.splice(0, 5)) close(kit, tunnel);
  acquire(kit);
  expect(refusal(kit).code, 'four are open').toBe('pool-empty');
  for (const tunnel of tunnels) close(kit, tunnel);
  kit.pool.limitTunnels('city', 0.5);
  acquire(kit);
  const client = wait(kit);
  expect(kit.pool.counts(), 'two are open').toMatchObject([{ openTunnels: 2 }]);
  kit.pool.unlimitTunnels('city');
  await settle();
  expect(served([client])).toEqual([true]);
});

test('waiting: a limit allows at least one tunnel', () => {
  const kit = openKit();
  addMembers(kit, 1);
  kit.pool.limitTunnels('city', 0.5);
  const only = acquire(kit);
  expect(refusal(kit).code).toBe('pool-empty');
  kit.pool.limitTunnels('city', 0.5);
  close(kit, only);
  acquire(kit);
  expect(refusal(kit).code).toBe('pool-empty');
});

test('waiting: lifting a ban serves the client that waited because of it', async () => {
  const kit = openKit();
  addMembers(kit, 1);
  const { member } = acquire(kit);
  kit.pool.ban({ holder: { member }, host: 'example.com', verdict: 'banned' });
  const client = wait(kit);
  kit.pool.ban({ holder: { member }, host: 'example.com', verdict: 'ok' });
  await settle();
  expect(served([client])).toEqual([true]);
});

test('waiting: unblocking a source serves waiting clients', async () => {
  const kit = openKit({ sources: [CITY, { ...CITY, name: 'town' }] });
  addMembers(kit, 2);
  kit.pool.blockSource('city', 'its members refuse the credentials');
  expect(kit.pool.counts()).toMatchObject([{ ready: 2, blocked: 'its members refuse the credentials' }, {}]);
  const client = wait(kit); // this client waits for a draw of the other source
  kit.pool.blockSource('city', undefined);
  await settle();
  expect(served([client])).toEqual([true]);
  expect(kit.pool.counts()).toMatchObject([{ ready: 2, blocked: null }, {}]);
});
