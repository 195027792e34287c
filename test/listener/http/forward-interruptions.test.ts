/** Forwarded requests whose client leaves, or that meet a timeout or an error. */
import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import { Deadlines } from '../../../src/core/deadlines.ts';
import type { Dialer, DialRequest, DialResult, MemberConnection } from '../../../src/dialer/contract.ts';
import { LoopClock } from '../../support/loop-clock.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient, untilStill } from '../harness.ts';
import { answering, OK, rawOrigin } from '../origin.ts';
import { record, socketPair } from '../socket-pair.ts';

test('forward: a client that leaves during the dial cancels it', async () => {
  const dialer = directDialer();
  const release = dialer.hold();
  const { port, listener } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send('GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n\r\n');
  await until('a dial', () => dialer.requests.length === 1);
  client.socket.destroy();
  await until('the dial was cancelled', () => dialer.cancelled === 1);
  release();
  await until('the close', () => listener.connectionCount === 0);
});

/**
 * A dialer that connects before `dial` returns, as with idle connections: first to a dead socket, then to those of
 * `next`, then never.
 */
async function promptDialer(
  ...next: Socket[]
): Promise<Dialer & { requests: DialRequest[]; cancelled: number[] }> {
  const { near: dead } = await socketPair();
  dead.destroy();
  const sockets = [dead, ...next];
  const dialer: Awaited<ReturnType<typeof promptDialer>> = {
    requests: [],
    cancelled: [],
    dial(request, done) {
      const nth = dialer.requests.push(request);
      const socket = sockets.shift();
      const facts = {
        early: Buffer.alloc(0),
        forwardMode: 'direct',
        reused: true,
        isMemberError: () => false,
        lease: { member: `m${nth}`, source: 'city' },
        attempts: 1,
      } as const;
      if (socket !== undefined) done({ ok: true, connection: { ...facts, socket, end: () => {} } });
      return { cancel: () => void dialer.cancelled.push(nth) };
    },
  };
  return dialer;
}

test('forward: a client that leaves cancels the running dial, also if an earlier one failed at once', async () => {
  const dialer = await promptDialer();
  const { port, listener } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send('GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\n\r\n');
  await until('the second dial', () => dialer.requests.length === 2);
  client.socket.destroy();
  await until('the close', () => listener.connectionCount === 0);
  expect(dialer.cancelled).toEqual([2]);
});

test('forward: the body goes to the current exchange, also if an earlier one failed at once', async () => {
  const { near, far } = await socketPair();
  const seen = record(far);
  const { port } = await listen(await promptDialer(near));
  const client = await RawClient.open(port);
  client.send('PUT http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody');
  await until('the body at the member', () => seen.text.endsWith('body'));
  far.write(OK);
  expect(await client.until('the response', (text) => text.endsWith('hi'))).toMatch(/^HTTP\/1\.1 200 /);
});

test('forward: a client that leaves during a response closes the member connection without blame', async () => {
  const origin = await rawOrigin(answering('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi'));
  const dialer = directDialer();
  const { port, events } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  await client.until('the first bytes', (text) => text.endsWith('hi'));
  client.socket.resetAndDestroy();
  await until('the end of the lease', () => dialer.ended.length > 0);
  expect(dialer.ended).toEqual([{ cut: false, member: 'm1' }]);
  await until('the event', () => events('connection.closed').length > 0);
  expect(events('connection.closed')[0]).toMatchObject({ protocol: 'http', outcome: 'client-gone' });
});

