import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, Server } from 'node:net';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import type { Dialer } from '../../src/dialer/contract.ts';
import type { ListenerOptions } from '../../src/listener/client-connection.ts';
import { openListener } from '../../src/listener/listener.ts';
import { freePorts } from '../support/free-port.ts';
import { LoopClock } from '../support/loop-clock.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { until } from '../support/until.ts';
import { directDialer } from './direct-dialer.ts';
import { connectTo, failure, listen, listenerOptions, RawClient, socks4To, socks5To } from './harness.ts';
import { answering, echo, rawOrigin } from './origin.ts';

const whole = (text: string) => /\r\n\r\n.*\n$/s.test(text);

test('listener: the first byte selects the protocol', async () => {
  const origin = await echo();
  const { port } = await listen(directDialer());
  const speak = async (hello: string) => {
    const client = await RawClient.open(port);
    client.send(`${hello}ping`);
    await client.until('the echo', (text) => text.endsWith('ping'));
    return client.received.slice(0, 2);
  };
  expect(await speak(connectTo(origin.port))).toBe('HT');
  expect(await speak(socks5To(origin.port))).toBe('\x05\x00');
  expect(await speak(socks4To(origin.port))).toBe('\x00\x5a');
});

test.each([
  ['http', ['socks5', 'socks4'], connectTo(80), 'HTTP/1.1 501 Not Implemented\r\n'],
  ['socks5', ['http', 'socks4'], socks5To(80), '\x05\x00\x05\x07'],
  ['socks4', ['http', 'socks5'], socks4To(80), '\x00\x5b'],
] as const)(
  'listener: a client of the disabled protocol %s is refused in that protocol',
  async (_what, protocols, hello, reply) => {
    const dialer = directDialer();
    const { port, events } = await listen(dialer, { protocols });
    const client = await RawClient.open(port);
    client.send(hello);
    expect((await client.whole()).slice(0, reply.length)).toBe(reply);
    expect(events('client.refused')).toMatchObject([{ code: 'not-implemented' }]);
    expect(dialer.requests).toEqual([]);
  },
);

test('listener: each port of a range listens and has its own session by port', async () => {
  const first = await freePorts(2);
  const dialer = directDialer();
  const { listener } = await listen(dialer, {
    addresses: [{ kind: 'tcp', host: '127.0.0.1', port: first, lastPort: first + 1 }],
    session: 'port',
  });
  expect(listener.addresses).toEqual([first, first + 1].map((port) => ({ host: '127.0.0.1', port })));
  for (const { port } of listener.addresses)
    (await RawClient.open(port)).send('CONNECT a.example:1 HTTP/1.1\r\n\r\n');
  await until('both dials', () => dialer.requests.length === 2);
  expect(new Set(dialer.requests.map((request) => request.routing.session)).size).toBe(2);
});

test('listener: listens on several addresses', async () => {
  const origin = await echo();
  const hosts = ['127.0.0.2', '127.0.0.1'];
  const { listener } = await listen(directDialer(), {
    addresses: hosts.map((host) => ({ kind: 'tcp', host, port: 0 })),
  });
  expect(listener.addresses.map(({ host }) => host)).toEqual(hosts);
  for (const { host, port } of listener.addresses) {
    const client = await RawClient.open(port, host);
    client.send(connectTo(origin.port));
    await client.until('the response', (text) => text.startsWith('HTTP/1.1 200'));
  }
});

/** Listens on this IPv6 address. A machine without IPv6 must refuse with advice; the result is then undefined. */
async function listenOnIpv6(host: string, dialer: Dialer, options: Partial<ListenerOptions> = {}) {
  try {
    return await listen(dialer, { ...options, addresses: [{ kind: 'tcp', host, port: 0 }] });
  } catch (error) {
    const entries = Object.values(networkInterfaces()).flat();
    expect(entries.map((entry) => entry?.family)).not.toContain('IPv6');
    expect(error).toMatchObject({ code: 'listen-failed', message: expect.stringMatching(WITHOUT_IPV6) });
    return undefined;
  }
}

const WITHOUT_IPV6 = /^cannot listen on \[::1?\]:0: this machine has no (such address|IPv6); use /;

