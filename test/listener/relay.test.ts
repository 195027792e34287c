import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import { expect, test } from 'vitest';
import { systemClock } from '../../src/core/clock.ts';
import { Deadlines } from '../../src/core/deadlines.ts';
import { ReadMemory, tunnelSocket } from '../../src/dialer/member-socket.ts';
import { Relay, reset } from '../../src/listener/relay.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { untilStill } from './harness.ts';
import { record, type SocketPair, socketPair } from './socket-pair.ts';

interface Joined {
  readonly client: SocketPair;
  readonly member: SocketPair;
  readonly deadlines: Deadlines;
  readonly clock: ManualClock;
  readonly ends: Relay[];
}

const IDLE_MS = 60_000;
const LINGER_MS = 5_000;

async function join(
  given: {
    early?: string | Buffer;
    head?: string | Buffer;
    before?: (pairs: Pick<Joined, 'client' | 'member'>) => void;
    lingerMs?: number;
  } = {},
): Promise<Joined> {
  const client = await socketPair();
  const member = await socketPair();
  given.before?.({ client, member });
  const clock = ManualClock.dayOld();
  const deadlines = new Deadlines(clock, 10);
  const ends: Relay[] = [];
  const early = given.early === undefined ? undefined : Buffer.from(given.early);
  new Relay(client.near, member.near, {
    deadlines,
    idleTimeoutMs: IDLE_MS,
    lingerMs: given.lingerMs ?? LINGER_MS,
    startedAt: clock.monotonic(),
    onEnd: (end) => ends.push(end),
  }).start(early, Buffer.from(given.head ?? ''));
  return { client, member, deadlines, clock, ends };
}

const ended = (joined: Joined) => until('the relay ended', () => joined.ends.length > 0);

test('relay: bytes flow both ways, early bytes first, and all are counted', async () => {
  const joined = await join({ early: 'early ', head: 'head ' });
  const [atClient, atMember] = [record(joined.client.far), record(joined.member.far)];
  joined.client.far.write('up');
  joined.member.far.write('down');
  await until('both arrived', () => atClient.text === 'head down' && atMember.text === 'early up');
  joined.client.far.end();
  joined.member.far.end();
  await ended(joined);
  expect(joined.ends).toEqual([{ bytesUp: 8, bytesDown: 9, cut: false }]);
  expect(joined.deadlines.size).toBe(0);
});

test.each(['client', 'member'] as const)(
  'relay: a half-close by the %s is forwarded, and the other direction continues',
  async (side) => {
    const joined = await join();
    const other = side === 'client' ? 'member' : 'client';
    const [here, there] = [record(joined[side].far), record(joined[other].far)];
    joined[side].far.end('last words');
    await until('the end arrived', () => there.ended);
    expect(there.text).toBe('last words');
    joined[other].far.write('still ');
    await until('a response after the half-close', () => here.text === 'still ');
    joined[other].far.end('here');
    await ended(joined);
    await until('the other end arrived', () => here.ended);
    expect(here.text).toBe('still here');
    expect(joined.client.near.destroyed && joined.member.near.destroyed).toBe(true);
  },
);

test('relay: a client that ended before the relay started is half-closed to the member', async () => {
  const client = await socketPair();
  const member = await socketPair();
  const atMember = record(member.far);
  client.far.end('all of it');
  const chunks: Buffer[] = [];
  client.near.on('data', (chunk: Buffer) => chunks.push(chunk)).resume();
  await until('the client had ended', () => client.near.readableEnded);
  client.near.removeAllListeners('data');
  new Relay(client.near, member.near, {
    deadlines: new Deadlines(systemClock, 10),
    idleTimeoutMs: IDLE_MS,
    lingerMs: LINGER_MS,
    startedAt: systemClock.monotonic(),
    onEnd: () => {},
  }).start(Buffer.concat(chunks), Buffer.alloc(0));
  await until('the end arrived', () => atMember.ended);
  expect(atMember.text).toBe('all of it');
});