test('forward: the idle timeout gives 504 before a response and cuts off a started one', async () => {
  const silent = await rawOrigin();
  const halting = await rawOrigin(answering('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhi'));
  const dialer = directDialer();
  const { port, deadlines } = await listen(dialer, { clock: new LoopClock(), idleTimeoutMs: 4_000 });
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${silent.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  const received = await client.until('the response', (text) => text.includes('\r\n\r\n'));
  expect(received).toMatch(/^HTTP\/1\.1 504 /);
  const other = await RawClient.open(port);
  other.send(`GET http://127.0.0.1:${halting.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  expect(await other.whole()).toMatch(/hi$/);
  client.end();
  await until('no deadline', () => deadlines.size === 0);
  expect(dialer.ended.map(({ cut }) => cut)).toEqual([false, false]);
  expect(dialer.sockets.every((socket) => socket.destroyed)).toBe(true);
});

test('forward: a client that does not read the end of its response is cut off by the idle timeout', async () => {
  const size = 32 * 1024 * 1024;
  const origin = await rawOrigin((socket) =>
    socket.once('data', () => {
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size}\r\n\r\n`);
      socket.write(Buffer.alloc(size, 'x'));
    }),
  );
  const clock = ManualClock.dayOld();
  const { port, deadlines, listener } = await listen(directDialer(), {
    clock,
    deadlines: new Deadlines(clock, 5),
  });
  const client = await RawClient.open(port);
  client.socket.pause();
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  await untilStill('back-pressure', () => origin.sockets[0]?.writableLength ?? -1);
  expect(deadlines.size, 'the idle timeout and the delay of TCP keep-alive').toBe(2);
  clock.advance(600_100);
  await until('the close', () => listener.connectionCount === 0);
  expect(deadlines.size).toBe(0);
});

test('forward: an unexpected error ends only its own connection', async () => {
  const origin = await rawOrigin((socket, index) =>
    socket.on('data', () => (index === 0 ? socket.resetAndDestroy() : socket.write(OK))),
  );
  const dialer = directDialer();
  const dial = dialer.dial.bind(dialer);
  dialer.dial = (request, done) => {
    if ((request.avoid ?? []).length > 0) throw new TypeError('a mistake');
    return dial(request, done);
  };
  const { port, events } = await listen(dialer);
  const request = `GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`;
  const unlucky = (await RawClient.open(port)).send(request);
  await unlucky.whole();
  expect(events('client.refused')).toMatchObject([{ code: 'internal', detail: 'a mistake' }]);
  const other = (await RawClient.open(port)).send(request);
  await other.until('the response', (text) => text.endsWith('hi'));
});

test('forward: bytes in either direction restart the idle timeout', async () => {
  const clock = ManualClock.dayOld();
  const origin = await rawOrigin();
  const { port } = await listen(directDialer(), { clock, idleTimeoutMs: 10_000 });
  const client = await RawClient.open(port);
  client.send(`PUT http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n`);
  await until('the head', () => origin.seen[0]?.endsWith('\r\n\r\n') === true);
  for (const part of ['b', 'bo', 'bod', 'body']) {
    clock.advance(7_000);
    client.send(part.slice(-1));
    await until('the next byte', () => origin.seen[0]?.endsWith(`\r\n\r\n${part}`) === true);
  }
  for (const part of [
    'HTTP/1.1 103 Early Hints\r\n\r\n',
    'HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na',
    'b',
    'c',
  ]) {
    clock.advance(7_000);
    origin.sockets[0]?.write(part);
    await client.until('the next byte', (text) => text.endsWith(part.slice(-1)));
  }
  expect(client.received).toMatch(/\r\n\r\nabc$/);
});

test('forward: a member that comes after its client has left is given back unused', async () => {
  const { near } = await socketPair();
  const dials: ((result: DialResult) => void)[] = [];
  const ends: unknown[] = [];
  const dialer: Dialer = {
    dial: (_request, done) => {
      dials.push(done);
      return { cancel: () => {} };
    },
  };
  const { port, listener, events } = await listen(dialer);
  const client = (await RawClient.open(port)).send('GET http://a.example/ HTTP/1.1\r\nHost: x\r\n\r\n');
  await until('the dial', () => dials.length === 1);
  client.socket.destroy();
  await until('the close', () => listener.connectionCount === 0);
  const connection: MemberConnection = {
    ...{ socket: near, early: Buffer.alloc(0), forwardMode: 'direct', reused: false, attempts: 1 },
    ...{ lease: { member: 'm1', source: 'city' }, isMemberError: () => false },
    end: (outcome) => void ends.push(outcome),
  };
  dials[0]?.({ ok: true, connection });
  expect([near.destroyed, ends, events('tunnel.closed')]).toEqual([true, [{ cut: false }], []]);
});

