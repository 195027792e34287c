/**
 * Clients that noria cannot serve learn the cause immediately. They would wait for ten minutes, so an answer that comes
 * only after a wait fails the test. The tests compare whole answers: an answer names the option, and never a source
 * that cannot serve the client.
 */
import { request } from 'node:http';
import { expect, test } from 'vitest';
import { type Noria, openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';
import { until } from '../support/until.ts';

interface Refused {
  readonly status: number | undefined;
  readonly code: unknown;
  readonly retryAfter: unknown;
  readonly body: string;
}

/** Returns noria's answer to a CONNECT with this user name. */
function connectAs({ proxy }: Noria, username: string): Promise<Refused> {
  const [host, port] = proxy.split(':');
  const headers = { 'Proxy-Authorization': `Basic ${Buffer.from(`${username}:x`).toString('base64')}` };
  return new Promise((resolve, reject) => {
    const asked = request({ host, port, method: 'CONNECT', path: 'example.com:443', agent: false, headers });
    asked.on('connect', (answer, socket, head) => {
      socket.destroy();
      const { 'x-noria-error': code, 'retry-after': retryAfter } = answer.headers;
      resolve({ status: answer.statusCode, code, retryAfter, body: String(head) });
    });
    asked.on('error', reject).end();
  });
}

async function startTwo(): Promise<Noria> {
  const sandbox = await openTestSandbox({
    instances: [
      { product: 'short-classic', members: 4 },
      { product: 'shared', members: 4 },
    ],
  });
  const wrong = sourceLine(sandbox, 'wrong', 'shared').replace(
    /password: "[^"]*"/,
    'password: "not the right one"',
  );
  const noria = await startNoria({
    sources: [
      sourceLine(
        sandbox,
        'city',
        'short-classic',
        'size: 4, params: { count: 4, adr: "广东,江苏,上海,北京" }',
      ),
      wrong,
    ],
    more: 'dial: { waitForMember: 10m, deadline: 10m }',
  });
  await untilReady(noria, 4);
  const stateOf = (name: string) =>
    noria.control.status().sources.find((source) => source.name === name)?.state;
  await until('the key is refused', () => stateOf('wrong') === 'halted');
  return noria;
}

test('refusal: a client that noria cannot serve is refused at once, with the option or the source that is the cause', async () => {
  const noria = await startTwo();
  expect(await connectAs(noria, 'me-source-wrong')).toEqual({
    status: 503,
    code: 'pool-empty',
    retryAfter: '60',
    body: expect.stringMatching(
      /No source that can serve this request .*Source wrong: halted \(12001: [^)]+\)\. Try/,
    ),
  });
  const bad = { status: 400, code: 'bad-routing', retryAfter: undefined };
  const reasons = {
    'me-life-30m':
      /Life is 30m, but .* source city live for at most 6m, .* source wrong live for at most 10m\./,
    'me-life-8m-source-city': /Life is 8m, but members of source city live for at most 6m\./,
    'me-protocol-socks5': /Protocol is socks5, but members of source city speak http, /,
    'me-source-city-adr-浙江': /Adr matches no member .* source city excludes this location/,
    'me-source-city-adr-Shanghai': /Adr matches no member .* source city has no location in Latin letters/,
    'me-country-us': /Adr looks like a country code/,
    'me-session-abc-ttl-168h': /Ttl is 168h, but a session may be idle for at most 24h/,
    'me-sesion-abc': /unknown key; did you mean session\?/,
  };
  for (const [username, reason] of Object.entries(reasons)) {
    expect(await connectAs(noria, username), username).toEqual({
      ...bad,
      body: expect.stringMatching(reason),
    });
  }
});
