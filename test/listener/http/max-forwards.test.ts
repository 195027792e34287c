/** Max-Forwards of OPTIONS and TRACE (RFC 9110 §7.6.2). */
import { expect, test } from 'vitest';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient } from '../harness.ts';
import { answering, rawOrigin } from '../origin.ts';

/** Sends requests on one connection. Returns the Max-Forwards values that the target saw and what the client received. */
async function send(...requests: string[]): Promise<{ seen: string; received: string }> {
  const origin = await rawOrigin(answering('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi'));
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  for (const [index, request] of requests.entries()) {
    client.send(request.replaceAll('PORT', `${origin.port}`));
    await client.until('a response', (text) => text.split('\r\n\r\n').length > index + 1);
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
  // The value is not a number and is forwarded unchanged.
  ['OPTIONS', 'many', 'many'],
  // Max-Forwards has no meaning for other methods.
  ['GET', '0', '0'],
])('forward: %s with Max-Forwards %s is forwarded with %s', async (method, given, sent) => {
  const { seen } = await send(ask(method, `max-forwards: ${given}\r\n`));
  expect(seen).toContain(`${method} / HTTP/1.1\r\n`);
  expect(seen).toContain(`\r\nmax-forwards: ${sent}\r\n`);
});

test('forward: noria answers OPTIONS with Max-Forwards: 0, and the connection stays usable', async () => {
  const { seen, received } = await send(ask('OPTIONS', 'Max-Forwards: 0\r\n'), ask('GET', ''));
  expect(received).toMatch(
    /^HTTP\/1\.1 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\nHTTP\/1\.1 200 /,
  );
  expect(seen).toMatch(/^GET /);
});

test('forward: TRACE with Max-Forwards: 0 is refused, because noria does not reflect requests', async () => {
  const { seen, received } = await send(ask('TRACE', 'Max-Forwards: 0\r\nCookie: hush\r\n'));
  expect(received).toMatch(/^HTTP\/1\.1 501 /);
  expect(received).not.toContain('hush');
  expect(seen).toBe('');
});

test('forward: OPTIONS with Max-Forwards: 0 needs access too', async () => {
  const { port } = await listen(directDialer(), {}, { denyTargets: ['private'] });
  const client = (await RawClient.open(port)).send(
    ask('OPTIONS', 'Max-Forwards: 0\r\n').replace('PORT', '80'),
  );
  expect(await client.until('a response', (text) => text.includes('\r\n\r\n'))).toMatch(/^HTTP\/1\.1 403 /);
});

test('forward: of two Max-Forwards the lower one counts, and no other number changes', async () => {
  const both = 'Max-Forwards: 5\r\nX-Count: 7\r\nMax-Forwards: 0\r\n';
  expect((await send(ask('OPTIONS', both))).seen).toBe('');
  const { seen } = await send(ask('OPTIONS', 'Max-Forwards: 5\r\nX-Count: 7\r\nMax-Forwards: 2\r\n'));
  expect(seen).toContain('\r\nMax-Forwards: 4\r\nX-Count: 7\r\nMax-Forwards: 1\r\n');
});