test.each([
  [
    'has closed',
    async (pair: SocketPair) => {
      const closed = once(pair.near, 'close');
      pair.near.destroy();
      await closed;
    },
  ],
  [
    'is closing',
    async (pair: SocketPair) => {
      pair.near.destroy();
    },
  ],
])(
  'relay: if one side %s before the start, the other one is closed, and onEnd is called once',
  async (_how, leave) => {
    for (const leaving of [['client'], ['member'], ['client', 'member']] as const) {
      const pairs = { client: await socketPair(), member: await socketPair() };
      const bothClosed = Promise.all([once(pairs.client.near, 'close'), once(pairs.member.near, 'close')]);
      for (const side of leaving) await leave(pairs[side]);
      const ends: Relay[] = [];
      const deadlines = new Deadlines(systemClock, 10);
      const options = {
        deadlines,
        idleTimeoutMs: IDLE_MS,
        lingerMs: LINGER_MS,
        startedAt: systemClock.monotonic(),
        onEnd: (end: Relay) => ends.push(end),
      };
      new Relay(pairs.client.near, pairs.member.near, options).start(undefined, Buffer.alloc(0));
      pairs.client.far.on('end', () => pairs.client.far.end()).resume();
      await bothClosed;
      expect(ends.length).toBe(1);
      expect(deadlines.size).toBe(0);
    }
  },
);

test.each(['client', 'member'] as const)('relay: a reset by the %s resets the other side', async (side) => {
  const joined = await join();
  const other = record(joined[side === 'client' ? 'member' : 'client'].far);
  joined[side].far.resetAndDestroy();
  await ended(joined);
  await until('the other side closed', () => other.closed);
  expect([other.ended, other.error]).toEqual([false, 'ECONNRESET']);
  expect(joined.deadlines.size).toBe(0);
});

test('relay: a client that is reset after an incomplete answer gets what has arrived, and no clean end', async () => {
  const joined = await join();
  const atClient = record(joined.client.far);
  joined.member.far.write('the first half');
  await until('the first half', () => atClient.text === 'the first half');
  joined.member.far.resetAndDestroy();
  await until('the failure', () => joined.member.near.destroyed);
  expect(joined.client.near.destroyed, 'it may still read').toBe(false);
  joined.clock.advance(2_100);
  await ended(joined);
  await until('the reset', () => atClient.closed);
  expect([atClient.ended, atClient.error]).toEqual([false, 'ECONNRESET']);
  expect(joined.deadlines.size).toBe(0);
});

