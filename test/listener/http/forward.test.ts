import { once } from 'node:events';
import { connect, Socket } from 'node:net';
import { expect, onTestFinished, test, vi } from 'vitest';
import { Deadlines } from '../../../src/core/deadlines.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient, untilStill } from '../harness.ts';
import { answering, OK, rawOrigin } from '../origin.ts';

const MEMBER_HEADERS = 'X-Noria-Member: m1\r\nX-Noria-Attempts: 1\r\n';

/** Sends `request` to noria, with PORT replaced by the target's port. Returns what the target saw and the client received. */
async function exchange(
  request: string,
  response: string,
  options: { endAfter?: boolean; done?: (received: string) => boolean } = {},
): Promise<{ seen: string; received: string; client: RawClient; port: number }> {
  const origin = await rawOrigin(answering(response, options.endAfter));
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send(request.replaceAll('PORT', `${origin.port}`));
  const received = await client.until('the response', options.done ?? ((text) => text.includes('\r\n\r\n')));
  return { seen: (origin.seen[0] ?? '').replaceAll(`${origin.port}`, 'PORT'), received, client, port };
}

/** Request bytes, and what the target must see. */
test.each<[string, string, string]>([
  [
    'a length and a body',
    'POST http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: x\r\ncontent-length: 3\r\n\r\nabc',
    'POST / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\ncontent-length: 3\r\n\r\nabc',
  ],
  [
    'a chunked body with new framing and its trailers',
    'POST http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n3;ext=1\r\nabc\r\n0\r\nX-T: 1\r\n\r\n',
    'POST / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n',
  ],
  [
    'a GET with a chunked body as one request',
    'GET http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\n',
    'GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nGET /\r\n0\r\n\r\n',
  ],
  [
    'an HTTP/1.0 request as HTTP/1.1',
    'GET http://127.0.0.1:PORT/a HTTP/1.0\r\nX: y\r\n\r\n',
    'GET /a HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nX: y\r\n\r\n',
  ],
  [
    'a body of length 0',
    'PUT http://127.0.0.1:PORT/a HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n',
    'PUT /a HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nContent-Length: 0\r\n\r\n',
  ],
  [
    'Host from the URL if the client sent none',
    'GET http://127.0.0.1:PORT/ HTTP/1.1\r\nA: b\r\n\r\n',
    'GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nA: b\r\n\r\n',
  ],
  [
    'no h2c offer',
    'GET http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n',
    'GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n\r\n',
  ],
  [
    'non-ASCII bytes in a value unchanged',
    'GET http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: x\r\nX: \xfc\r\n\r\n',
    'GET / HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nX: \xfc\r\n\r\n',
  ],
])('forward: the target sees %s', async (_what, request, expected) => {
  const { seen, received } = await exchange(request, OK);
  expect(seen).toBe(expected);
  expect(received).toContain('HTTP/1.1 200 OK\r\n');
});

/** Response bytes, and what the client must get. */
test.each<
  [string, string, string, { method?: string; version?: string; extra?: string; endAfter?: boolean }?]