test('listener: listens on an IPv6 address, and gives advice on a machine without IPv6', async () => {
  const origin = await echo();
  const listening = await listenOnIpv6('::1', directDialer());
  if (listening === undefined) return;
  expect(listening.listener.addresses).toEqual([{ host: '::1', port: listening.port }]);
  const client = await RawClient.open(listening.port, '::1');
  client.send(connectTo(origin.port));
  await client.until('the response', (text) => text.startsWith('HTTP/1.1 200'));
});

test('listener: an IPv4 client of a dual-stack socket is an IPv4 client', async () => {
  const dialer = directDialer();
  const listening = await listenOnIpv6('::', dialer, { allowNonLoopback: true, session: 'client-ip' });
  if (listening === undefined) return;
  (await RawClient.open(listening.port)).send('CONNECT a.example:1 HTTP/1.1\r\n\r\n');
  await until('a dial', () => dialer.requests.length === 1);
  expect(dialer.requests[0]?.routing.session).toMatch(/(?<!:)127\.0\.0\.1/);
});

test('listener: a session reaches the pool with the address of its client', async () => {
  const dialer = directDialer();
  const { port } = await listen(dialer, {});
  const header = `Proxy-Authorization: Basic ${Buffer.from('me-session-abc:x').toString('base64')}`;
  (await RawClient.open(port)).send(`CONNECT a.example:1 HTTP/1.1\r\n${header}\r\n\r\n`);
  await until('a dial', () => dialer.requests.length === 1);
  const { routing } = dialer.requests[0] ?? {};
  expect(routing).toEqual({ session: 'abc', sessionOwner: { user: '', address: '127.0.0.1' } });
});

test('listener: uses an inherited listening socket', async () => {
  const given = createServer();
  await new Promise<void>((resolve) => given.listen(0, '127.0.0.1', resolve));
  const { port } = given.address() as AddressInfo;
  const descriptor = (given as unknown as { readonly _handle: { readonly fd: number } })._handle.fd;
  const child = spawn(process.execPath, [join(import.meta.dirname, 'inherited.ts')], {
    stdio: ['pipe', 'pipe', 'inherit', descriptor],
  });
  onTestFinished(() => {
    child.kill();
  });
  given.close();
  await new Promise((resolve) => child.stdout?.once('data', resolve));
  const client = (await RawClient.open(port)).send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  expect(await client.until('the response', whole)).toMatch(/^HTTP\/1\.1 400 /);
  child.stdin?.end();
  const [code] = await once(child, 'exit');
  expect(code).toBe(0);
});

test('listener: reports a port in use in plain words and leaves nothing open', async () => {
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    taken.close();
  });
  const { port } = taken.address() as AddressInfo;
  const options = listenerOptions(directDialer(), {
    addresses: [
      { kind: 'tcp', host: '127.0.0.1', port: 0 },
      { kind: 'tcp', host: '127.0.0.1', port },
    ],
  });
  const error = await failure(openListener(options));
  expect(error.code).toBe('listen-failed');
  expect(error.message).toBe(
    `cannot listen on 127.0.0.1:${port}: another program listens there (address in use); stop it, or choose another port`,
  );
});

test('listener: a range with a port in use frees the others', async () => {
  const port = await freePorts(2);
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(port + 1, '127.0.0.1', resolve));
  onTestFinished(() => {
    taken.close();
  });
  const range = [{ kind: 'tcp', host: '127.0.0.1', port, lastPort: port + 1 }] as const;
  expect((await failure(openListener(listenerOptions(directDialer(), { addresses: range })))).code).toBe(
    'listen-failed',
  );
  await listen(directDialer(), { addresses: [{ kind: 'tcp', host: '127.0.0.1', port }] });
});

test('listener: refuses an address that other machines can reach, without users', async () => {
  const addresses = [{ kind: 'tcp', host: '0.0.0.0', port: 0 }] as const;
  const error = await failure(openListener(listenerOptions(directDialer(), { addresses })));
  expect(error.code).toBe('bad-config');
  expect(error.message).toBe(
    'cannot listen on 0.0.0.0:0 without users, because other machines can reach this address; add users, or listen on 127.0.0.1',
  );
  const { port } = await listen(directDialer(), { addresses, allowNonLoopback: true });
  await RawClient.open(port);
});

