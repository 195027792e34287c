/** Calls of the service through front proxies of other projects, and what a call reports when a front proxy fails. */
import { readFileSync } from 'node:fs';
import { connect, type LookupFunction } from 'node:net';
import tls from 'node:tls';
import { describe, expect, onTestFinished, test } from 'vitest';
import { hasCode } from '../../src/core/faults.ts';
import { parseHostPort } from '../../src/core/host-port.ts';
import { type FrontFailure, FrontHandshake, openFrontTunnel } from '../../src/dialer/front-proxy.ts';
import { extract } from '../../src/service/client.ts';
import { FRONT_PROXIES, frontProxyAt, openBrokenProxy } from '../foreign-members/front-proxies.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { hasCommand } from '../support/tools.ts';
import { until } from '../support/until.ts';
import { drawFrom, openClient } from './calls.ts';
import { closedPort, stubService, stubSocket } from './stub-service.ts';

const FIXTURES = new URL('../fixtures/service/tls/', import.meta.url);
const IDENTITY = {
  cert: readFileSync(new URL('localhost.cert.pem', FIXTURES)),
  key: readFileSync(new URL('localhost.key.pem', FIXTURES)),
};
const guard = { mark: 'noria-0', ownAddresses: () => [] };
const EMPTY = '{"code":"12009","msg":"none"}';

function clientThrough(url: string, more: Parameters<typeof openClient>[0] = {}) {
  const front = frontProxyAt(url);
  return openClient({
    openTunnel: (server, done) => openFrontTunnel({ front, server, guard }, done),
    ...more,
  });
}

/** Returns the error of a call through this front proxy. */
async function errorThrough(url: string, more: Parameters<typeof openClient>[0] = {}) {
  const service = await stubService((response) => response.end(EMPTY));
  const error: unknown = await clientThrough(url, more)
    .extract(drawFrom(service.baseUrl))
    .catch((reason: unknown) => reason);
  expect(service.accepted(), 'connections to the service').toBe(0);
  return error;
}

describe.each(FRONT_PROXIES)('service through $name', ({ command, open }) => {
  const isMissing = command !== undefined && !hasCommand(command);

  test.skipIf(isMissing)('the tunnel to the service is open before the call is written', async () => {
    const service = await stubService((response) => response.end(EMPTY));
    const call = drawFrom(service.baseUrl);
    const transport = await clientThrough(await open()).connect(call);
    onTestFinished(() => transport.close());
    await until('the service has the connection', () => service.accepted() === 1);
    expect(service.received).toEqual([]);
    const { code } = await extract(transport, call, { refuses: () => undefined });
    expect(code).toBe('12009');
    expect(service.received).toHaveLength(1);
    expect(service.received[0]?.headers, 'the login is for the front proxy').not.toHaveProperty(
      'proxy-authorization',
    );
  });

  test.skipIf(isMissing)('TLS to the service is inside the tunnel', async () => {
    const url = await open();
    const service = await stubService((response) => response.end(EMPTY), IDENTITY);
    const trusted = tls.getCACertificates();
    tls.setDefaultCACertificates([...trusted, IDENTITY.cert.toString()]);
    try {
      const { code } = await clientThrough(url).extract(drawFrom(`https://localhost:${service.port}`));
      expect(code).toBe('12009');
    } finally {
      tls.setDefaultCACertificates(trusted);
    }
  });
});

test('service through a front proxy: when it is down, the call says so and nothing is connected directly', async () => {
  const port = await closedPort();
  expect(await errorThrough(`http://127.0.0.1:${port}`)).toMatchObject({
    code: 'front-proxy-failed',
    message: `could not connect to the front proxy 127.0.0.1:${port} (ECONNREFUSED); check that the front proxy runs and that this machine may reach it; check host and port in service.via`,
  });
});

const WITH_LOGIN = FRONT_PROXIES.filter(({ name }) => name.includes('login'));

test.each(WITH_LOGIN)(
  'service through $name: a wrong password is reported without quoting it',
  async ({ command, open }) => {
    if (command !== undefined && !hasCommand(command)) return;
    const url = (await open()).replace(/:[^:@]*@/, ':wrong-password@');
    const error = await errorThrough(url);

    expect(error).toMatchObject({
      code: 'front-proxy-failed',
      message: expect.stringMatching(
        /^the front proxy 127\.0\.0\.1:\d+ requires a valid user name and password \((status 407|status 401|login status \d+)\); set the user name and password of the front proxy in service\.via$/,
      ),
    });
    expect(String(error)).not.toContain('wrong-password');
  },
);

test.each([
  [
    'HTTP/1.1 403 Forbidden\r\n\r\n',
    /^the front proxy \S+ refused to connect to \S+ \(status 403\); allow the host and the port/,
  ],
  [
    'SSH-2.0-OpenSSH_10.0\r\n',
    /^the front proxy \S+ did not answer like a proxy \(not an HTTP response\); check the scheme and the port in service\.via$/,
  ],
  [
    '',
    /^the front proxy \S+ did not answer \(end of stream\); check that the front proxy works and can reach \S+$/,
  ],
])('service through a front proxy that answers %j: the call says what to do', async (answer, message) => {
  const port = await openBrokenProxy(answer);
  expect(await errorThrough(`http://127.0.0.1:${port}`)).toMatchObject({
    code: 'front-proxy-failed',
    message: expect.stringMatching(message),
  });
});

test('service through a front proxy that hangs: the timeout names the front proxy', async () => {
  const clock = new ManualClock();
  let bytes = 0;
  const front = await stubSocket((socket) => socket.on('data', (chunk) => (bytes += chunk.length)));
  const failed = errorThrough(front.baseUrl, { clock, timeoutMs: 500 });
  await until('the request was written', () => bytes > 0);
  clock.advance(500);
  expect(await failed).toMatchObject({
    code: 'front-proxy-failed',
    message: expect.stringMatching(/^the front proxy \S+ did not answer \(no answer within 500 ms\); check/),
  });
  await until('the connection has ended', () => front.open.size === 0);
});

test('service through a front proxy that cannot reach it: the service is at fault', async () => {
  const port = await openBrokenProxy('HTTP/1.1 503 Service Unavailable\r\n\r\n');
  const error = await errorThrough(`http://127.0.0.1:${port}`);
  expect(hasCode(error, 'service-transport')).toBe(true);
  expect(String(error)).toMatch(/the front proxy \S+ could not reach 127\.0\.0\.1:\d+ \(status 503\)/);
});

test('service through a front proxy: a name that does not resolve is reported as such', async () => {
  const lookup: LookupFunction = (_host, _options, done) => {
    done(Object.assign(new Error('getaddrinfo ENOTFOUND'), { code: 'ENOTFOUND' }), []);
  };
  const socket = connect({ host: 'bastion', port: 3128, lookup });
  socket.on('error', () => {}); // ignored: 'close' follows
  const server = parseHostPort('extract.example.com:80');
  if (server === undefined) throw new TypeError('no host');
  const failure = await new Promise<FrontFailure | undefined>((resolve) => {
    const handshake = new FrontHandshake(
      socket,
      { front: frontProxyAt('http://bastion:3128'), server, guard },
      resolve,
    );
    socket.on('connect', () => handshake.start());
  });
  expect(failure).toEqual({ problem: 'unresolved', detail: 'ENOTFOUND' });
});
