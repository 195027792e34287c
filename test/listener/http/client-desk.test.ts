/** What a client asks noria at noria.invalid, over each protocol. The pool behind it has its own tests. */
import { expect, test } from 'vitest';
import { EventBus } from '../../../src/core/events.ts';
import { Secret } from '../../../src/core/secret.ts';
import { Access } from '../../../src/listener/access.ts';
import type { ListenerOptions } from '../../../src/listener/client-connection.ts';
import type { ClientName, ClientUse, Leases, Verdict } from '../../../src/pool/leases.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient } from '../harness.ts';

const STATE: ReturnType<Leases['describe']> = {
  session: 'cart',
  tag: null,
  member: 'm12',
  exit: '203.0.113.7',
  location: null,
  expiresIn: 141,
  movesAt: null,
  attempts: 1,
  sites: ['shop.example'],
};

/** A listener whose desk answers STATE and knows the session `cart`. Records what the clients said. */
async function stage(
  options: Partial<ListenerOptions> = {},
  overrides: Partial<ListenerOptions['desk']> = {},
) {
  const asked: ClientName[] = [];
  const said: (Verdict & { session: string | undefined })[] = [];
  const closed: string[] = [];
  const dialer = directDialer();
  const desk: ListenerOptions['desk'] = {
    clients: {
      describe(name) {
        asked.push(name);
        return STATE;
      },
      judge(name, verdict) {
        if (name.session?.endsWith('cart') !== true) return 'unknown';
        if (verdict.host === undefined) return 'host-needed';
        said.push({ ...verdict, session: name.session });
        return { host: verdict.host };
      },
    },
    lastUse: () => undefined,
    rotateSession: (name) => name === 'cart',
    closeTunnels: (_name, host) => closed.push(host),
  };
  const { port, events, listener } = await listen(dialer, { desk: { ...desk, ...overrides }, ...options });
  return { port, events, listener, dialer, asked, said, closed };
}

const basic = (user: string) =>
  `Proxy-Authorization: Basic ${Buffer.from(`${user}:x`).toString('base64')}\r\n`;
const SOCKS5 = '\x05\x01\x00';
const NAME = 'noria.invalid';
const socks5Request = (port: number) =>
  `\x05\x01\x00\x03${String.fromCharCode(NAME.length)}${NAME}\x00${String.fromCharCode(port)}`;
const GET = `GET / HTTP/1.1\r\nHost: ${NAME}\r\n\r\n`;

test.each<[protocol: string, request: string]>([
  ['absolute form', `GET http://${NAME}/ HTTP/1.1\r\nHost: x\r\n${basic('me-session-cart')}\r\n`],
  ['CONNECT', `CONNECT ${NAME}:80 HTTP/1.1\r\n${basic('me-session-cart')}\r\n${GET}`],
  ['SOCKS4a', `\x04\x01\x00\x50\x00\x00\x00\x01me-session-cart\x00${NAME}\x00${GET}`],
])('desk: says over %s what the client got, dials and records nothing', async (_protocol, request) => {
  const bus = new EventBus((_name, error) => {
    throw error;
  });
  const recorded: unknown[] = [];
  bus.on('request.ended', (record) => recorded.push(record));
  const { port, dialer, asked, events } = await stage({ bus });
  const client = await RawClient.open(port);
  client.send(request);
  const received = await client.until('the answer', (text) => text.endsWith('}\n'));
  expect(received).toMatch(/HTTP\/1\.1 200 OK\r\nContent-Type: application\/json\r\n/);
  expect(JSON.parse(received.slice(received.lastIndexOf('\r\n\r\n')))).toEqual(STATE);
  expect(asked).toEqual([{ client: 'local', session: 'cart', tag: undefined }]);
  expect(dialer.requests).toEqual([]);
  client.socket.destroy();
  await until('the connection is closed', () => events('connection.closed').length === 1);
  expect(recorded).toEqual([]);
});

