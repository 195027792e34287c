/** When noria reuses the connection to a member, and when it sends a forwarded request again. */
import type { Socket } from 'node:net';
import { expect, test } from 'vitest';
import type { Dialer } from '../../../src/dialer/contract.ts';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient, untilStill } from '../harness.ts';
import { answering, OK, type RawOrigin, rawOrigin } from '../origin.ts';

test('forward: a clean member connection is returned, and only idempotent requests reuse it', async () => {
  const origin = await rawOrigin(answering(OK));
  const dialer = directDialer({ reuse: true });
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  const send = async (method: string, nth: number) => {
    client.send(`${method} http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
    await client.until('the response', (text) => text.split('hi').length === nth + 1);
  };
  await send('GET', 1);
  await send('GET', 2);
  await send('POST', 3);
  expect(dialer.requests.map((request) => request.noReuse)).toEqual([false, false, true]);
  expect(dialer.ended.map((end) => end.keep)).toEqual([true, true, true]);
  expect(origin.sockets.length).toBe(2);
});

test.each([
  ['the target sends Connection: close', 'HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n'],
  ['the target speaks HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n'],
  ['bytes follow the response', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n'],
])('forward: a member connection is not returned if %s', async (_when, response) => {
  const origin = await rawOrigin(answering(response));
  const dialer = directDialer();
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  await client.until('the response', (text) => text.includes('\r\n\r\n'));
  await until('the end of the lease', () => dialer.ended.length > 0);
  expect(dialer.ended).toEqual([{ cut: false, member: 'm1' }]);
  expect(dialer.sockets[0]?.destroyed).toBe(true);
});

test('forward: a member that fails before the first response byte is replaced, and the body is sent again', async () => {
  const origin = await rawOrigin((socket, index) => {
    let all = '';
    socket.on('data', (chunk: Buffer) => {
      all += chunk.toString('latin1');
      if (!all.endsWith('body')) return;
      if (index === 0) socket.resetAndDestroy();
      else socket.write(OK);
    });
  });
  const dialer = directDialer();
  const { port, events, deadlines } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`PUT http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody`);
  const received = await client.until('the response', (text) => text.endsWith('hi'));
  expect(received).toContain('X-Noria-Member: m2\r\nX-Noria-Attempts: 2\r\n');
  expect(origin.seen[1]).toBe(origin.seen[0]);
  expect(dialer.requests[1]).toMatchObject({ noReuse: true, avoid: ['m1'] });
  expect(dialer.ended).toEqual([
    { cut: true, member: 'm1' },
    { cut: false, member: 'm2' },
  ]);
  expect(events('tunnel.closed').map(({ member, kind }) => `${kind} ${member}`)).toEqual([
    'forward m1',
    'forward m2',
  ]);
  client.end();
  await until('no deadline', () => deadlines.size === 0);
});

test('forward: a dead idle connection is replaced by a fresh one', async () => {
  const origin = await rawOrigin((socket, index) => {
    let count = 0;
    socket.on('data', () => {
      count += 1;
      if (index === 0 && count === 2) socket.resetAndDestroy();
      else socket.write(OK);
    });
  });
  const dialer = directDialer({ reuse: true });
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  for (const nth of [1, 2]) {
    client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
    await client.until('the response', (text) => text.split('hi').length === nth + 1);
  }
  expect(dialer.requests.map(({ noReuse, avoid }) => ({ noReuse, avoid }))).toEqual([
    { noReuse: false, avoid: [] },
    { noReuse: false, avoid: [] },
    { noReuse: true, avoid: [] },
  ]);
  expect(dialer.ended[1]).toEqual({ cut: true, member: 'm2' });
});

const dying = (socket: Socket) => socket.once('data', () => socket.resetAndDestroy());

test('forward: a request that is not idempotent is sent once', async () => {
  const origin = await rawOrigin(dying);
  const dialer = directDialer();
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`POST http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n`);
  const received = await client.until('the response', (text) => text.includes('\r\n\r\n'));
  expect(received).toMatch(/^HTTP\/1\.1 502 /);
  expect(received).toContain('X-Noria-Error: members-failed\r\n');
  expect(received).toContain('X-Noria-Attempts: 1\r\n');
  expect(origin.seen.length).toBe(1);
});

test('forward: a request with a large body is sent once', async () => {
  const size = 100_000;
  const origin = await rawOrigin((socket) => {
    let bytes = 0;
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > size) socket.resetAndDestroy();
    });
  });
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send(`PUT http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: ${size}\r\n\r\n`);
  client.socket.write(Buffer.alloc(size, 'x'));
  const received = await client.until('the response', (text) => text.includes('\r\n\r\n'));
  expect(received).toMatch(/^HTTP\/1\.1 502 /);
  expect(origin.seen.length).toBe(1);
});

/** Sends a GET request, and expects a 502 after three attempts. Returns the function that reads the events. */
async function expectFailure(dialer: Dialer, origin: RawOrigin) {
  const { port, events } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  const received = await client.until('the response', (text) => text.includes('\r\n\r\n'));
  expect(received).toMatch(/^HTTP\/1\.1 502 /);
  expect(received).toContain('X-Noria-Attempts: 3\r\n');
  return events;
}

test('forward: after three dials the client gets the failure', async () => {
  const origin = await rawOrigin(dying);
  const dialer = directDialer();
  const events = await expectFailure(dialer, origin);
  expect(dialer.requests.map(({ avoid }) => avoid)).toEqual([[], ['m1'], ['m1', 'm2']]);
  expect(events('client.refused')).toMatchObject([{ code: 'members-failed' }]);
  expect(events('client.refused')[0]).not.toHaveProperty('dialFailed');
});

test('forward: a failed dial after a failed member reports all attempts', async () => {
  const dialer = directDialer();
  const origin = await rawOrigin((socket) =>
    socket.once('data', () => {
      dialer.failures.push({ code: 'members-failed', reason: 'None left.', attempts: 2 });
      socket.resetAndDestroy();
    }),
  );
  const events = await expectFailure(dialer, origin);
  expect(events('client.refused')).toMatchObject([{ code: 'members-failed', dialFailed: true }]);
});

test('forward: a response with ambiguous framing becomes a 502 without a retry', async () => {
  const origin = await rawOrigin(
    answering('HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n'),
  );
  const { port, events } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
  const received = await client.until('the response', (text) => text.includes('\r\n\r\n'));
  expect(received).toMatch(/^HTTP\/1\.1 502 /);
  expect(events('client.refused')[0]?.detail).toContain('both Content-Length and Transfer-Encoding');
  expect(origin.seen.length).toBe(1);
});

test('forward: a 407 of the member never reaches the client, and the request is retried', async () => {
  const origin = await rawOrigin((socket, index) => {
    const question = 'HTTP/1.1 407 Auth\r\nProxy-Authenticate: Basic realm="m"\r\nContent-Length: 0\r\n\r\n';
    socket.on('data', () => socket.write(index === 0 ? question : OK));
  });
  const dialer = directDialer({ absolute: {}, to: origin });
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send('POST http://t.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx');
  const received = await client.until('the response', (text) => text.endsWith('hi'));
  expect(received).toMatch(/^HTTP\/1\.1 200 /);
  expect(dialer.ended[0]).toEqual({ cut: false, proxyAuthRequired: true, member: 'm1' });
  expect(dialer.requests[1], 'the same member may accept other credentials').toMatchObject({ avoid: [] });
});

/** A target that resets its first connection after this many bytes of a request, and answers the others. */
const dyingAfter = (bytes: number) =>
  rawOrigin((socket, index) => {
    let seen = 0;
    socket.on('data', (chunk: Buffer) => {
      seen += chunk.length;
      if (seen < bytes) return;
      if (index === 0) socket.resetAndDestroy();
      else socket.write(OK);
    });
  });

test.each([
  [65_536, 200, 2],
  [65_537, 502, 1],
])('forward: a body of %i bytes is answered with %i after %i sends', async (size, status, sends) => {
  const head = (port: number) =>
    `PUT http://127.0.0.1:${port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: ${size}\r\n\r\n`;
  const origin = await dyingAfter(
    head(12_345).length - 'http://127.0.0.1:12345'.length + '127.0.0.1:12345'.length - 1 + size,
  );
  const { port } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(head(origin.port));
  // In many parts: their number must not matter.
  for (let at = 0; at < size; at += 2_048) client.send('x'.repeat(Math.min(2_048, size - at)));
  const received = await client.until('the response', (text) => text.includes('\r\n\r\n'));
  expect(received).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  expect(origin.seen.length).toBe(sends);
  if (sends === 2) expect(origin.seen[1]?.split('\r\n\r\n')[1]).toBe('x'.repeat(size));
});

test('forward: chunks and trailers are sent again as they were', async () => {
  const request = (port: number) =>
    `PUT http://127.0.0.1:${port}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`;
  const origin = await rawOrigin((socket, index) => {
    let text = '';
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString('latin1');
      if (!text.endsWith('X-T: 1\r\n\r\n')) return;
      if (index === 0) socket.resetAndDestroy();
      else socket.write(OK);
    });
  });
  const { port } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(request(origin.port));
  const parts = Array.from({ length: 20 }, (_, nth) => `<${nth}>`);
  for (const part of parts) {
    client.send(`${part.length}\r\n${part}\r\n`);
    await until('the part', () => origin.seen[0]?.endsWith(`${part}\r\n`) === true);
  }
  client.send('0\r\nX-T: 1\r\nHost: y\r\n\r\n');
  await client.until('the response', (text) => text.endsWith('hi'));
  expect(origin.seen[1]?.match(/<\d+>/g)).toEqual(parts);
  expect(origin.seen[1]).toMatch(/\r\n0\r\nX-T: 1\r\n\r\n$/);
});

test('forward: a body that comes during the dial waits at the client, and arrives whole', async () => {
  const size = 64 * 1024 * 1024;
  let bytes = 0;
  const origin = await rawOrigin((socket) =>
    socket.on('data', (chunk: Buffer) => {
      bytes += chunk.length;
      if (bytes > size) socket.write(OK);
    }),
  );
  const dialer = directDialer();
  const release = dialer.hold();
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(`PUT http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\nContent-Length: ${size}\r\n\r\n`);
  const sent = client.sendBytes(size);
  await untilStill('back-pressure', () => sent.bytes);
  expect(sent.bytes).toBeLessThan(size / 2);
  release();
  await client.until('the response', (text) => text.endsWith('hi'));
});