>([
  ['a length', OK, `HTTP/1.1 200 OK\r\nContent-Length: 2\r\n${MEMBER_HEADERS}\r\nhi`],
  [
    'chunks with new framing and trailers',
    'HTTP/1.1 200 OK\r\nTrailer: X-T\r\ntransfer-encoding: chunked\r\nA: b\r\n\r\n1;x\r\nh\r\n1\r\ni\r\n0\r\nX-T: 1\r\n\r\n',
    `HTTP/1.1 200 OK\r\nTrailer: X-T\r\ntransfer-encoding: chunked\r\nA: b\r\n${MEMBER_HEADERS}\r\n2\r\nhi\r\n0\r\nX-T: 1\r\n\r\n`,
  ],
  [
    'chunks for a body that ends with the connection',
    'HTTP/1.0 200 Fine\r\nA: b\r\n\r\nhi',
    `HTTP/1.1 200 Fine\r\nA: b\r\n${MEMBER_HEADERS}Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n`,
    { endAfter: true },
  ],
  [
    'a body until close for HTTP/1.0 instead of chunks',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n2\r\nhi\r\n0\r\nX-T: 1\r\n\r\n',
    `HTTP/1.1 200 OK\r\n${MEMBER_HEADERS}Connection: close\r\n\r\nhi`,
    { version: '1.0' },
  ],
  [
    'Connection: keep-alive for an HTTP/1.0 client that asked for it',
    OK,
    `HTTP/1.1 200 OK\r\nContent-Length: 2\r\n${MEMBER_HEADERS}Connection: keep-alive\r\n\r\nhi`,
    { version: '1.0', extra: 'Connection: keep-alive\r\n' },
  ],
  [
    'Connection: close if it asked for it',
    OK,
    `HTTP/1.1 200 OK\r\nContent-Length: 2\r\n${MEMBER_HEADERS}Connection: close\r\n\r\nhi`,
    { extra: 'Connection: close\r\n' },
  ],
  [
    'HEAD',
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n',
    `HTTP/1.1 200 OK\r\nContent-Length: 2\r\n${MEMBER_HEADERS}\r\n`,
    { method: 'HEAD' },
  ],
  [
    'the response to HEAD without Transfer-Encoding',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n',
    `HTTP/1.1 200 OK\r\n${MEMBER_HEADERS}\r\n`,
    { method: 'HEAD' },
  ],
  [
    '204',
    'HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n',
    `HTTP/1.1 204 No Content\r\n${MEMBER_HEADERS}\r\n`,
  ],
  [
    '304 with a length',
    'HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n',
    `HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n${MEMBER_HEADERS}\r\n`,
  ],
  [
    'interim responses',
    `HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>; x\r\nConnection: x\r\nContent-Length: 5\r\n\r\n${OK}`,
    `HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>; x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n${MEMBER_HEADERS}\r\nhi`,
  ],
  [
    'no interim responses in HTTP/1.0',
    `HTTP/1.1 103 Early\r\n\r\n${OK}`,
    `HTTP/1.1 200 OK\r\nContent-Length: 2\r\n${MEMBER_HEADERS}Connection: close\r\n\r\nhi`,
    { version: '1.0' },
  ],
  [
    'fields in order, with case and duplicates, without hop-by-hop fields',
    'HTTP/1.1 200 \xdcber OK\r\nset-cookie: a=\xe4\r\nConnection: X-Hop\r\nX-Hop: 1\r\nSET-COOKIE: b\r\nProxy-Authenticate: Basic\r\nX-Noria-Member: lie\r\nKeep-Alive: 5\r\nContent-Length: 0\r\nDate: then\r\n\r\n',
    `HTTP/1.1 200 \xdcber OK\r\nset-cookie: a=\xe4\r\nSET-COOKIE: b\r\nContent-Length: 0\r\nDate: then\r\n${MEMBER_HEADERS}\r\n`,
  ],
])('forward: the client gets %s', async (_what, response, expected, options = {}) => {
  const { method = 'GET', version = '1.1', extra = '', endAfter = false } = options;
  const request = `${method} http://127.0.0.1:PORT/ HTTP/${version}\r\nHost: x\r\n${extra}\r\n`;
  const { received } = await exchange(request, response, {
    endAfter,
    done: (text) => text.length >= expected.length,
  });
  expect(received).toBe(expected);
});

test('forward: a slow response is forwarded as it arrives', async () => {
  const origin = await rawOrigin((socket) =>
    socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n')),
  );
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  await client.until('the head', (text) => text.endsWith('\r\n\r\n'));
  origin.sockets[0]?.write('data: 1\n\n');
  await client.until('the first event', (text) => text.endsWith('data: 1\n\n\r\n'));
  origin.sockets[0]?.end('data: 2\n\n');
  await client.until('the end', (text) => text.endsWith('data: 2\n\n\r\n0\r\n\r\n'));
});

test('forward: pipelined requests are served in order, and each picks its own member', async () => {
  const origin = await rawOrigin(answering(OK));
  const dialer = directDialer();
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  const get = (path: string) => `GET http://127.0.0.1:${origin.port}/${path} HTTP/1.1\r\nHost: x\r\n\r\n`;
  const release = dialer.hold();
  client.send(get('a') + get('b') + get('c'));
  await until('the first dial', () => dialer.requests.length > 0);
  expect(dialer.requests.length).toBe(1);
  release();
  const received = await client.until('three responses', (text) => text.split('hi').length === 4);
  expect([...received.matchAll(/X-Noria-Member: (\w+)/g)].map((match) => match[1])).toEqual([
    'm1',
    'm2',
    'm3',
  ]);
  expect(origin.seen.map((head) => head.slice(0, 6))).toEqual(['GET /a', 'GET /b', 'GET /c']);
});

