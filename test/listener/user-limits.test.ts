/** The limits of users, as one process counts them. */
import { expect, test } from 'vitest';
import { EventBus, type NoriaEvents } from '../../src/core/events.ts';
import { NoriaError } from '../../src/core/faults.ts';
import { Secret } from '../../src/core/secret.ts';
import { type Limits, UserLimits } from '../../src/listener/user-limits.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { directDialer } from './direct-dialer.ts';
import { listen, RawClient } from './harness.ts';
import { rawOrigin } from './origin.ts';

function limitsOf(limits: Limits) {
  const clock = ManualClock.dayOld();
  const users = new UserLimits(clock);
  users.configure([{ username: 'ann', limits }, { username: 'ben' }]);
  const retryAfterMs = () => {
    const refused = users.admit('ann');
    return refused instanceof NoriaError ? refused.context['retryAfterMs'] : undefined;
  };
  return { clock, users, retryAfterMs };
}

/** The code of the refusal of one more request. */
function refusal(users: UserLimits, user = 'ann') {
  const admitted = users.admit(user);
  return admitted instanceof NoriaError ? admitted.code : undefined;
}

const DAY_MS = 86_400_000;
const usedToday = (bytes: number, members: number, processes = 1) => ({
  processes,
  leftMs: DAY_MS,
  users: { ann: { bytes, members } },
});

test('user limits: exactly `tunnels` requests are open at once, and others have no limit', () => {
  const { users } = limitsOf({ tunnels: 2 });
  const first = users.admit('ann');
  expect([2, 3].map(() => refusal(users))).toEqual([undefined, 'limit']);
  expect(Array.from({ length: 50 }, () => refusal(users, 'ben')).filter(Boolean)).toEqual([]);
  if (first === undefined || first instanceof NoriaError) throw new Error('the first request was refused');
  first.open -= 1;
  expect([1, 2].map(() => refusal(users))).toEqual([undefined, 'limit']);
});

test('user limits: a rate admits its number a second, and says when the next one is free', () => {
  const { clock, users, retryAfterMs } = limitsOf({ rate: 4 });
  const admitted = () =>
    Array.from({ length: 20 }, () => refusal(users)).filter((code) => code === undefined);
  expect(admitted()).toHaveLength(4);
  expect(retryAfterMs()).toBeCloseTo(250);
  clock.advance(500);
  expect(admitted()).toHaveLength(2);
  clock.advance(60_000);
  expect(admitted(), 'unused requests are not saved').toHaveLength(4);
});

test('user limits: a rate below one a second admits one, and the next one after its time', () => {
  const { clock, users, retryAfterMs } = limitsOf({ rate: 0.5 });
  expect([refusal(users), retryAfterMs()]).toEqual([undefined, 2_000]);
  clock.advance(1_500);
  expect(retryAfterMs()).toBe(500);
  clock.advance(499);
  expect(refusal(users)).toBe('limit');
  clock.advance(1);
  expect([refusal(users), refusal(users)]).toEqual([undefined, 'limit']);
});

test('user limits: a refusal says which limit, in numbers, and when to try again', () => {
  const said = (limits: Limits, today = usedToday(7, 3), times = 3) => {
    const { users, clock } = limitsOf(limits);
    users.setToday(today);
    clock.advance(DAY_MS);
    const refused = Array.from({ length: times }, () => users.admit('ann')).at(-1);
    return refused instanceof NoriaError ? [refused.code, refused.message, refused.context] : refused;
  };
  const refused = (reason: string, retryAfterMs: number) => ['limit', reason, { reason, retryAfterMs }];
  expect(said({ bytesPerDay: 7 }), 'the day has just ended').toEqual(
    refused('the user has used 7 bytes today, and bytesPerDay is 7', 1_000),
  );
  expect(said({ membersPerDay: 3 })).toEqual(
    refused('the user has used 3 members today, and membersPerDay is 3', 1_000),
  );
  expect(said({ bytesPerDay: 1, membersPerDay: 1, tunnels: 1 })).toEqual(
    refused('the user has used 7 bytes today, and bytesPerDay is 1', 1_000),
  );
  expect(said({ tunnels: 2 })).toEqual(refused('the user has 2 requests open, and tunnels is 2', 1_000));
  expect(said({ rate: 2 })).toEqual(refused('the user sends more than 120 requests a minute', 500));
  expect(said({ rate: 3 }, usedToday(0, 0, 3), 2)).toEqual(
    refused('the user sends more than 180 requests a minute', 1_000),
  );
  expect(said({ tunnels: 5 }, usedToday(0, 0, 2), 3)).toEqual({
    open: 3,
    tokens: expect.anything(),
    filledAt: expect.anything(),
  });
  expect(said({ tunnels: 5 }, usedToday(0, 0, 2), 4)).toEqual(
    refused('the user has 3 requests open, and tunnels is 5', 1_000),
  );
});

test('user limits: several processes share tunnels and rate', () => {
  const tunnels = limitsOf({ tunnels: 4 });
  tunnels.users.setToday(usedToday(0, 0, 2));
  expect([1, 2, 3].map(() => refusal(tunnels.users))).toEqual([undefined, undefined, 'limit']);
  const rate = limitsOf({ rate: 4 });
  rate.users.setToday(usedToday(0, 0, 2));
  expect([1, 2, 3].map(() => refusal(rate.users))).toEqual([undefined, undefined, 'limit']);
});