test('listener: refuses a client above maxConnections until a connection closes', async () => {
  const { port, listener, events } = await listen(directDialer(), { maxConnections: 2 });
  const [first] = [await RawClient.open(port), await RawClient.open(port)];
  await until('both connections', () => listener.connectionCount === 2);
  const http = (await RawClient.open(port)).send(connectTo(1));
  expect(await http.whole()).toMatch(/^HTTP\/1\.1 503 .*X-Noria-Error: too-many-connections\r\n/s);
  const socks = (await RawClient.open(port)).send(socks5To(1));
  expect((await socks.whole()).slice(0, 4)).toBe('\x05\x00\x05\x01');
  expect(events('client.refused').map(({ code }) => code)).toEqual([
    'too-many-connections',
    'too-many-connections',
  ]);
  first?.socket.destroy();
  await until('the close', () => events('connection.closed').length === 1);
  for (const client of [http, socks]) client.socket.destroy();
  await until('one connection', () => listener.connectionCount === 1);
  const next = (await RawClient.open(port)).send('GET / HTTP/1.1\r\n\r\n');
  expect(await next.until('a response', whole)).toMatch(/^HTTP\/1\.1 400 /);
});

test('listener: closes a flood of clients above the limit without a reply', async () => {
  const { port, listener } = await listen(directDialer(), { maxConnections: 1 });
  const clients = await Promise.all(Array.from({ length: 80 }, () => RawClient.open(port)));
  await until(
    'the rest was closed',
    () => clients.filter((client) => client.ended || client.closed).length === 80 - 65,
  );
  expect(listener.connectionCount).toBe(65);
  for (const client of clients) client.socket.destroy();
  await until('all closes', () => listener.connectionCount === 0);
  await RawClient.open(port);
  const refused = (await RawClient.open(port)).send(connectTo(1));
  expect(await refused.whole()).toMatch(/^HTTP\/1\.1 503 /);
});

test('listener: closes a flood of clients that are not allowed without a reply', async () => {
  const { port, listener } = await listen(directDialer(), {}, { allow: ['192.0.2.0/24'] });
  const clients = await Promise.all(Array.from({ length: 80 }, () => RawClient.open(port)));
  await until(
    'the rest was closed',
    () => clients.filter((client) => client.ended || client.closed).length === 80 - 64,
  );
  expect(listener.connectionCount).toBe(64);
});

test('listener: closes a silent client after the handshake timeout', async () => {
  const { port, listener, deadlines, events } = await listen(directDialer(), {
    clock: new LoopClock(),
    handshakeTimeoutMs: 4_000,
  });
  const silent = await RawClient.open(port);
  const halting = (await RawClient.open(port)).send('\x05');
  await Promise.all([silent.whole(), halting.whole()]);
  await until('both closes', () => listener.connectionCount === 0);
  expect(events('connection.closed').map(({ outcome }) => outcome)).toEqual([
    'request-timeout',
    'request-timeout',
  ]);
  expect(deadlines.size).toBe(0);
});

test('listener: a slow request head gets 408, also as the second one of its connection', async () => {
  const { port } = await listen(directDialer(), { clock: new LoopClock(), headerTimeoutMs: 4_000 });
  const slow = (await RawClient.open(port)).send('GET http://a.example/ HTTP/1.1\r\nHo');
  expect(await slow.whole()).toMatch(/^HTTP\/1\.1 408 .*X-Noria-Error: request-timeout\r\n/s);
  const later = (await RawClient.open(port)).send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  await later.until('the first response', whole);
  later.send('GET http://a.example/ HT');
  expect(await later.whole()).toMatch(/HTTP\/1\.1 408 /);
});

