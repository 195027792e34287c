/** Invalid responses: the client gets noria's own reply, unless part of the response has already been sent. */
import { expect, test } from 'vitest';
import { hasFailedWrite } from '../../../src/dialer/member-socket.ts';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient } from '../harness.ts';
import { answering, OK, rawOrigin } from '../origin.ts';

const isWhole = (text: string) => text.endsWith('\n') && text.includes('\r\n\r\n');

test.each([
  ['its first chunk', 'Transfer-Encoding: chunked\r\n\r\nnonsense\r\n', 'a chunk size is malformed'],
  ['a later chunk', 'Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n', 'a chunk size is malformed'],
  [
    'the end of a chunk',
    'Transfer-Encoding: chunked\r\n\r\n3\r\nabcdef\r\n0\r\n\r\n',
    'a chunk is longer than its announced size',
  ],
  ['its trailers', 'Transfer-Encoding: chunked\r\n\r\n0\r\nno field\r\n\r\n', 'a header line is malformed'],
])(
  'forward: a response with an error in %s, received at once, becomes a 502 with the reason',
  async (_where, response, reason) => {
    const origin = await rawOrigin(answering(`HTTP/1.1 200 OK\r\n${response}`));
    const dialer = directDialer();
    const { port, events } = await listen(dialer);
    const client = await RawClient.open(port);
    client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
    const received = await client.until('a response', (text) => isWhole(text) || client.ended);
    expect(received).toMatch(/^HTTP\/1\.1 502 /);
    expect(received).toContain('X-Noria-Error: bad-answer\r\n');
    expect(received).toContain('error=http_protocol_error;');
    expect(received).toContain(reason);
    expect(events('client.refused')).toMatchObject([{ code: 'bad-answer' }]);
    expect(dialer.requests.length, 'no retry after a response').toBe(1);
    expect(client.ended, 'the connection stays open').toBe(false);
  },
);

test('forward: a response is cut off if it turns invalid after a part was sent', async () => {
  const origin = await rawOrigin((socket) => {
    socket.once('data', () =>
      socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n'),
    );
  });
  const { port, events } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  await client.until('the first part', (text) => text.endsWith('2\r\nhi\r\n'));
  origin.sockets[0]?.write('nonsense\r\n');
  expect(await client.whole()).not.toContain('502');
  expect(events('client.refused')).toEqual([]);
});

test('forward: a response that was cut off does not look complete to a client of HTTP/1.0', async () => {
  const origin = await rawOrigin((socket) => {
    socket.once('data', () => socket.write('HTTP/1.0 200 OK\r\n\r\nhalf'));
  });
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.0\r\n\r\n`);
  await client.until('the first part', (text) => text.endsWith('half'));
  origin.sockets[0]?.resetAndDestroy();
  await client.until('the close', () => client.closed);
  expect(client.ended, 'a reset and not an end').toBe(false);
});

test('forward: a 407 of the target becomes a 502 and is not a fault of the member', async () => {
  const question = 'HTTP/1.1 407 Auth\r\nProxy-Authenticate: Basic realm="t"\r\nContent-Length: 0\r\n\r\n';
  const origin = await rawOrigin(answering(question));
  const dialer = directDialer();
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  const received = await client.until('a response', isWhole);
  expect(received).toMatch(/^HTTP\/1\.1 502 /);
  expect(received).toContain('X-Noria-Error: bad-answer\r\n');
  expect(received).toContain('407');
  expect(received).not.toContain('Proxy-Authenticate');
  expect(dialer.ended).toEqual([{ cut: false, member: 'm1' }]);
  expect(dialer.requests.length).toBe(1);
});

test('forward: a response up to the end of its connection is incomplete after a reset that only a write has shown', async () => {
  const origin = await rawOrigin();
  const dialer = directDialer();
  const { port, events } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(
    `POST http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nsome`,
  );
  await until('the request', () => origin.seen[0]?.endsWith('some') === true);
  const [member] = dialer.sockets;
  const [target] = origin.sockets;
  if (member === undefined || target === undefined) throw new Error('no connection to the target');
  // noria reads the response only after its write has failed: then the kernel reports the end, and no reset
  member.pause();
  target.write('HTTP/1.1 200 OK\r\n\r\nhalf');
  await until('the response was sent', () => target.writableLength === 0);
  target.resetAndDestroy();
  await until('the reset', () => target.closed);
  await until('the failed write', () => {
    client.send('more');
    return hasFailedWrite(member);
  });
  member.resume();
  const received = await client.whole();
  expect(received).not.toContain('0\r\n\r\n');
  await until('the event', () => events('connection.closed').length === 1);
  expect(events('connection.closed')).toMatchObject([{ outcome: 'members-failed' }]);
});

test('forward: a kept connection carries no listener of an earlier request', async () => {
  const origin = await rawOrigin(answering(OK));
  const dialer = directDialer({ reuse: true });
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  const counts = () =>
    ['data', 'end', 'close', 'drain', 'error'].map((name) => dialer.sockets[0]?.listenerCount(name));
  const seen: unknown[] = [];
  for (let n = 1; n <= 3; n += 1) {
    client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
    await client.until('a response', (text) => text.split('hi').length === n + 1);
    seen.push(counts());
  }
  expect(origin.sockets.length, 'one connection for all requests').toBe(1);
  expect(seen[0]).toMatchObject([0, expect.anything(), expect.anything(), 0, expect.anything()]);
  expect(seen).toEqual([seen[0], seen[0], seen[0]]);
});

test('forward: a member that fails after an interim response is answered for by noria', async () => {
  const origin = await rawOrigin((socket) => {
    socket.once('data', () => socket.write('HTTP/1.1 103 Early Hints\r\n\r\n'));
  });
  const { port, events } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  await client.until('the hints', (text) => text.endsWith('\r\n\r\n'));
  origin.sockets[0]?.resetAndDestroy();
  const received = await client.until('a response', (text) => client.ended || text.includes('X-Noria-Error'));
  expect(received).toContain('HTTP/1.1 502 ');
  expect(events('client.refused')).toMatchObject([{ code: 'members-failed' }]);
});
