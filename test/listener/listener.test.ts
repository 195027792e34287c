import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer, type Server } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { NoriaError } from '../../src/core/faults.ts';
import { openListener } from '../../src/listener/listener.ts';
import { until } from '../support/until.ts';
import { directDialer } from './direct-dialer.ts';
import { listen, listenerOptions, RawClient } from './harness.ts';
import { answering, rawOrigin } from './origin.ts';

const echo = () => rawOrigin((socket) => socket.pipe(socket));
const connectTo = (port: number) => `CONNECT 127.0.0.1:${port} HTTP/1.1\r\n\r\n`;
const socks5To = (port: number) =>
  `\x05\x01\x00\x05\x01\x00\x01\x7f\x00\x00\x01${String.fromCharCode(port >> 8, port & 255)}`;
const socks4To = (port: number) =>
  `\x04\x01${String.fromCharCode(port >> 8, port & 255)}\x7f\x00\x00\x01\x00`;
const whole = (text: string) => /\r\n\r\n.*\n$/s.test(text);

const failure = (opening: Promise<unknown>) =>
  opening.then(
    () => {
      throw new Error('it opened');
    },
    (error: unknown) => {
      if (!(error instanceof NoriaError)) throw error;
      return error;
    },
  );

test('listener: the first byte decides what a client speaks', async () => {
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
  'listener: a client speaking %s where it is not enabled is refused in its own words',
  async (_what, protocols, hello, answer) => {
    const dialer = directDialer();
    const { port, events } = await listen(dialer, { protocols });
    const client = await RawClient.open(port);
    client.send(hello);
    expect((await client.whole()).slice(0, answer.length)).toBe(answer);
    expect(events('client.refused')).toMatchObject([{ code: 'not-implemented' }]);
    expect(dialer.requests).toEqual([]);
  },
);

/** A free port with a free one behind it. */
async function freePair(): Promise<number> {
  for (;;) {
    // Whoever comes by was meant for somebody else, and must not keep them open.
    const [first, second] = [
      createServer((stray) => stray.destroy()),
      createServer((stray) => stray.destroy()),
    ];
    const listening = (server: Server, port: number) =>
      new Promise<boolean>((resolve) => {
        server.once('error', () => resolve(false));
        server.listen(port, '127.0.0.1', () => resolve(true));
      });
    await listening(first, 0);
    const { port } = first.address() as AddressInfo;
    const both = await listening(second, port + 1);
    await Promise.all([first, second].map((server) => new Promise((resolve) => server.close(resolve))));
    if (both) return port;
  }
}

test('listener: each port of a range listens, and a session by port keeps them apart', async () => {
  const first = await freePair();
  const dialer = directDialer();
  const { listener } = await listen(dialer, {
    addresses: [{ kind: 'tcp', host: '127.0.0.1', port: first, lastPort: first + 1 }],
    sessionMode: 'port',
  });
  expect(listener.addresses).toEqual([first, first + 1].map((port) => ({ host: '127.0.0.1', port })));
  for (const { port } of listener.addresses)
    (await RawClient.open(port)).send('CONNECT a.example:1 HTTP/1.1\r\n\r\n');
  await until('both were dialed', () => dialer.requests.length === 2);
  expect(new Set(dialer.requests.map((request) => request.routing.session)).size).toBe(2);
});

test('listener: IPv6, and several addresses in one', async () => {
  const origin = await echo();
  const { listener } = await listen(directDialer(), {
    addresses: [
      { kind: 'tcp', host: '::1', port: 0 },
      { kind: 'tcp', host: '127.0.0.1', port: 0 },
    ],
  });
  expect(listener.addresses.map(({ host }) => host)).toEqual(['::1', '127.0.0.1']);
  for (const { host, port } of listener.addresses) {
    const client = await RawClient.open(port, host);
    client.send(connectTo(origin.port));
    await client.until('the answer', (text) => text.startsWith('HTTP/1.1 200'));
  }
});

test('listener: an IPv4 client of a socket for both versions is an IPv4 client', async () => {
  const dialer = directDialer();
  const { port } = await listen(dialer, {
    addresses: [{ kind: 'tcp', host: '::', port: 0 }],
    allowNonLoopback: true,
    sessionMode: 'client-ip',
  });
  (await RawClient.open(port)).send('CONNECT a.example:1 HTTP/1.1\r\n\r\n');
  await until('it was dialed', () => dialer.requests.length === 1);
  expect(dialer.requests[0]?.routing.session).toMatch(/(?<!:)127\.0\.0\.1/);
});

test('listener: a listening socket that was handed in by descriptor is used', async () => {
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
  expect(await client.until('the answer', whole)).toMatch(/^HTTP\/1\.1 400 /);
  child.stdin?.end();
  const [code] = await once(child, 'exit');
  expect(code).toBe(0);
});

test('listener: a port in use is told in words, and nothing stays open', async () => {
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
  expect(error.message).toBe(`cannot listen on 127.0.0.1:${port}: another program listens there`);
});

test('listener: a range of which one port is taken gives the others back', async () => {
  const port = await freePair();
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

test('listener: an address that others can reach is refused without users', async () => {
  const addresses = [{ kind: 'tcp', host: '0.0.0.0', port: 0 }] as const;
  const error = await failure(openListener(listenerOptions(directDialer(), { addresses })));
  expect(error.code).toBe('bad-config');
  expect(error.message).toBe(
    'cannot listen on 0.0.0.0:0 without users: other machines can reach this address',
  );
  const { port } = await listen(directDialer(), { addresses, allowNonLoopback: true });
  await RawClient.open(port);
});

test('listener: one client too many is told so, and a place that comes free is given again', async () => {
  const { port, listener, events } = await listen(directDialer(), { maxConnections: 2 });
  const [first] = [await RawClient.open(port), await RawClient.open(port)];
  await until('both are in', () => listener.connectionCount === 2);
  const http = (await RawClient.open(port)).send(connectTo(1));
  expect(await http.whole()).toMatch(/^HTTP\/1\.1 503 .*X-Noria-Error: too-many-connections\r\n/s);
  const socks = (await RawClient.open(port)).send(socks5To(1));
  expect((await socks.whole()).slice(0, 4)).toBe('\x05\x00\x05\x01');
  expect(events('client.refused').map(({ code }) => code)).toEqual([
    'too-many-connections',
    'too-many-connections',
  ]);
  first?.socket.destroy();
  await until('it is gone', () => events('connection.closed').length === 1);
  for (const client of [http, socks]) client.socket.destroy();
  await until('one place is free', () => listener.connectionCount === 1);
  const next = (await RawClient.open(port)).send('GET / HTTP/1.1\r\n\r\n');
  expect(await next.until('an answer', whole)).toMatch(/^HTTP\/1\.1 400 /);
});

test('listener: a flood of clients above the limit is closed without a word, and holds nothing', async () => {
  const { port, listener } = await listen(directDialer(), { maxConnections: 1 });
  const clients = await Promise.all(Array.from({ length: 80 }, () => RawClient.open(port)));
  await until(
    'the rest was closed',
    () => clients.filter((client) => client.ended || client.closed).length === 80 - 65,
  );
  expect(listener.connectionCount).toBe(65);
  for (const client of clients) client.socket.destroy();
  await until('all are gone', () => listener.connectionCount === 0);
  await RawClient.open(port);
  const told = (await RawClient.open(port)).send(connectTo(1));
  expect(await told.whole()).toMatch(/^HTTP\/1\.1 503 /);
});

test('listener: a flood of clients that are not allowed holds no more', async () => {
  const { port, listener } = await listen(directDialer(), {}, { allow: ['192.0.2.0/24'] });
  const clients = await Promise.all(Array.from({ length: 80 }, () => RawClient.open(port)));
  await until(
    'the rest was closed',
    () => clients.filter((client) => client.ended || client.closed).length === 80 - 64,
  );
  expect(listener.connectionCount).toBe(64);
});

test('listener: a client that says nothing is closed in time', async () => {
  const { port, listener, deadlines, events } = await listen(directDialer(), { handshakeTimeoutMs: 40 });
  const silent = await RawClient.open(port);
  const halting = (await RawClient.open(port)).send('\x05');
  await Promise.all([silent.whole(), halting.whole()]);
  await until('both are gone', () => listener.connectionCount === 0);
  expect(events('connection.closed').map(({ outcome }) => outcome)).toEqual([
    'request-timeout',
    'request-timeout',
  ]);
  expect(deadlines.size).toBe(0);
});

test('listener: a request head that trickles is answered with 408, also as the second of its connection', async () => {
  const { port } = await listen(directDialer(), { headerTimeoutMs: 100 });
  const slow = (await RawClient.open(port)).send('GET http://a.example/ HTTP/1.1\r\nHo');
  expect(await slow.whole()).toMatch(/^HTTP\/1\.1 408 .*X-Noria-Error: request-timeout\r\n/s);
  const later = (await RawClient.open(port)).send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  await later.until('the first answer', whole);
  later.send('GET http://a.example/ HT');
  expect(await later.whole()).toMatch(/HTTP\/1\.1 408 /);
});

test.each([
  [
    'a head too large',
    `GET http://a.example/ HTTP/1.1\r\nA: ${'b'.repeat(20_000)}\r\n\r\n`,
    431,
    'head-too-large',
  ],
  [
    'a CONNECT head too large',
    `CONNECT a.example:1 HTTP/1.1\r\nA: ${'b'.repeat(20_000)}\r\n\r\n`,
    431,
    'head-too-large',
  ],
  ['an unknown method', 'FROB http://a.example/ HTTP/1.1\r\n\r\n', 501, 'not-implemented'],
  ['no HTTP at all', '\x16\x03\x01\x02\x00\x01\x00\x01\xfc', 400, 'bad-request'],
  ['a request for a web site', 'GET / HTTP/1.1\r\nHost: x\r\n\r\n', 400, 'bad-request'],
  ['an https URL', 'GET https://a.example/ HTTP/1.1\r\nHost: x\r\n\r\n', 501, 'not-implemented'],
  ['HTTP/2 without asking', 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400, 'bad-request'],
])('listener: %s is answered properly', async (_what, request, status, code) => {
  const { port, events } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(request);
  const received = await client.until('the answer', whole);
  expect(received).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  expect(received).toContain(`X-Noria-Error: ${code}\r\n`);
  expect(events('client.refused').map((event) => event.code)).toEqual([code]);
});

test('listener: a flood of pipelined requests ends its connection', async () => {
  const dialer = directDialer();
  dialer.hold();
  const { port, listener } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send('GET http://a.example/ HTTP/1.1\r\nHost: x\r\n\r\n'.repeat(200));
  await client.whole();
  await until('it is gone', () => listener.connectionCount === 0);
  expect(dialer.requests.length).toBe(1);
});

test('listener: draining takes nobody new, ends who waits, and lets what runs finish', async () => {
  const origin = await echo();
  const { port, listener } = await listen(directDialer());
  const tunnel = (await RawClient.open(port)).send(connectTo(origin.port));
  await tunnel.until('the tunnel', (text) => text.includes('\r\n\r\n'));
  const idle = await RawClient.open(port);
  const keptAlive = (await RawClient.open(port)).send('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  await keptAlive.until('its answer', whole);
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

test('listener: a request under way while draining is answered, with the end of its connection', async () => {
  const origin = await rawOrigin(answering('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi'));
  const dialer = directDialer();
  const release = dialer.hold();
  const { port, listener } = await listen(dialer);
  const client = (await RawClient.open(port)).send(
    `GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`,
  );
  await until('it was dialed', () => dialer.requests.length === 1);
  const draining = listener.drain();
  release();
  expect(await client.whole()).toMatch(/Connection: close\r\n\r\nhi$/);
  await draining;
});

test('listener: a connection whose answer had begun before the draining ends with that answer', async () => {
  const origin = await rawOrigin(answering('HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhi'));
  const { port, listener } = await listen(directDialer());
  const client = (await RawClient.open(port)).send(
    `GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`,
  );
  await client.until('the beginning', (text) => text.endsWith('hi'));
  const draining = listener.drain();
  origin.sockets[0]?.write('ho');
  expect(await client.whole()).toMatch(/hiho$/);
  await draining;
});

test('listener: closing ends everything at once, and may be asked for twice', async () => {
  const origin = await echo();
  const dialer = directDialer();
  const { port, listener, deadlines } = await listen(dialer);
  const tunnel = (await RawClient.open(port)).send(connectTo(origin.port));
  await tunnel.until('the tunnel', (text) => text.includes('\r\n\r\n'));
  await RawClient.open(port);
  await Promise.all([listener.close(), listener.close()]);
  expect(listener.connectionCount).toBe(0);
  await until('the lease ended', () => dialer.ended.length === 1);
  expect(dialer.sockets[0]?.destroyed).toBe(true);
  expect(deadlines.size).toBe(0);
});

const material = (name: string) => ({
  cert: readFileSync(`test/fixtures/tls/${name}.cert.pem`),
  key: readFileSync(`test/fixtures/tls/${name}.key.pem`),
});

async function openTls(
  port: number,
): Promise<{ socket: TLSSocket; commonName: string; received: () => string }> {
  const socket = connectTls({ port, host: '127.0.0.1', rejectUnauthorized: false });
  let received = '';
  socket.on('data', (chunk: Buffer) => {
    received += chunk.toString('latin1');
  });
  socket.on('error', () => {}); // ignored: tests look at what was received
  onTestFinished(() => {
    socket.destroy();
  });
  await new Promise((resolve) => socket.once('secureConnect', resolve));
  return { socket, commonName: String(socket.getPeerCertificate().subject.CN), received: () => received };
}

test.each([
  ['CONNECT', connectTo],
  ['SOCKS5', socks5To],
  ['SOCKS4', socks4To],
])('listener: %s inside TLS', async (_what, hello) => {
  const origin = await echo();
  const { port, listener } = await listen(directDialer(), { tls: material('first') });
  const { socket, received } = await openTls(port);
  socket.write(Buffer.from(`${hello(origin.port)}ping`, 'latin1'));
  await until('the echo', () => received().endsWith('ping'));
  socket.end();
  await until('the connection is gone', () => listener.connectionCount === 0);
});

test('listener: a half-close goes on inside TLS, and the answer to it comes back', async () => {
  const origin = await rawOrigin((socket) => {
    socket.on('end', () => socket.end('goodbye'));
  });
  const { port, listener } = await listen(directDialer(), { tls: material('first') });
  const { socket, received } = await openTls(port);
  socket.end(`${connectTo(origin.port)}hello`);
  await until('the answer', () => received().endsWith('goodbye'));
  expect(origin.seen[0]).toBe('hello');
  await until('the connection is gone', () => listener.connectionCount === 0);
});

/** Passes everything on to `port`, and keeps what comes back. */
async function wiretap(port: number): Promise<{ port: number; heard: Buffer[] }> {
  const heard: Buffer[] = [];
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const noria = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    noria.on('data', (chunk: Buffer) => heard.push(chunk));
    for (const [from, to] of [[client, noria] as const, [noria, client] as const]) {
      from.on('error', () => to.destroy()).pipe(to);
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, heard };
}

/** Types of the TLS records (RFC 5246 §6.2.1), in order. */
function recordTypes(bytes: Buffer): number[] {
  const types: number[] = [];
  for (let at = 0; at + 5 <= bytes.length; at += 5 + bytes.readUInt16BE(at + 3))
    types.push(bytes.readUInt8(at));
  return types;
}

test('listener: a tunnel inside TLS ends with close_notify, so that no client takes it for cut off', async () => {
  const origin = await rawOrigin((socket) => socket.on('end', () => socket.end('goodbye')));
  const { port } = await listen(directDialer(), { tls: material('first') });
  const tap = await wiretap(port);
  const tls = {
    port: tap.port,
    host: '127.0.0.1',
    rejectUnauthorized: false,
    maxVersion: 'TLSv1.2',
  } as const;
  const socket = connectTls(tls).on('error', () => {}); // ignored: what was heard is looked at
  socket.end(`${connectTo(origin.port)}hello`);
  socket.resume();
  await new Promise((resolve) => socket.on('close', resolve));
  const [applicationData, alert] = [23, 21];
  expect(recordTypes(Buffer.concat(tap.heard)).slice(-2)).toEqual([applicationData, alert]);
});

test('listener: absolute-form requests inside TLS keep their connection', async () => {
  const origin = await rawOrigin(answering('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi'));
  const { port } = await listen(directDialer(), { tls: material('first') });
  const { socket, received } = await openTls(port);
  for (const nth of [1, 2]) {
    socket.write(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: x\r\n\r\n`);
    await until('the answer', () => received().split('hi').length === nth + 1);
  }
});

test('listener: a new certificate serves from the next connection on; a bad one changes nothing', async () => {
  const { port, listener } = await listen(directDialer(), { tls: material('first') });
  const before = await openTls(port);
  expect(before.commonName).toBe('first.noria.test');
  const exchange = listener.prepareTls(material('second'));
  expect((await openTls(port)).commonName).toBe('first.noria.test');
  exchange();
  expect((await openTls(port)).commonName).toBe('second.noria.test');
  const mixed = { cert: material('first').cert, key: material('second').key };
  expect(() => listener.prepareTls(mixed)).toThrow(NoriaError);
  expect((await openTls(port)).commonName).toBe('second.noria.test');
  before.socket.write('GET / HTTP/1.1\r\nHost: x\r\n\r\n');
  await until('the old connection is still served', () => before.received().startsWith('HTTP/1.1 400'));
});

test('listener: a client that speaks no TLS to a TLS listener is closed, and so is one that halts in the handshake', async () => {
  const { port, listener, deadlines } = await listen(directDialer(), {
    tls: material('first'),
    handshakeTimeoutMs: 100,
  });
  const plain = (await RawClient.open(port)).send(connectTo(1));
  await plain.whole();
  const halting = (await RawClient.open(port)).send('\x16\x03\x01\x00');
  await halting.whole();
  await until('both are gone', () => listener.connectionCount === 0);
  expect(deadlines.size).toBe(0);
});

test('listener: TLS material that cannot be used is refused at the start', async () => {
  const tls = { cert: 'no', key: 'no' };
  expect((await failure(openListener(listenerOptions(directDialer(), { tls })))).code).toBe('bad-config');
});