test.each([
  [
    'a head above the limit',
    `GET http://a.example/ HTTP/1.1\r\nA: ${'b'.repeat(20_000)}\r\n\r\n`,
    431,
    'head-too-large',
  ],
  [
    'a CONNECT head above the limit',
    `CONNECT a.example:1 HTTP/1.1\r\nA: ${'b'.repeat(20_000)}\r\n\r\n`,
    431,
    'head-too-large',
  ],
  [
    'a URL above the limit',
    `GET http://a.example/${'b'.repeat(20_000)} HTTP/1.1\r\n\r\n`,
    414,
    'uri-too-long',
  ],
  ['another protocol', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc', 400, 'bad-request'],
  ['a request for a web site', 'GET / HTTP/1.1\r\nHost: x\r\n\r\n', 400, 'bad-request'],
  ['an https URL', 'GET https://a.example/ HTTP/1.1\r\nHost: x\r\n\r\n', 501, 'not-implemented'],
  ['an HTTP/2 preface', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, 'bad-request'],
])('listener: the reply to %s has the right code', async (_what, request, status, code) => {
  const { port, events } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(request);
  const received = await client.until('the response', whole);
  expect(received).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  expect(received).toContain(`X-Noria-Error: ${code}\r\n`);
  expect(events('client.refused').map((event) => event.code)).toEqual([code]);
});

test('listener: drain refuses new connections, closes idle ones and waits for the others', async () => {
  const origin = await echo();
  const { port, listener } = await listen(directDialer());
  const tunnel = (await RawClient.open(port)).send(connectTo(origin.port));
  await tunnel.until('the tunnel', (text) => text.includes('\r\n\r\n'));
  const idle = await RawClient.open(port);
  const keptAlive = (await RawClient.open(port)).send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  await keptAlive.until('the response', whole);
  let drained = false;
  const draining = listener.drain().then(() => {
    drained = true;
  });
  await Promise.all([idle.whole(), keptAlive.whole()]);
  await expect(RawClient.open(port)).rejects.toThrow('ECONNREFUSED');
  tunnel.send('still there');
  await tunnel.until('the echo', (text) => text.endsWith('still there'));
  expect(drained).toBe(false);
  tunnel.end();
  await draining;
  expect(listener.connectionCount).toBe(0);
});

test('listener: a request in progress during drain is answered with Connection: close', async () => {
  const origin = await rawOrigin(answering('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi'));
  const dialer = directDialer();
  const release = dialer.hold();
  const { port, listener } = await listen(dialer);
  const client = (await RawClient.open(port)).send(
    `GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`,
  );
  await until('a dial', () => dialer.requests.length === 1);
  const draining = listener.drain();
  release();
  expect(await client.whole()).toMatch(/Connection: close\r\n\r\nhi$/);
  await draining;
});

test('listener: a connection whose response started before drain closes after it', async () => {
  const origin = await rawOrigin(answering('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhi'));
  const { port, listener } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(
    `GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`,
  );
  await client.until('the first bytes', (text) => text.endsWith('hi'));
  const draining = listener.drain();
  origin.sockets[0]?.write('ho');
  expect(await client.whole()).toMatch(/hiho$/);
  await draining;
});

test('listener: close ends everything at once and is idempotent', async () => {
  const origin = await echo();
  const dialer = directDialer();
  const { port, listener, deadlines } = await listen(dialer);
  const tunnel = (await RawClient.open(port)).send(connectTo(origin.port));
  await tunnel.until('the tunnel', (text) => text.includes('\r\n\r\n'));
  await RawClient.open(port);
  await Promise.all([listener.close(), listener.close()]);
  expect(listener.connectionCount).toBe(0);
  await until('the end of the lease', () => dialer.ended.length === 1);
  expect(dialer.sockets[0]?.destroyed).toBe(true);
  expect(deadlines.size).toBe(0);
});

test('listener: a second call of listen changes nothing, and after stop it uses the same port', async () => {
  const origin = await echo();
  const { listener, port } = await listen(directDialer());
  const tunnel = (await RawClient.open(port)).send(connectTo(origin.port));
  await tunnel.until('the tunnel', (text) => text.endsWith('\r\n\r\n'));
  await listener.listen();
  expect(listener.addresses).toEqual([{ host: '127.0.0.1', port }]);
  listener.stop();
  await expect(RawClient.open(port)).rejects.toThrow('ECONNREFUSED');
  await tunnel.send('still there').until('the echo', (text) => text.endsWith('still there'));
  await listener.listen();
  expect(listener.addresses).toEqual([{ host: '127.0.0.1', port }]);
  await (await RawClient.open(port)).send('GET / HTTP/1.1\r\n\r\n').until('a response', whole);
});

test('listener: refused clients that stay take no place of others', async () => {
  const { port, listener } = await listen(directDialer(), { maxConnections: 1 });
  const first = await RawClient.open(port);
  await until('the first one', () => listener.connectionCount === 1);
  for (const _ of [1, 2])
    expect(await (await RawClient.open(port)).send(connectTo(1)).whole()).toContain(' 503 ');
  first.socket.destroy();
  await until('the close', () => listener.connectionCount === 2);
  const next = (await RawClient.open(port)).send('GET / HTTP/1.1\r\n\r\n');
  expect(await next.until('a response', whole)).toMatch(/^HTTP\/1\.1 400 /);
});

test.each(['close', 'drain'] as const)(
  'listener: %s ends the clients of balancers that have sent no header',
  async (end) => {
    const { port, listener, deadlines } = await listen(directDialer(), { proxyProtocol: ['127.0.0.0/8'] });
    const silent = await RawClient.open(port);
    await until('the client is there', () => deadlines.size === 1);
    await listener[end]();
    await until('the close', () => silent.ended || silent.closed);
    expect([deadlines.size, listener.connectionCount]).toEqual([0, 0]);
  },
);

test('listener: a balancer has handshakeTimeoutMs for its header, and its client another one for a request', async () => {
  const clock = ManualClock.dayOld();
  const options = { proxyProtocol: ['127.0.0.0/8'], clock, handshakeTimeoutMs: 4_000 };
  const { port, listener, deadlines, events } = await listen(directDialer(), options);
  const silent = await RawClient.open(port);
  await until('the client is there', () => deadlines.size === 1);
  clock.advance(3_990);
  const slow = await RawClient.open(port);
  await until('another one is there', () => deadlines.size === 2);
  clock.advance(20);
  await silent.whole();
  expect(events('client.refused')).toMatchObject([{ code: 'bad-request', protocol: 'unknown' }]);
  slow.send('PROXY TCP4 198.51.100.9 203.0.113.7 1 2\r\n');
  await until('the header', () => listener.connectionCount === 1);
  expect(deadlines.size).toBe(1);
  clock.advance(3_990);
  expect(listener.connectionCount).toBe(1);
  clock.advance(20);
  await slow.whole();
  await until('the event', () => events('connection.closed').length === 1);
  expect(events('connection.closed')).toMatchObject([{ outcome: 'request-timeout' }]);
});

test('listener: the event of a wrong header names the balancer, and the header of another peer is none', async () => {
  const { port, events } = await listen(directDialer(), { proxyProtocol: ['127.0.0.2'] });
  const wrong = await RawClient.open(port);
  wrong.send('PROXY TCP4 198.51.100.9 203.0.113.7 1 2\r\n');
  expect(await wrong.whole()).toContain('HTTP/1.1 400 ');
  const balancer = connect({ port, host: '127.0.0.1', localAddress: '127.0.0.2' }).on('error', () => {});
  balancer.write('GET / HTTP/1.1\r\n\r\n');
  await once(balancer.resume(), 'close');
  expect(events('client.refused').slice(1)).toEqual([
    {
      ...{ listener: 'here', client: '127.0.0.2', protocol: 'unknown', code: 'bad-request' },
      detail: 'the connection does not begin with a header of the PROXY protocol',
    },
  ]);
  expect(events('connection.opened')).toHaveLength(1);
});

test('listener: a server without free descriptors reports it and goes on', async () => {
  const servers: Server[] = [];
  const spy = vi.spyOn(Server.prototype, 'listen').mockImplementationOnce(function (this: Server, ...args) {
    servers.push(this);
    spy.mockRestore();
    return this.listen(...args);
  });
  const { port, events } = await listen(directDialer());
  servers[0]?.emit('error', new Error('accept EMFILE'));
  expect(events('client.refused')).toEqual([
    {
      ...{ listener: 'here', client: '', protocol: 'unknown', code: 'too-many-connections' },
      detail: 'accept EMFILE',
    },
  ]);
  await (await RawClient.open(port)).send('GET / HTTP/1.1\r\n\r\n').until('a response', whole);
});

test('listener: after stop, a listen that fails leaves no port open', async () => {
  const first = await freePorts(2);
  const { listener } = await listen(directDialer(), {
    addresses: [
      { kind: 'tcp', host: '127.0.0.1', port: first },
      { kind: 'tcp', host: '127.0.0.1', port: first + 1 },
    ],
  });
  listener.stop();
  const taken = createServer();
  await new Promise<void>((resolve) => taken.listen(first + 1, '127.0.0.1', resolve));
  expect((await failure(listener.listen())).code).toBe('listen-failed');
  await expect(RawClient.open(first)).rejects.toThrow('ECONNREFUSED');
  await new Promise((resolve) => taken.close(resolve));
  await listener.listen();
  expect(listener.addresses.map(({ port }) => port)).toEqual([first, first + 1]);
});