test('relay: an end after a failed write is no clean end, because the answer may be incomplete', async () => {
  const server = createServer({ allowHalfOpen: true }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const accepted = once(server, 'connection');
  const member = tunnelSocket(new ReadMemory()).on('error', () => {});
  member.connect({ host: '127.0.0.1', port: (server.address() as AddressInfo).port }).pause();
  const [[far]] = await Promise.all([accepted, once(member, 'connect')]);
  server.close();
  far.write('the first half');
  await until('it was sent', () => far.writableLength === 0);
  far.resetAndDestroy();
  await once(far, 'close');
  const client = await socketPair();
  const atClient = record(client.far);
  const clock = ManualClock.dayOld();
  const options = { idleTimeoutMs: IDLE_MS, lingerMs: LINGER_MS, startedAt: clock.monotonic() };
  const ends: Relay[] = [];
  new Relay(client.near, member, {
    ...options,
    deadlines: new Deadlines(clock, 10),
    onEnd: (end) => ends.push(end),
  }).start(Buffer.from('more'), Buffer.alloc(0));
  await until('the half', () => atClient.text === 'the first half' && member.destroyed);
  clock.advance(2_100);
  await until('the reset', () => atClient.closed);
  expect([atClient.ended, atClient.error]).toEqual([false, 'ECONNRESET']);
  expect([ends.length, clock.armedCount]).toEqual([1, 0]);
});

test('relay: bytes received before the member failed still reach a slow client', async () => {
  const size = 16 * 1024 * 1024;
  const joined = await join();
  joined.client.far.pause();
  joined.member.far.write('x'.repeat(size));
  await until('back-pressure', () => joined.member.near.isPaused());
  joined.member.near.destroy(new Error('broken'));
  const held = joined.client.near.bytesWritten;
  joined.clock.advance(2_100);
  expect(joined.client.near.destroyed).toBe(false);
  const atClient = record(joined.client.far);
  joined.client.far.resume();
  await until('all of it arrived', () => atClient.bytes >= held);
  expect(held).toBeGreaterThan(0);
  expect(atClient.bytes).toBe(held);
  joined.client.far.end();
  await ended(joined);
  await until('the reset', () => atClient.closed);
  expect(atClient.ended).toBe(false);
});

test('relay: a client that does not read buffers at most 300 KiB and loses nothing', async () => {
  const size = 64 * 1024 * 1024;
  const joined = await join();
  joined.client.far.pause();
  joined.member.far.end(Buffer.alloc(size, 'x'));
  await untilStill('back-pressure', () => joined.member.near.bytesRead);
  expect(joined.client.near.writableLength + joined.member.near.readableLength).toBeLessThan(300 * 1024);
  expect(joined.member.near.bytesRead).toBeLessThan(size);
  const atClient = record(joined.client.far);
  joined.client.far.resume();
  await until('all of it arrived', () => atClient.ended);
  expect(atClient.bytes).toBe(size);
});

test('relay: buffered bytes are still written after both sides have ended', async () => {
  const joined = await join();
  const atClient = record(joined.client.far);
  joined.client.far.end();
  await until('the client has ended', () => joined.client.near.readableEnded);
  joined.client.near.cork();
  joined.member.far.end('last words');
  await ended(joined);
  await until('the end arrived', () => atClient.ended);
  expect(atClient.text).toBe('last words');
});

test('relay: a member that does not read applies back-pressure and loses nothing', async () => {
  const size = 64 * 1024 * 1024;
  const joined = await join();
  joined.member.far.pause();
  joined.client.far.end(Buffer.alloc(size, 'x'));
  await until('the client is paused', () => joined.client.near.isPaused());
  expect(joined.member.near.writableLength).toBeLessThan(300 * 1024);
  const atMember = record(joined.member.far);
  joined.member.far.resume();
  await until('all of it arrived', () => atMember.ended);
  expect(atMember.bytes).toBe(size);
});

test('relay: large transfers through tunnels with shared memory arrive unchanged at slow clients', async () => {
  const size = 24 * 1024 * 1024;
  const memory = new ReadMemory();
  const floods = await Promise.all([3, 5, 7].map((seed) => flood(pattern(size, seed), memory)));
  for (const { received, sent } of floods) {
    await until('all of it arrived', () => received.length === size);
    expect(received.bytes.equals(sent)).toBe(true);
  }
});

/** Sends `sent` from a member through a relay to a client that pauses again and again. */
async function flood(sent: Buffer, memory: ReadMemory) {
  const server = createServer((socket) => socket.on('error', () => {}).end(sent)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const member = tunnelSocket(memory);
  member.connect({ host: '127.0.0.1', port: (server.address() as AddressInfo).port }).pause();
  await once(member, 'connect');
  server.close();
  const client = await socketPair();
  new Relay(client.near, member, {
    deadlines: new Deadlines(systemClock, 10),
    idleTimeoutMs: IDLE_MS,
    lingerMs: LINGER_MS,
    startedAt: systemClock.monotonic(),
    onEnd: () => {},
  }).start(undefined, Buffer.alloc(0));
  const received = { bytes: Buffer.alloc(sent.length), length: 0 };
  let stopAt = 0;
  client.far.on('data', (chunk: Buffer) => {
    chunk.copy(received.bytes, received.length);
    received.length += chunk.length;
    if (received.length < stopAt) return;
    stopAt = received.length + 4 * 1024 * 1024; // more than the kernel buffers, so that writes stay pending
    client.far.pause();
    setImmediate(() => setImmediate(() => client.far.resume()));
  });
  return { sent, received };
}

/** Bytes in which each word depends on its index and on `seed`. */
function pattern(bytes: number, seed: number): Buffer {
  const words = new Uint32Array(bytes / Uint32Array.BYTES_PER_ELEMENT);
  for (let at = 0; at < words.length; at += 1) words[at] = Math.imul(at + seed, 2_654_435_761);
  return Buffer.from(words.buffer);
}

test('relay: TCP keep-alive is enabled after 30 s, not for short tunnels', async () => {
  const probed: string[] = [];
  const joined = await join({
    before: (pairs) => {
      for (const [side, { near }] of Object.entries(pairs)) {
        near.setKeepAlive = (on) => {
          probed.push(`${side} ${on}`);
          return near;
        };
      }
    },
  });
  joined.clock.advance(29_000);
  expect(probed).toEqual([]);
  joined.clock.advance(2_000);
  expect(probed).toEqual(['client true', 'member true']);
});

test.each([
  ['member', 'client', { bytesUp: 0, bytesDown: 1, cut: false }],
  ['client', 'member', { bytesUp: 1, bytesDown: 0, cut: false }],
] as const)('relay: the idle timeout ends it, and a byte of the %s restarts it', async (from, to, end) => {
  const joined = await join();
  const received = record(joined[to].far);
  joined.clock.advance(IDLE_MS - 20);
  joined[from].far.write('.');
  await until('the byte arrived', () => received.text === '.');
  joined.clock.advance(IDLE_MS - 20);
  expect(joined.client.near.destroyed).toBe(false);
  joined.clock.advance(40);
  await ended(joined);
  expect(joined.ends).toEqual([end]);
  expect(joined.clock.armedCount).toBe(0);
});

test('relay: after a half-close the shorter limit ends it', async () => {
  const joined = await join();
  const atMember = record(joined.member.far);
  joined.client.far.end();
  await until('the end arrived', () => atMember.ended);
  joined.clock.advance(LINGER_MS - 20);
  expect(joined.ends).toEqual([]);
  joined.clock.advance(40);
  await ended(joined);
});

test('relay: the result is `cut` if the member ends before its first byte, although the client has sent something', async () => {
  const joined = await join({ early: 'hello' });
  joined.member.far.resume();
  joined.member.far.end();
  joined.client.far.on('end', () => joined.client.far.end()).resume();
  await ended(joined);
  expect(joined.ends[0]?.cut).toBe(true);
});

test.each([
  ['the member has sent a byte', { early: 'hello', head: 'x' }, (joined: Joined) => joined.member.far.end()],
  ['the client has sent nothing', {}, (joined: Joined) => joined.member.far.end()],
  [
    'the target has answered without TLS',
    { early: 'x'.repeat(600), head: 'HTTP/1.1 200 OK' },
    ({ client, member }: Joined) => {
      member.far.on('data', (chunk) => {
        if (chunk.includes('y')) member.far.end();
      });
      client.far.write('y'.repeat(100));
    },
  ],
  ['the client leaves first', { early: 'hello' }, (joined: Joined) => joined.client.far.resetAndDestroy()],
])('relay: the result is not `cut` if %s', async (_when, given, end) => {
  const joined = await join(given);
  joined.member.far.resume();
  joined.client.far.on('end', () => joined.client.far.end()).resume();
  end(joined);
  await ended(joined);
  expect(joined.ends[0]?.cut).toBe(false);
});

test('relay: the idle timeout of a half-closed tunnel is no longer than that of an open one', async () => {
  const joined = await join({ lingerMs: 2 * IDLE_MS });
  const atMember = record(joined.member.far);
  joined.client.far.end();
  await until('the end arrived', () => atMember.ended);
  joined.clock.advance(IDLE_MS - 20);
  expect(joined.ends).toEqual([]);
  joined.clock.advance(40);
  await ended(joined);
});

test('relay: bytes of the other direction restart the limit of a half-closed tunnel, its end does not', async () => {
  const joined = await join();
  const [atClient, atMember] = [record(joined.client.far), record(joined.member.far)];
  joined.client.far.end();
  await until('the end arrived', () => atMember.ended);
  joined.clock.advance(LINGER_MS - 20);
  joined.member.far.write('.');
  await until('the byte arrived', () => atClient.text === '.');
  joined.clock.advance(LINGER_MS - 20);
  expect(joined.ends).toEqual([]);
  joined.member.far.resetAndDestroy();
  await until('the failure', () => joined.member.near.destroyed);
  joined.clock.advance(40);
  await ended(joined);
});

test.each([
  ['leaves', (joined: Joined) => joined.client.far.resetAndDestroy()],
  ['ends its side', (joined: Joined) => joined.client.far.end()],
])('relay: a client with an incomplete answer that %s is done at once', async (_how, leave) => {
  const joined = await join();
  const atClient = record(joined.client.far);
  joined.member.far.write('the first half');
  await until('the first half', () => atClient.text === 'the first half');
  joined.member.far.resetAndDestroy();
  await until('the failure', () => joined.member.near.destroyed);
  leave(joined);
  await ended(joined);
  expect([joined.deadlines.size, joined.ends.length]).toEqual([0, 1]);
});

test('relay: what a client sends after its member has failed goes nowhere, and is not counted', async () => {
  const joined = await join();
  const atClient = record(joined.client.far);
  joined.member.far.write('half');
  await until('the first half', () => atClient.text === 'half');
  joined.member.far.resetAndDestroy();
  await until('the failure', () => joined.member.near.destroyed);
  joined.client.far.write('more');
  await until('it was read', () => joined.client.near.bytesRead === 4);
  joined.client.far.end();
  await ended(joined);
  expect(joined.ends).toEqual([{ bytesUp: 0, bytesDown: 4, cut: false }]);
});

const tlsRecord = (type: number, bytes: number) =>
  Buffer.concat([Buffer.from([type, 3, 3, bytes >> 8, bytes & 0xff]), Buffer.alloc(bytes)]);

test.each([
  ['the handshake of TLS', tlsRecord(22, 90), 60, 'after-tls'],
  ['the handshake, and the client no Finished', tlsRecord(22, 90), 40, false],
  ['an alert', Buffer.concat([tlsRecord(22, 90), tlsRecord(21, 2)]), 60, false],
  ['application data', tlsRecord(22, 1_001), 60, false],
] as const)('relay: of a member that ends after %s it is known', async (_what, flight, bytes, cut) => {
  const joined = await join({ early: 'x'.repeat(200), head: flight });
  const [atClient, atMember] = [record(joined.client.far), record(joined.member.far)];
  await until('the flight', () => atClient.bytes === flight.length);
  joined.client.far.write('y'.repeat(bytes));
  await until('the answer of the client', () => atMember.bytes === 200 + bytes);
  if (flight.length > 1_000) joined.member.far.write(tlsRecord(23, 40));
  joined.member.far.end();
  joined.client.far.on('end', () => joined.client.far.end());
  await ended(joined);
  expect(joined.ends[0]?.cut).toBe(cut);
});

test('relay: a member that fails before its first byte is `cut`, and resets the client at once', async () => {
  const joined = await join({ early: 'hello' });
  const atClient = record(joined.client.far);
  joined.member.far.resetAndDestroy();
  await ended(joined);
  await until('the reset', () => atClient.closed);
  expect([joined.ends[0]?.cut, atClient.error]).toEqual([true, 'ECONNRESET']);
});

test('relay: nothing is armed by events that come after its end', async () => {
  const joined = await join();
  joined.client.far.resetAndDestroy();
  await ended(joined);
  for (const side of ['client', 'member'] as const) {
    joined[side].near.emit('end');
    joined[side].near.emit('close');
  }
  expect([joined.deadlines.size, joined.ends.length]).toEqual([0, 1]);
});

test('relay: a slow side pauses the other one only, and leaves no listener behind', async () => {
  const joined = await join();
  const counts = () => ['drain', 'error', 'data'].map((name) => joined.client.near.listenerCount(name));
  const before = counts();
  joined.client.far.pause();
  joined.member.far.write(Buffer.alloc(16 * 1024 * 1024));
  await until('back-pressure', () => joined.member.near.isPaused());
  expect(joined.client.near.isPaused()).toBe(false);
  const atClient = record(joined.client.far);
  joined.client.far.resume();
  await until('all of it', () => atClient.bytes === 16 * 1024 * 1024);
  expect(counts()).toEqual(before);
});

test('relay: a Unix socket, which cannot be reset, is closed', async () => {
  const { near, far } = await socketPair();
  near.resetAndDestroy = () => {
    throw new TypeError('not a TCP socket');
  };
  const atFar = record(far);
  reset(near);
  await until('the close', () => atFar.ended || atFar.closed);
  expect(near.destroyed).toBe(true);
});

test('relay: a socket that is being shut down is closed and not reset, so that nothing throws', async () => {
  const { near, far } = await socketPair();
  const seen: string[] = [];
  near.resetAndDestroy = () => {
    seen.push('reset');
    return near;
  };
  far.pause();
  near.end(Buffer.alloc(16 * 1024 * 1024));
  reset(near);
  expect([near.destroyed, seen]).toEqual([true, []]);
  const other = await socketPair();
  other.near.end();
  await once(other.near, 'finish');
  const resets: string[] = [];
  other.near.resetAndDestroy = () => {
    resets.push('reset');
    return other.near;
  };
  reset(other.near);
  expect(resets).toEqual(['reset']);
});