test('forward: Expect reaches the target, and its 100 comes back before the body', async () => {
  const origin = await rawOrigin((socket) => {
    let all = '';
    socket.on('data', (chunk: Buffer) => {
      all += chunk.toString('latin1');
      if (all.endsWith('\r\n\r\n')) socket.write('HTTP/1.1 100 Continue\r\n\r\n');
      if (all.endsWith('body')) socket.write(OK);
    });
  });
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send(
    `POST http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n`,
  );
  await client.until('the 100', (text) => text === 'HTTP/1.1 100 Continue\r\n\r\n');
  expect(origin.seen[0]).toContain('Expect: 100-continue\r\n');
  client.send('body');
  await client.until('the response', (text) => text.endsWith('hi'));
  expect(client.received).not.toContain('Connection: close');
});

test('forward: a final response instead of a 100 closes the connection', async () => {
  const { received, client } = await exchange(
    'POST http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n',
    'HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n',
  );
  expect(received).toContain('Connection: close\r\n');
  await client.whole();
});

test('forward: an unknown expectation is refused with 417', async () => {
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send('GET http://127.0.0.1:9/ HTTP/1.1\r\nHost: x\r\nExpect: magic\r\n\r\n');
  const received = await client.until('the response', (text) => text.includes('\r\n\r\n'));
  expect(received).toMatch(/^HTTP\/1\.1 417 .*\r\n/);
  expect(received).toContain('X-Noria-Error: expectation-failed\r\n');
});

test('forward: a refusal instead of a 100 closes the connection', async () => {
  const { port } = await listen(directDialer(), {}, { denyTargets: ['private'] });
  const client = await RawClient.open(port);
  client.send(
    'POST http://127.0.0.1/ HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n',
  );
  expect(await client.whole()).toMatch(/^HTTP\/1\.1 403 .*Connection: close\r\n/s);
});

test('forward: an early response reaches a client that is still sending, and the connection stays usable', async () => {
  const origin = await rawOrigin(answering('HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n'));
  const dialer = directDialer();
  const { port, deadlines } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`PUT http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc`);
  await client.until('the response', (text) => text.startsWith('HTTP/1.1 413 '));
  expect(dialer.ended, 'after half a request the member connection is not reusable').toEqual([
    { cut: false, member: 'm1' },
  ]);
  client.send('defghij');
  client.send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  await client.until('the next response', (text) => text.includes('HTTP/1.1 400 '));
  expect(deadlines.size, 'the idle timeout and the delay of TCP keep-alive').toBe(2);
});

test.each([
  ['without a body', ''],
  ['with a body', 'Content-Length: 3\r\n'],
])(
  'forward: after a refused request %s the connection stays usable, and closing it disarms its timer',
  async (_what, fields) => {
    const { port, deadlines } = await listen(directDialer(), {}, { denyTargets: ['private'] });
    const client = await RawClient.open(port);
    for (const nth of [1, 2]) {
      client.send(`PUT http://127.0.0.1/ HTTP/1.1\r\nHost: x\r\n${fields}\r\n${fields === '' ? '' : 'abc'}`);
      await client.until('the refusal', (text) => text.split('HTTP/1.1 403 ').length === nth + 1);
      await until('the idle timeout and the delay of TCP keep-alive', () => deadlines.size === 2);
    }
    client.end();
    await until('no deadline', () => deadlines.size === 0);
    expect(client.received).not.toContain('Connection: close');
  },
);

test('forward: TCP keep-alive of a client connection is enabled after 30 s, not for short ones', async () => {
  const origin = await rawOrigin(answering(OK));
  const clock = ManualClock.dayOld();
  const { port, deadlines } = await listen(directDialer(), { deadlines: new Deadlines(clock, 5) });
  const client = await RawClient.open(port);
  const probed: unknown[] = [];
  const setKeepAlive = vi.spyOn(Socket.prototype, 'setKeepAlive').mockImplementation(function (
    this: Socket,
    ...args
  ) {
    probed.push([this.remotePort, ...args]);
    return this;
  });
  onTestFinished(() => setKeepAlive.mockRestore());
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  await client.until('the response', (text) => text.endsWith('hi'));
  const clientPort = client.socket.localPort;
  clock.advance(29_000);
  expect(probed.flat()).not.toContain(clientPort);
  clock.advance(2_000);
  expect(probed).toContainEqual([clientPort, true, 30_000]);
  client.end();
  await until('no deadline', () => deadlines.size === 0);
});