test('desk: answers several requests in one SOCKS5 tunnel, and reads their bodies', async () => {
  const { port, said, dialer } = await stage({ session: 'none' });
  const client = await RawClient.open(port);
  client.send('\x05\x01\x02\x01\x0fme-session-cart\x01x');
  await client.until('the login', (text) => text === '\x05\x02\x01\x00');
  client.send(socks5Request(80));
  await client.until('the tunnel', (text) => text.length === 14);
  const report = 'POST /banned?host=shop.example HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi';
  client.send(`${report}${report}${GET}`);
  const received = await client.until('all answers', (text) => text.endsWith('}\n'));
  expect(received.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 204', 'HTTP/1.1 204', 'HTTP/1.1 200']);
  expect(said).toHaveLength(2);
  expect(dialer.requests).toEqual([]);
});

test.each<[request: string, status: number, said: Partial<Verdict>[]]>([
  ['POST /banned?host=Shop.Example', 204, [{ verdict: 'banned', host: 'shop.example', forMs: undefined }]],
  ['GET /banned?host=shop.example&for=30m', 204, [{ verdict: 'banned', forMs: 1_800_000 }]],
  ['GET /ok?host=shop.example', 204, [{ verdict: 'ok' }]],
  ['POST /banned', 400, []],
  ['POST /banned?host=shop.example:443', 400, []],
  ['POST /banned?host=shop.example&for=never', 400, []],
  ['POST /rotate', 204, []],
  ['GET /rotate', 404, []],
  ['GET /nothing', 404, []],
  ['DELETE /', 404, []],
])('desk: %s is answered with %d', async (request, status, expected) => {
  const { port, said } = await stage();
  const client = await RawClient.open(port);
  const [method, path] = request.split(' ');
  client.send(`${method} http://${NAME}${path} HTTP/1.1\r\nHost: x\r\n${basic('a-session-cart')}\r\n`);
  const received = await client.until('the head', (text) => text.includes('\r\n\r\n'));
  expect(received).toContain(`HTTP/1.1 ${status} `);
  expect(said).toEqual(expected.map((verdict) => expect.objectContaining(verdict)));
});

test('desk: close ends the tunnels to the host, and an unknown session is not found', async () => {
  const { port, closed } = await stage();
  const client = await RawClient.open(port);
  const send = (session: string) =>
    client.send(
      `GET http://${NAME}/banned?host=shop.example&close=1 HTTP/1.1\r\nHost: x\r\n${basic(`a-session-${session}`)}\r\n`,
    );
  send('cart');
  await client.until('204', (text) => text.includes(' 204 '));
  expect(closed).toEqual(['shop.example']);
  send('other');
  expect(await client.until('404', (text) => text.includes(' 404 '))).toContain('X-Noria-Error: not-found');
  expect(closed).toHaveLength(1);
});

test.each(['Origin: https://evil.example', 'Referer: http://a.example/', 'Sec-Fetch-Site: none'])(
  'desk: a web page (%s) is refused',
  async (field) => {
    const { port, said } = await stage();
    const client = await RawClient.open(port);
    client.send(
      `POST http://${NAME}/banned?host=a.example HTTP/1.1\r\nHost: x\r\n${field}\r\nContent-Length: 0\r\n${basic('a-session-cart')}\r\n`,
    );
    expect(await client.until('403', (text) => text.includes('\r\n\r\n'))).toContain('HTTP/1.1 403 ');
    expect(said).toEqual([]);
  },
);

test('desk: another port and https are refused, over every protocol', async () => {
  const { port, asked, dialer } = await stage();
  const receive = async (request: string, length: number) => {
    const client = await RawClient.open(port);
    client.send(request);
    return (await client.whole()).slice(0, length);
  };
  expect(await receive(`CONNECT ${NAME}:443 HTTP/1.1\r\n\r\n`, 12)).toBe('HTTP/1.1 403');
  const absolute = `GET http://${NAME}:8080/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`;
  expect(await receive(absolute, 12)).toBe('HTTP/1.1 403');
  expect(await receive(`${SOCKS5}${socks5Request(81)}`, 4)).toBe('\x05\x00\x05\x02');
  expect(asked).toEqual([]);
  expect(dialer.requests).toEqual([]);
});

/** A desk that knows the last use only when the test answers. */
async function slowStage() {
  const { promise, resolve } = Promise.withResolvers<ClientUse | undefined>();
  const uses: unknown[] = [];
  const clients: ListenerOptions['desk']['clients'] = {
    describe: (_name, use) => {
      uses.push(use);
      return STATE;
    },
    judge: (_name, _verdict, use) => {
      uses.push(use);
      return 'unknown';
    },
  };
  const kit = await stage({}, { lastUse: () => promise, clients });
  return { ...kit, resolve, uses };
}

const USE = { member: 'm7' } as unknown as ClientUse;

test.each([
  ['GET /', ' 200 '],
  ['GET /ok', ' 404 '],
])('desk: what other processes know decides the answer to %s', async (request, status) => {
  const { port, resolve, uses } = await slowStage();
  const [method, path] = request.split(' ');
  const client = await RawClient.open(port);
  client.send(`${method} http://${NAME}${path} HTTP/1.1\r\nHost: x\r\n\r\n`);
  client.send(`GET http://${NAME}/nothing HTTP/1.1\r\nHost: x\r\n\r\n`);
  resolve(USE);
  const received = await client.until('both answers', (text) => text.split('HTTP/1.1 ').length === 3);
  expect(received).toContain(status);
  expect(uses).toEqual([USE]);
});

test('desk: an answer for a client that has left is dropped', async () => {
  const { port, resolve, uses, listener, events } = await slowStage();
  const client = await RawClient.open(port);
  client.send(`GET http://${NAME}/ok HTTP/1.1\r\nHost: x\r\n\r\n`);
  await until('the connection', () => listener.connectionCount === 1);
  client.socket.destroy();
  await until('the close', () => listener.connectionCount === 0);
  resolve(USE);
  await until('the answer', () => uses.length === 1);
  expect(events('client.refused')).toEqual([]);
  expect(events('connection.closed')).toMatchObject([{ outcome: 'client-gone' }]);
});

test.each([
  ['', 404],
  ['-session-other', 404],
  ['-session-cart', 204],
])('desk: only a known session rotates (a%s)', async (options, status) => {
  const { port } = await stage();
  const client = await RawClient.open(port);
  client.send(`POST http://${NAME}/rotate HTTP/1.1\r\nHost: x\r\n${basic(`a${options}`)}\r\n`);
  expect(await client.until('the head', (text) => text.includes('\r\n\r\n'))).toContain(` ${status} `);
});

test.each(['/', `http://${NAME}/`, `HTTP://${NAME}`, `http://${NAME}?a=b`, '?a=b'])(
  'desk: in a tunnel, %s is its root',
  async (target) => {
    const { port, asked } = await stage();
    const client = (await RawClient.open(port)).send(`CONNECT ${NAME}:80 HTTP/1.1\r\n\r\n`);
    await client.until('the tunnel', (text) => text.endsWith('\r\n\r\n'));
    client.send(`GET ${target} HTTP/1.1\r\nHost: ${NAME}\r\n\r\n`);
    await client.until('the answer', (text) => text.endsWith('}\n'));
    expect(asked).toHaveLength(1);
  },
);

test('desk: a CONNECT in a tunnel to it is no tunnel', async () => {
  const { port, dialer } = await stage();
  const connect = (host: string) => `CONNECT ${host}:80 HTTP/1.1\r\nHost: x\r\n\r\n`;
  const client = (await RawClient.open(port)).send(`${connect(NAME)}${connect('a.example')}`);
  await client.until('the answer', (text) => text.includes(' 404 '));
  expect(dialer.requests).toEqual([]);
});

test('desk: the user of a verdict is the one of the request', async () => {
  const users = [{ username: 'ann', password: new Secret('x') }];
  const access = new Access({ users, allow: [], denyTargets: [], clock: ManualClock.dayOld() });
  const { port, said } = await stage({ access });
  for (const path of ['/ok', '/banned']) {
    const client = await RawClient.open(port);
    client.send(
      `GET http://${NAME}${path}?host=a.example HTTP/1.1\r\nHost: x\r\n${basic('ann-session-cart')}\r\n`,
    );
    await client.until('the head', (text) => text.includes('\r\n\r\n'));
  }
  const common = { host: 'a.example', forMs: undefined, user: 'ann', session: 'ann:cart' };
  expect(said).toEqual([
    { verdict: 'ok', ...common },
    { verdict: 'banned', ...common },
  ]);
});