test('user limits: the bytes and the members of a day refuse until the day ends', () => {
  const bytes = limitsOf({ bytesPerDay: 1_000 });
  bytes.users.setToday(usedToday(999, 9));
  expect([refusal(bytes.users), bytes.users.isOverBytes('ann')]).toEqual([undefined, false]);
  bytes.users.setToday(usedToday(1_000, 9));
  bytes.clock.advance(1_000);
  expect(bytes.retryAfterMs()).toBe(DAY_MS - 1_000);
  expect([bytes.users.isOverBytes('ann'), bytes.users.isOverBytes('ben')]).toEqual([true, false]);
  const members = limitsOf({ membersPerDay: 3 });
  members.users.setToday(usedToday(10_000, 2));
  expect(refusal(members.users)).toBeUndefined();
  members.users.setToday(usedToday(0, 3));
  expect(refusal(members.users)).toBe('limit');
});

test('user limits: a reload that removes a limit forgets what is open, and a new limit counts from zero', () => {
  const ann = { username: 'ann', limits: { tunnels: 1, source: 'city' } };
  for (const without of [[], [{ username: 'ann' }]]) {
    const { users } = limitsOf({ tunnels: 1 });
    expect([1, 2].map(() => refusal(users))).toEqual([undefined, 'limit']);
    users.configure([ann]);
    expect(refusal(users), 'a reload that keeps the limit').toBe('limit');
    expect(users.sourceOf('ann')).toBe('city');
    users.configure(without);
    expect([refusal(users), users.sourceOf('ann')]).toEqual([undefined, undefined]);
    users.configure([ann]);
    expect([1, 2].map(() => refusal(users))).toEqual([undefined, 'limit']);
  }
});

test('user limits: a tunnel from before a limit that a reload gives again frees no place when it ends', async () => {
  const users = [{ username: 'ann', password: new Secret('x'), limits: { tunnels: 1 } }];
  const limits = new UserLimits(ManualClock.dayOld());
  const origin = await rawOrigin((socket) => socket.on('end', () => socket.end()));
  const dialer = directDialer();
  const { port } = await listen(dialer, { limits }, { users });
  const credentials = Buffer.from('ann:x').toString('base64');
  const open = async () => {
    const client = await RawClient.open(port);
    const head = `CONNECT 127.0.0.1:${origin.port} HTTP/1.1\r\nProxy-Authorization: Basic ${credentials}\r\n\r\n`;
    const answer = await client.send(head).until('the answer', (text) => text.includes('\r\n\r\n'));
    return { client, status: answer.slice('HTTP/1.1 '.length, 12) };
  };
  limits.configure(users);
  const before = await open();
  limits.configure([]);
  limits.configure(users);
  const newer = await open();
  before.client.socket.destroy();
  await until('the first lease ended', () => dialer.ended.length === 1);
  expect([before.status, newer.status, (await open()).status]).toEqual(['200', '200', '429']);
  newer.client.socket.destroy();
  await until('the second lease ended', () => dialer.ended.length === 2);
  expect([(await open()).status, (await open()).status]).toEqual(['200', '429']);
});

test('user limits: an open tunnel reports what it relays, and ends when its user has used the bytes of the day', async () => {
  const clock = ManualClock.dayOld();
  const users = [{ username: 'ann', password: new Secret('pw'), limits: { bytesPerDay: 100 } }];
  const limits = new UserLimits(clock);
  limits.configure(users);
  const bus = new EventBus((_, error) => {
    throw error;
  });
  const grew: NoriaEvents['request.grew'][] = [];
  const ended: NoriaEvents['request.ended'][] = [];
  bus.on('request.grew', (event) => grew.push(event));
  bus.on('request.ended', (record) => ended.push(record));
  const origin = await rawOrigin();
  const { port, listener } = await listen(directDialer(), { clock, limits, bus }, { users });
  const client = await RawClient.open(port);
  const target = `127.0.0.1:${origin.port}`;
  client.send(`CONNECT ${target} HTTP/1.1\r\nProxy-Authorization: Basic ${btoa('ann:pw')}\r\n\r\nhello`);
  await until('the first bytes', () => origin.seen[0] === 'hello');
  clock.advance(2_000);
  expect(grew).toMatchObject([{ user: 'ann', target, up: 5, down: 0 }]);
  limits.setToday(usedToday(99, 0));
  origin.sockets[0]?.write('!');
  await client.until('the answer', (text) => text.endsWith('!'));
  clock.advance(1_000);
  expect(grew.slice(1)).toMatchObject([{ request: grew[0]?.request, up: 0, down: 1 }]);
  expect(listener.connectionCount).toBe(1);
  limits.setToday(usedToday(100, 0));
  clock.advance(1_000);
  await client.whole();
  await until('the record', () => ended.length === 1);
  expect(ended).toMatchObject([
    { user: 'ann', target, protocol: 'connect', bytesUp: 5, bytesDown: 1, countedUp: 5, countedDown: 1 },
  ]);
  clock.advance(1_000);
  expect([grew.length, clock.armedCount], 'no timer without a connection').toEqual([2, 0]);
});