test('forward: a client that never finishes an answered request is cut off', async () => {
  const origin = await rawOrigin(answering('HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n'));
  const clock = ManualClock.dayOld();
  const { port, deadlines } = await listen(directDialer(), { deadlines: new Deadlines(clock, 5) });
  const client = await RawClient.open(port);
  client.send(`PUT http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc`);
  await client.until('the response', (text) => text.startsWith('HTTP/1.1 413 '));
  await until('the deadline of the body and the delay of TCP keep-alive', () => deadlines.size === 2);
  clock.advance(1_900);
  expect(deadlines.size).toBe(2);
  clock.advance(200);
  await client.whole();
});

test('forward: a target that does not read applies back-pressure to the client, and gets all of it when it reads again', async () => {
  let bytes = 0;
  const origin = await rawOrigin((socket) => {
    socket.once('data', () => socket.pause());
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
    });
  });
  const dialer = directDialer();
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  const size = 32 * 1024 * 1024;
  client.send(`PUT http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: ${size}\r\n\r\n`);
  const sent = client.sendBytes(size);
  await untilStill('back-pressure', () => sent.bytes);
  expect(sent.bytes).toBeLessThan(size);
  expect(dialer.sockets[0]?.writableLength).toBeLessThan(300 * 1024);
  origin.sockets[0]?.resume();
  await until('all of it', () => bytes > size);
});

test('forward: large uploads and downloads are complete, and a slow client applies back-pressure', async () => {
  const size = 8 * 1024 * 1024;
  let uploaded = 0;
  const origin = await rawOrigin((socket: Socket) => {
    socket.on('data', (chunk: Buffer) => {
      uploaded += chunk.length;
      if (uploaded < size) return;
      socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${size * 8}\r\n\r\n`);
      socket.end(Buffer.alloc(size * 8, 'd'));
    });
  });
  const dialer = directDialer();
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`PUT http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: ${size}\r\n\r\n`);
  client.socket.write(Buffer.alloc(size, 'u'));
  await client.until('the first bytes', (text) => text.length > 0);
  client.socket.pause();
  await until('back-pressure', () => dialer.sockets[0]?.isPaused() === true);
  expect(dialer.sockets[0]?.bytesRead).toBeLessThan(size * 8);
  client.socket.resume();
  await client.until('the whole response', (text) => text.length >= size * 8 + 60);
});

test('forward: in absolute form the member gets the whole URL and its own credentials', async () => {
  const origin = await rawOrigin(answering(OK));
  const dialer = directDialer({ absolute: { proxyAuthorization: 'Basic bTpw' }, to: origin });
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(
    'GET http://t.example/a?b HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic dTpw\r\nA: b\r\n\r\n',
  );
  await client.until('the response', (text) => text.endsWith('hi'));
  expect(origin.seen[0]).toBe(
    'GET http://t.example/a?b HTTP/1.1\r\nHost: t.example\r\nA: b\r\nProxy-Authorization: Basic bTpw\r\n\r\n',
  );
});

test('forward: the client can see that a response is incomplete', async () => {
  const { client, received } = await exchange(
    'GET http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: x\r\n\r\n',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n',
    { endAfter: true },
  );
  expect(received).toMatch(/^HTTP\/1\.1 200 /);
  await client.whole();
  expect(client.received).not.toContain('0\r\n\r\n');
});

test('forward: a kept member connection belongs to one address, session and user', async () => {
  const origin = await rawOrigin(answering(OK));
  const dialer = directDialer();
  const { port } = await listen(dialer);
  const send = async (localAddress: string, username: string) => {
    const socket = connect({ port, host: '127.0.0.1', localAddress });
    const authorization = Buffer.from(`${username}:`).toString('base64');
    socket.write(
      `GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic ${authorization}\r\n\r\n`,
    );
    await once(socket, 'data');
    socket.destroy();
    return dialer.requests.at(-1)?.owner;
  };
  const first = await send('127.0.0.1', 'me');
  expect(await send('127.0.0.1', 'me')).toBe(first);
  const others = [await send('127.0.0.2', 'me'), await send('127.0.0.1', 'me-session-a')];
  expect(new Set([first, ...others]).size).toBe(3);
});
