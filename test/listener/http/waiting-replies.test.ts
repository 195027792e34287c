/** What a client connection does while replies wait in noria's socket, and for how long it stays open after them. */
import { expect, onTestFinished, test } from 'vitest';
import { EventBus } from '../../../src/core/events.ts';
import { Secret } from '../../../src/core/secret.ts';
import { ClientConnection, type ListenerOptions } from '../../../src/listener/client-connection.ts';
import { serveHttp } from '../../../src/listener/http/http-connection.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { connectTo, listen, listenerOptions, RawClient } from '../harness.ts';
import { answering, rawOrigin } from '../origin.ts';
import { record, socketPair } from '../socket-pair.ts';

/** A client of HTTP, and noria's end of its connection, which the test corks to make replies wait. */
async function hold(limits: Partial<ListenerOptions> = {}) {
  const clock = ManualClock.dayOld();
  const refused: string[] = [];
  const bus = new EventBus((_name, error) => {
    throw error;
  });
  bus.on('client.refused', ({ detail }) => refused.push(detail));
  const options = listenerOptions(directDialer(), { clock, bus, ...limits });
  const { near, far } = await socketPair();
  const connection = new ClientConnection(near, 8888, options);
  near.cork();
  connection.readFirst((first) => serveHttp(first, connection));
  onTestFinished(async () => {
    near.destroy();
    await until('no deadline', () => options.deadlines.size === 0, 30_000);
  });
  return { near, far, client: record(far), clock, refused };
}

const REFUSED = 'GET / HTTP/1.1\r\nHost: x\r\n\r\n';
const answers = (text: string) => text.split('HTTP/1.1 400 ').length - 1;

test('waiting replies: a client that ends its side still gets the answer that waits', async () => {
  const { near, far, client, refused } = await hold();
  far.end(REFUSED);
  await until('the end', () => client.closed || client.ended);
  expect([answers(client.text), refused.length]).toEqual([1, 1]);
  await until('the close', () => near.destroyed);
});

test('waiting replies: while the client does not read, no further request is served, and none is lost', async () => {
  const { near, far, client, refused } = await hold();
  far.write(REFUSED.repeat(500));
  await until('a full buffer', () => near.writableNeedDrain);
  const served = refused.length;
  expect(served).toBeLessThan(400);
  expect(near.writableLength).toBeLessThan(near.writableHighWaterMark + 2_000);
  near.uncork();
  await until('all answers', () => answers(client.text) === 500);
  expect(refused.length).toBe(500);
});

test('waiting replies: requests that wait when the client ends its side are not incomplete ones', async () => {
  const { near, far, client, refused } = await hold();
  far.end(REFUSED.repeat(500));
  await until('the end', () => client.closed || client.ended);
  expect(new Set(refused).size).toBe(1);
  expect(answers(client.text)).toBe(refused.length);
  await until('the close', () => near.destroyed);
});

test('waiting replies: a request head that the client does not finish is answered', async () => {
  const { near, far, client, refused } = await hold();
  far.end('GET http://a.example/ HTTP/1.1\r\nHo');
  await until('the end', () => client.ended);
  expect(client.text).toContain('The request head is incomplete: the client closed its side.');
  expect(refused).toEqual(['the request head is incomplete: the client closed its side']);
  await until('the close', () => near.destroyed);
});

test('waiting replies: the connection stays open for a minute, or for idleTimeoutMs while the answer waits', async () => {
  const { near, far, client, clock, refused } = await hold();
  far.write(REFUSED);
  await until('the refusal', () => refused.length === 1);
  clock.advance(599_900);
  expect(near.destroyed, 'the client may read slowly').toBe(false);
  near.uncork();
  far.write(REFUSED);
  await until('both answers', () => answers(client.text) === 2);
  clock.advance(59_900);
  expect(near.destroyed).toBe(false);
  clock.advance(200);
  expect(near.destroyed).toBe(true);
});

test('waiting replies: an answer that waits for longer than idleTimeoutMs ends its connection', async () => {
  const { near, far, clock, refused } = await hold();
  far.write(REFUSED);
  await until('the refusal', () => refused.length === 1);
  clock.advance(600_100);
  expect(near.destroyed).toBe(true);
});

test.each([
  ['CONNECT', 'CONNECT a.example:443 HTTP/1.1\r\nHost: x\r\n\r\n'],
  ['absolute form', 'GET http://a.example/ HTTP/1.1\r\nHost: x\r\n\r\n'],
])(
  'waiting replies: after a 407 to %s the client has a minute to send credentials',
  async (_what, request) => {
    const clock = ManualClock.dayOld();
    const users = [{ username: 'ann', password: new Secret('right') }];
    const { port, listener, events } = await listen(directDialer(), { clock }, { users });
    const client = (await RawClient.open(port)).send(request);
    await client.until('the challenge', (text) => /\r\n\r\n.*\n$/s.test(text));
    clock.advance(59_900);
    expect(listener.connectionCount).toBe(1);
    clock.advance(200);
    await client.whole();
    await until('the event', () => events('connection.closed').length === 1);
    expect(events('connection.closed')).toMatchObject([{ outcome: 'auth-required' }]);
  },
);