test.each([
  ['GET http://a.example/ HTTP/1.1\r\nHost: x\r\n\r\n'],
  ['CONNECT a.example:443 HTTP/1.1\r\n\r\n'],
])('forward: a dial that says that the client has gone closes its connection: %j', async (request) => {
  const dialer = directDialer();
  dialer.failures.push({ code: 'client-gone', reason: 'The client left.', attempts: 0 });
  const { port, events } = await listen(dialer);
  const client = (await RawClient.open(port)).send(request);
  expect(await client.whole()).toBe('');
  await until('the event', () => events('connection.closed').length === 1);
  expect(events('client.refused')).toEqual([]);
});

test.each([
  ['before', 'zz\r\n', '', /^HTTP\/1\.1 400 [\s\S]*A chunk size is malformed/],
  ['while', 'zz\r\n', 'HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhi', /hi$/],
  ['after', 'zz\r\n', OK, /hi$/],
] as const)(
  'forward: a body that turns out malformed %s noria answers ends the connection',
  async (_when, rest, response, expected) => {
    const origin = await rawOrigin();
    const dialer = directDialer();
    const { port, events } = await listen(dialer);
    const client = await RawClient.open(port);
    const head = `POST http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`;
    client.send(`${head}1\r\nx\r\n`);
    await until('the request', () => origin.seen[0]?.endsWith('x\r\n') === true);
    origin.sockets[0]?.write(response);
    if (response !== '') await client.until('the response', (text) => text.endsWith('hi'));
    client.send(rest);
    const received = await client.whole();
    expect(received).toMatch(expected);
    expect(received.match(/HTTP\/1\.1 \d/g)).toHaveLength(1);
    client.end();
    await until('the event', () => events('connection.closed').length === 1);
    const isAnswered = response === OK;
    expect(events('client.refused').map(({ code }) => code)).toEqual(isAnswered ? [] : ['bad-request']);
    expect(events('connection.closed')).toMatchObject([{ outcome: isAnswered ? 'ok' : 'bad-request' }]);
    expect(dialer.ended).toEqual([{ cut: false, member: 'm1' }]);
  },
);

test.each([
  ['whose body has come with it', 'Content-Length: 3\r\n\r\nabc'],
  ['whose body is malformed', 'Transfer-Encoding: chunked\r\n\r\nzz\r\n'],
  ['whose body is missing', 'Content-Length: 3\r\n\r\n'],
])('forward: a refused request %s and that closes its connection gets one reply', async (_what, rest) => {
  const { port, events, deadlines } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(`POST / HTTP/1.1\r\nConnection: close\r\n${rest}`);
  expect((await client.whole()).match(/HTTP\/1\.1 \d/g)).toHaveLength(1);
  client.end();
  await until('the close', () => events('connection.closed').length === 1);
  expect([events('client.refused').length, deadlines.size]).toEqual([1, 0]);
});

test.each([
  ['GET', true],
  ['HEAD', false],
])('forward: the refusal of %s has a body: %s', async (method, hasBody) => {
  const { port } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(`${method} / HTTP/1.1\r\nHost: x\r\n\r\n`);
  client.send('GET / HTTP/1.0\r\n\r\n');
  const received = await client.whole();
  const [first = ''] = received.split(/(?<=.)HTTP\/1\.1 400 /s);
  const [head = '', body] = first.split('\r\n\r\n');
  expect(head).toContain('Connection: keep-alive');
  expect(body?.length).toBe(hasBody ? Number(/Content-Length: (\d+)/.exec(head)?.[1]) : 0);
});
