import { once } from 'node:events';
import { connect as connectTls } from 'node:tls';
import { expect, test } from 'vitest';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient } from '../harness.ts';

const whole = (text: string) => /\r\n\r\n.*\n$/s.test(text);
const absolute = (target: string, fields = '') => `POST ${target} HTTP/1.1\r\nHost: hush\r\n${fields}\r\n`;
const PROXY_V2 = '\r\n\r\n\0\r\nQUIT\n!\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01\x01\xbb\x01\xbb';

test.each([
  ['a port above 65535', 'CONNECT hush:99999 HTTP/1.1\r\n\r\n', 'port of the CONNECT target is not between'],
  ['no port', 'CONNECT hush HTTP/1.1\r\n\r\n', 'CONNECT target is not HOST:PORT'],
  ['no host', 'CONNECT hush@b:443 HTTP/1.1\r\n\r\n', 'host of the CONNECT target is not a host name'],
  ['an ftp URL', absolute('ftp://hush/'), 'request target does not start with http://; use CONNECT or SOCKS'],
  ['a wrong port in its URL', absolute('http://hush:99999/'), 'its port is not between 1 and 65535'],
  [
    'two framings',
    absolute('http://hush/', 'Content-Length: 3\r\nTransfer-Encoding: chunked\r\n'),
    'has both Content-Length and Transfer-Encoding',
  ],
  ['a wrong length', absolute('http://hush/', 'Content-Length: hush\r\n'), 'Content-Length is not a number'],
  ['a bad header line', absolute('http://hush/', 'hush : 1\r\n'), 'white space before the colon'],
  ['a bare LF', 'GET http://hush/ HTTP/1.1\nHost: hush\n\n', 'ends in LF instead of CR LF'],
  ['a TLS handshake', '\x16\x03\x01\x02\0\x01\0\x01\xfchush', 'http:// instead of https:// in the proxy URL'],
  ['a PROXY protocol header', 'PROXY TCP4 192.0.2.1 192.0.2.2 9 443\r\n', 'a PROXY protocol header'],
  ['a PROXY protocol header of version 2', PROXY_V2, 'a PROXY protocol header'],
  ['another protocol', 'hush hush hush\r\n', 'the first line is not METHOD TARGET HTTP/1.1'],
])(
  'refusal reasons: a client and the log learn why a request with %s is refused',
  async (_what, request, reason) => {
    const { port, events } = await listen(directDialer());
    const client = (await RawClient.open(port)).send(request);
    const [, body = ''] = (await client.until('the response', whole)).split('\r\n\r\n');
    const [refusal] = events('client.refused');
    expect(refusal?.code).toBe('bad-request');
    for (const text of [body, refusal?.detail]) {
      expect(text?.toLowerCase()).toContain(reason.toLowerCase());
      expect(text, 'the bytes of the client').not.toContain('hush');
    }
  },
);

test('refusal reasons: the refusal of a TLS client at a port without TLS says what to do', async () => {
  const { port, events } = await listen(directDialer());
  const client = connectTls({ host: '127.0.0.1', port });
  await once(client, 'error'); // the client cannot read a reply that is not TLS
  await until('the event', () => events('connection.closed').length === 1);
  expect(events('client.refused')).toMatchObject([
    { code: 'bad-request', detail: expect.stringContaining('write http:// instead of https://') },
  ]);
});
