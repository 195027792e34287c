import { createServer } from 'node:net';
import { expect, test } from 'vitest';
import { listenFailure } from '../../src/core/listen-address.ts';

test.each([
  ['EADDRINUSE', /address in use.*stop it, or choose another port/],
  ['EACCES', /permission denied.*a port above 1023, or grant CAP_NET_BIND_SERVICE/],
  ['EADDRNOTAVAIL', /no such address; use 127\.0\.0\.1, or/],
  ['EAFNOSUPPORT', /no IPv6; use an IPv4 address/],
  ['ENOTFOUND', /host name does not exist; use an IP address/],
  ['EBADF', /no such file descriptor/],
  ['constructor', /: listen failed$/],
  [undefined, /: listen failed$/],
])('listen failure: %s names the cause and the remedy', (code, message) => {
  const error = listenFailure('192.0.2.1:80', Object.assign(new Error('listen failed'), { code }));
  expect(error).toMatchObject({
    code: 'listen-failed',
    message: expect.stringMatching(/^cannot listen on 192\.0\.2\.1:80: /),
  });
  expect(error.message).toMatch(message);
});

test('listen failure: says when this machine does not have the address', async () => {
  const cause = await new Promise<Error>((resolve) =>
    createServer().once('error', resolve).listen(0, '192.0.2.1'),
  );
  expect(listenFailure('192.0.2.1:0', cause).message).toMatch(/this machine has no such address/);
});