test('waiting replies: a client that asks for Connection: close gets no second try after a 407', async () => {
  const users = [{ username: 'ann', password: new Secret('right') }];
  const { port } = await listen(directDialer(), {}, { users });
  const ask = 'CONNECT a.example:443 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n';
  expect(await (await RawClient.open(port)).send(ask).whole()).toContain('Connection: close\r\n');
});

test('waiting replies: a tunnel has no listener of the requests before it', async () => {
  const origin = await rawOrigin((socket) => {
    socket.on('data', (chunk: Buffer) => {
      const isUpgrade = chunk.includes('websocket');
      socket.write(isUpgrade ? 'HTTP/1.1 101 x\r\nUpgrade: websocket\r\n\r\nhello' : chunk);
    });
  });
  const connect = `${connectTo(origin.port)}hello`;
  const upgrade = `GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`;
  const counts: unknown[] = [];
  for (const requests of [[connect], [REFUSED, connect], [upgrade], [REFUSED, upgrade]]) {
    const { near, far, client } = await hold();
    near.uncork();
    for (const request of requests) {
      far.write(request);
      await until('an answer', () =>
        request === REFUSED ? answers(client.text) === 1 : client.text.endsWith('hello'),
      );
    }
    const names = ['data', 'end', 'close', 'drain', 'error', 'readable'];
    counts.push(names.map((name) => near.listenerCount(name)));
  }
  expect(counts).toEqual([counts[0], counts[0], counts[0], counts[0]]);
});

test('waiting replies: a request head has its time from its first byte, however its bytes trickle', async () => {
  const { near, far, client, clock } = await hold({ headerTimeoutMs: 10_000, handshakeTimeoutMs: 4_000 });
  near.uncork();
  for (const [nth, byte] of [...'GET'].entries()) {
    far.write(byte);
    await until('it was read', () => near.bytesRead === nth + 1);
    await new Promise((resolve) => setImmediate(resolve));
    clock.advance(3_300);
    expect(client.text).toBe('');
  }
  clock.advance(200);
  await until('the end', () => client.ended);
  expect(client.text).toMatch(/^HTTP\/1\.1 408 /);
});

test('waiting replies: a slow request head that is complete in time is served', async () => {
  const { near, far, client, clock } = await hold({ headerTimeoutMs: 10_000, handshakeTimeoutMs: 4_000 });
  near.uncork();
  far.write(REFUSED.slice(0, 9));
  await until('it was read', () => near.bytesRead === 9);
  await new Promise((resolve) => setImmediate(resolve));
  clock.advance(9_000);
  far.write(REFUSED.slice(9));
  await until('the answer', () => answers(client.text) === 1);
  clock.advance(9_000);
  expect(near.destroyed).toBe(false);
});

test.each([
  ['a small answer', `Content-Length: 4096\r\n\r\n${'x'.repeat(4_096)}`, ['write']],
  ['a larger answer', `Content-Length: 4097\r\n\r\n${'x'.repeat(4_097)}`, ['writev']],
  ['an answer in chunks', 'Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n', ['writev']],
  ['an answer without a body', 'Content-Length: 0\r\n\r\n', ['write']],
])('waiting replies: %s is one write', async (_what, answer, expected) => {
  const origin = await rawOrigin(answering(`HTTP/1.1 200 OK\r\n${answer}`));
  const { near, far, client } = await hold();
  near.uncork();
  const writes: string[] = [];
  const { _write: write, _writev: writev } = near;
  near._write = (...args) => {
    writes.push('write');
    write.apply(near, args);
  };
  near._writev = (...args) => {
    writes.push('writev');
    writev?.apply(near, args);
  };
  far.write(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  const body = answer.slice(answer.indexOf('\r\n\r\n'));
  await until('the answer', () => client.text.endsWith(body));
  expect(writes).toEqual(expected);
});

test('waiting replies: a chunk for the target is one write', async () => {
  const origin = await rawOrigin();
  const dialer = directDialer();
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(
    `PUT http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`,
  );
  await until('the head', () => origin.seen[0]?.endsWith('\r\n\r\n') === true);
  const [member] = dialer.sockets;
  if (member === undefined) throw new Error('no member');
  const writes: string[] = [];
  const { _write: write, _writev: writev } = member;
  member._write = (...args) => {
    writes.push('write');
    write.apply(member, args);
  };
  member._writev = (...args) => {
    writes.push('writev');
    writev?.apply(member, args);
  };
  client.send('2\r\nhi\r\n');
  await until('the chunk', () => origin.seen[0]?.endsWith('2\r\nhi\r\n') === true);
  expect(writes).toEqual(['writev']);
});

test.each([
  ['nothing', '', true],
  ['another request', REFUSED, false],
])(
  'waiting replies: the connection closes after a last answer with %s behind its request',
  async (_what, rest, atOnce) => {
    const { near, far, client } = await hold();
    near.uncork();
    far.write(`GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n${rest}`);
    await until('the end', () => client.ended);
    if (!atOnce) {
      await until('its end was sent', () => near.writableFinished);
      expect(near.destroyed, 'what else comes is discarded').toBe(false);
      far.end();
    }
    await until('the close', () => near.destroyed);
    expect(answers(client.text)).toBe(1);
  },
);
