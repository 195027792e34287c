/** Arbitrary bytes at any port of the sandbox end only their own connection. */

import { connect } from 'node:net';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ask, draw, type Entry, getThrough, open } from './client.ts';

/** Sends bytes and ends its side. Resolves when the connection is closed, for whatever reason. */
function poke({ ip, port }: Entry, bytes: Uint8Array): Promise<void> {
  const socket = connect({ host: ip, port });
  socket.on('error', () => {}); // ignored: the sandbox may reset it
  socket.resume().end(bytes);
  return new Promise((resolve) => socket.once('close', () => resolve()));
}

/** Bytes that begin like requests, so that they pass the first check. */
const hostile = fc
  .tuple(
    fc.constantFrom(
      '',
      '\x05',
      '\x05\x01\x00',
      '\x05\x01\x00\x05\x01\x00\x03',
      '\x04\x01',
      '\x04\x01\x00\x50\x00\x00\x00\x01a\x00',
      'CONNECT ',
      'CONNECT 127.0.0.1:1 HTTP/1.1\r\n',
      'GET http://127.0.0.1:1/ HTTP/1.1\r\n',
      'GET /ShortProxy/GetIP/?api=%ff HTTP/1.1\r\nHost: a\r\n',
      'POST /_control/rules HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n',
    ),
    fc.uint8Array({ maxLength: 300 }),
  )
  .map(([head, rest]) => Buffer.concat([Buffer.from(head, 'latin1'), rest]));

test('sandbox: arbitrary bytes end only their own connection', async () => {
  const sandbox = await open({ paceMs: 0 });
  const portOf = (url: string): Entry => ({ ip: '127.0.0.1', port: Number(new URL(url).port) });
  const [http] = await draw(sandbox, 'short-classic', { count: '1' });
  const [socks5] = await draw(sandbox, 'short-socks5', { count: '1' });
  const [socks4] = await draw(sandbox, 'free', { count: '1', protocol_type: '2' });
  const [dribbling] = await draw(sandbox, 'shared', { count: '1', pro: '1' });
  if (!http || !socks5 || !socks4 || !dribbling) throw new Error('too few were drawn');
  const own = sandbox.members(sandbox.instance('shared').id)[0];
  await sandbox.setBehaviour(own?.id ?? '', { how: 'dribble' });
  const ports = [
    http,
    socks5,
    socks4,
    dribbling,
    portOf(sandbox.url),
    portOf(sandbox.extractUrl),
    portOf(sandbox.targetUrl),
  ];

  await fc.assert(
    fc.asyncProperty(hostile, async (bytes) => {
      await Promise.all(ports.map((port) => poke(port, bytes)));
    }),
    { numRuns: 60 },
  );
  expect((await ask(sandbox, 'short-classic')).code).toBe('10001');
  expect((await getThrough(http, `${sandbox.targetUrl}/ip`)).status).toBe(200);
  expect(sandbox.rules.list()).toEqual([]);
});
