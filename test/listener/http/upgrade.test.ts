import { expect, test } from 'vitest';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient } from '../harness.ts';
import { answering, rawOrigin } from '../origin.ts';

const ask = (port: number, behind = '') =>
  `GET http://127.0.0.1:${port}/chat HTTP/1.1\r\nHost: x\r\nProxy-Connection: keep-alive\r\nconnection: Upgrade\r\n` +
  `Upgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\n${behind}`;
const GRANTED =
  'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: a\r\n\r\n';
const MEMBER_HEADERS = 'X-Noria-Member: m1\r\nX-Noria-Attempts: 1\r\n';

test('upgrade: after a 101 both sides are joined, with the bytes that each has sent early', async () => {
  const origin = await rawOrigin((socket) => {
    socket.once('data', () => {
      socket.write(`${GRANTED}server first `);
      socket.on('data', (chunk: Buffer) => socket.write(`<${chunk.toString()}>`));
    });
  });
  const { port, events, listener } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(ask(origin.port, 'client first'));
  const expected = `${GRANTED.slice(0, -2)}${MEMBER_HEADERS}\r\nserver first <client first>`;
  await client.until('both first bytes', (text) => text.length >= expected.length);
  expect(client.received).toBe(expected);
  expect(origin.seen[0]).toBe(
    `GET /chat HTTP/1.1\r\nHost: 127.0.0.1:${origin.port}\r\nconnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: k\r\n\r\nclient first`,
  );
  client.send('frame');
  await client.until('the echo', (text) => text.endsWith('<frame>'));
  origin.sockets[0]?.end();
  await client.whole();
  client.end();
  await until('the end of the connection', () => listener.connectionCount === 0);
  const bytes = {
    bytesUp: origin.seen[0]?.length,
    bytesDown: `${GRANTED}server first <client first><frame>`.length,
  };
  expect(events('tunnel.closed')).toMatchObject([{ kind: 'tunnel', member: 'm1', ...bytes }]);
  expect(events('connection.closed')).toMatchObject([{ protocol: 'upgrade', outcome: 'ok' }]);
});

test('upgrade: the client gets a 101 without a length', async () => {
  const origin = await rawOrigin(answering(`${GRANTED.slice(0, -2)}Content-Length: 5\r\n\r\nframe`));
  const { port } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(ask(origin.port));
  await client.until('the first bytes', (text) => text.endsWith('frame'));
  expect(client.received).toBe(`${GRANTED.slice(0, -2)}${MEMBER_HEADERS}\r\nframe`);
});

test('upgrade: a refusal of the target reaches the client, and the connection stays usable', async () => {
  const origin = await rawOrigin(
    answering('HTTP/1.1 426 No\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nno'),
  );
  const { port, listener } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(ask(origin.port));
  await client.until('the refusal', (text) => text.endsWith('no'));
  expect(client.received).toBe(`HTTP/1.1 426 No\r\nContent-Length: 2\r\n${MEMBER_HEADERS}\r\nno`);
  client.send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  await client.until('the next response', (text) => text.includes('HTTP/1.1 400 '));
  client.end();
  await until('the end of the connection', () => listener.connectionCount === 0);
});

test('upgrade: a member that fails before its response is replaced', async () => {
  const origin = await rawOrigin((socket, index) =>
    socket.once('data', () => (index === 0 ? socket.resetAndDestroy() : socket.write(GRANTED))),
  );
  const { port } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(ask(origin.port, 'ahead'));
  await client.until('the 101', (text) => text.includes('\r\n\r\n'));
  expect(client.received).toContain('X-Noria-Member: m2\r\nX-Noria-Attempts: 2\r\n');
  await until('what was sent ahead arrived', () => origin.seen[1]?.endsWith('\r\n\r\nahead') === true);
});

test('upgrade: a failed dial is answered', async () => {
  const dialer = directDialer();
  dialer.failures.push({ code: 'pool-empty', reason: 'Nobody.', attempts: 0, retryAfterMs: 1_000 });
  const { port, listener } = await listen(dialer);
  const client = (await RawClient.open(port)).send(ask(9));
  const received = await client.until('the reply', (text) => text.includes('\r\n\r\n'));
  expect(received).toMatch(/^HTTP\/1\.1 503 /);
  client.end();
  await until('the end of the connection', () => listener.connectionCount === 0);
});

test('upgrade: a 101 without a request for it becomes a 502', async () => {
  const origin = await rawOrigin(answering(GRANTED));
  const { port, events } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(
    `GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`,
  );
  const received = await client.until('the response', (text) => text.includes('\r\n\r\n'));
  expect(received).toMatch(/^HTTP\/1\.1 502 /);
  expect(events('client.refused')).toMatchObject([{ code: 'bad-answer' }]);
});

test('upgrade: a client that leaves while it waits ends the exchange', async () => {
  const origin = await rawOrigin();
  const dialer = directDialer();
  const { port, listener } = await listen(dialer);
  const client = (await RawClient.open(port)).send(ask(origin.port));
  await until('the request at the target', () => origin.seen[0]?.includes('websocket') === true);
  client.socket.resetAndDestroy();
  await until('the end of the connection', () => listener.connectionCount === 0 && dialer.ended.length === 1);
});

test('upgrade: a request with a body is not an upgrade', async () => {
  const origin = await rawOrigin(answering('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'));
  const { port } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(
    `POST http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 1\r\n\r\nx`,
  );
  await client.until('the response', (text) => text.includes('\r\n\r\n'));
  expect(origin.seen[0]).toBe(
    `POST / HTTP/1.1\r\nHost: 127.0.0.1:${origin.port}\r\nContent-Length: 1\r\n\r\nx`,
  );
});

test('upgrade: a client that leaves by FIN while it waits ends the exchange', async () => {
  const origin = await rawOrigin();
  const dialer = directDialer();
  const { port, listener, events } = await listen(dialer);
  const client = (await RawClient.open(port)).send(ask(origin.port));
  await until('the request at the target', () => origin.seen[0]?.includes('websocket') === true);
  client.end();
  await until('the end of the connection', () => listener.connectionCount === 0 && dialer.ended.length === 1);
  expect(dialer.ended).toEqual([{ cut: false, member: 'm1' }]);
  expect(events('connection.closed')).toMatchObject([{ outcome: 'client-gone' }]);
});

test('upgrade: what follows a request to switch protocols is the next request if the target ignores it', async () => {
  const origin = await rawOrigin(answering('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));
  const dialer = directDialer();
  const release = dialer.hold();
  const { port } = await listen(dialer);
  const next = `POST http://127.0.0.1:${origin.port}/2 HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n`;
  const client = (await RawClient.open(port)).send(ask(origin.port, next));
  await until('the dial', () => dialer.requests.length === 1);
  client.send('body');
  release();
  await client.until('both answers', (text) => text.split('\r\n\r\nok').length === 3);
  expect(origin.seen[1]).toBe(
    `POST /2 HTTP/1.1\r\nHost: 127.0.0.1:${origin.port}\r\nContent-Length: 4\r\n\r\nbody`,
  );
});
