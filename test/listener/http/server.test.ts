import { expect, test } from 'vitest';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient } from '../harness.ts';
import { answering, rawOrigin } from '../origin.ts';

test('CONNECT: the response comes after a member has accepted, then bytes flow both ways', async () => {
  const origin = await rawOrigin((socket) => socket.on('data', (chunk) => socket.write(chunk)));
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send(`CONNECT 127.0.0.1:${origin.port} HTTP/1.1\r\nHost: x\r\n\r\n`);
  await client.until('the response', (text) => text.endsWith('\r\n\r\n'));
  expect(client.received).toBe(
    'HTTP/1.1 200 Connection established\r\nX-Noria-Member: m1\r\nX-Noria-Attempts: 1\r\n\r\n',
  );
  client.send('ping');
  await client.until('the echo', (text) => text.endsWith('ping'));
});

test('forward: an absolute-form GET reaches the target in origin form', async () => {
  const origin = await rawOrigin(answering('HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-a: 1\r\n\r\nhi'));
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/a?b HTTP/1.1\r\nHost: other\r\nX-Case: Kept\r\n\r\n`);
  await client.until('the response', (text) => text.endsWith('hi'));
  expect(origin.seen[0]).toBe(`GET /a?b HTTP/1.1\r\nHost: 127.0.0.1:${origin.port}\r\nX-Case: Kept\r\n\r\n`);
  expect(client.received).toBe(
    'HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-a: 1\r\nX-Noria-Member: m1\r\nX-Noria-Attempts: 1\r\n\r\nhi',
  );
});
