/** Invalid responses: the client gets noria's own reply, unless part of the response has already been sent. */
import { expect, test } from 'vitest';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient } from '../harness.ts';
import { answering, rawOrigin } from '../origin.ts';

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
