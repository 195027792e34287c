/** RFC 9110 §7.6.2: how far an OPTIONS or a TRACE may go, and who answers it there. */
import { expect, test } from 'vitest';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient } from '../harness.ts';
import { answering, rawOrigin } from '../origin.ts';

/** The fields of what the target saw, if it saw anything, and what the client got; over one connection, in order. */
async function send(...requests: string[]): Promise<{ seen: string; received: string }> {
  const origin = await rawOrigin(answering('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi'));
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  for (const [index, request] of requests.entries()) {
    client.send(request.replaceAll('PORT', `${origin.port}`));
    await client.until('an answer', (text) => text.split('\r\n\r\n').length > index + 1);
  }
  return { seen: origin.seen.join('').replaceAll(`${origin.port}`, 'PORT'), received: client.received };
}

const ask = (method: string, fields: string) =>
  `${method} http://127.0.0.1:PORT/ HTTP/1.1\r\nHost: x\r\n${fields}\r\n`;

test.each([
  ['OPTIONS', '10', '9'],
  ['TRACE', '1', '0'],
  ['OPTIONS', '007', '6'],
  ['OPTIONS', '99999999999999999999', '99999999999999999998'],
  // Not a number: what it means is for someone who knows it.
  ['OPTIONS', 'many', 'many'],
  // Of any other method it may be ignored, and is.
  ['GET', '0', '0'],
])('forward: %s with Max-Forwards %s goes on with %s', async (method, given, sent) => {
  const { seen } = await send(ask(method, `max-forwards: ${given}\r\n`));
  expect(seen).toContain(`${method} / HTTP/1.1\r\n`);
  expect(seen).toContain(`\r\nmax-forwards: ${sent}\r\n`);
});

test('forward: an OPTIONS that may go no further is answered here, and the connection goes on', async () => {
  const { seen, received } = await send(ask('OPTIONS', 'Max-Forwards: 0\r\n'), ask('GET', ''));
  expect(received).toMatch(
    /^HTTP\/1\.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\nHTTP\/1\.1 200 /,
  );
  expect(seen).toMatch(/^GET /);
});

test('forward: a TRACE that may go no further is refused, since noria reflects no request', async () => {
  const { seen, received } = await send(ask('TRACE', 'Max-Forwards: 0\r\nCookie: hush\r\n'));
  expect(received).toMatch(/^HTTP\/1\.1 501 /);
  expect(received).not.toContain('hush');
  expect(seen).toBe('');
});

test('forward: who may not use noria is not answered its OPTIONS either', async () => {
  const { port } = await listen(directDialer(), {}, { denyTargets: ['private'] });
  const client = (await RawClient.open(port)).send(
    ask('OPTIONS', 'Max-Forwards: 0\r\n').replace('PORT', '80'),
  );
  expect(await client.until('an answer', (text) => text.includes('\r\n\r\n'))).toMatch(/^HTTP\/1\.1 403 /);
});
