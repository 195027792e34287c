import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type AddressInfo, connect, createServer } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { NoriaError } from '../../src/core/faults.ts';
import { openListener } from '../../src/listener/listener.ts';
import { LoopClock } from '../support/loop-clock.ts';
import { until } from '../support/until.ts';
import { directDialer } from './direct-dialer.ts';
import { connectTo, failure, listen, listenerOptions, RawClient, socks4To, socks5To } from './harness.ts';
import { answering, echo, rawOrigin } from './origin.ts';

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
  socket.on('error', () => {}); // ignored: tests check the received bytes
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
  await until('the close', () => listener.connectionCount === 0);
});

test('listener: a half-close inside TLS is forwarded, and the reply comes back', async () => {
  const origin = await rawOrigin((socket) => {
    socket.on('end', () => socket.end('goodbye'));
  });
  const { port, listener } = await listen(directDialer(), { tls: material('first') });
  const { socket, received } = await openTls(port);
  socket.end(`${connectTo(origin.port)}hello`);
  await until('the response', () => received().endsWith('goodbye'));
  expect(origin.seen[0]).toBe('hello');
  await until('the close', () => listener.connectionCount === 0);
});

/** Relays to `port` and records what comes back. */
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

/** The types of the TLS records (RFC 5246 §6.2.1), in order. */
function recordTypes(bytes: Buffer): number[] {
  const types: number[] = [];
  for (let at = 0; at + 5 <= bytes.length; at += 5 + bytes.readUInt16BE(at + 3))
    types.push(bytes.readUInt8(at));
  return types;
}

test('listener: a tunnel inside TLS ends with close_notify, so it does not look truncated', async () => {
  const origin = await rawOrigin((socket) => socket.on('end', () => socket.end('goodbye')));
  const { port } = await listen(directDialer(), { tls: material('first') });
  const tap = await wiretap(port);
  const tls = {
    port: tap.port,
    host: '127.0.0.1',
    rejectUnauthorized: false,
    maxVersion: 'TLSv1.2',
  } as const;
  const socket = connectTls(tls).on('error', () => {}); // ignored: the test checks the recorded bytes
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
    await until('the response', () => received().split('hi').length === nth + 1);
  }
});

test('listener: a refused client inside TLS gets its reply, and its connection closes when it ends', async () => {
  const { port, listener, deadlines } = await listen(directDialer(), { tls: material('first') });
  const { socket, received } = await openTls(port);
  socket.write('CONNECT a.example HTTP/1.1\r\n\r\n');
  await until('the refusal', () => received().startsWith('HTTP/1.1 400 '));
  socket.end();
  await until('the close', () => listener.connectionCount === 0);
  expect(deadlines.size).toBe(0);
});

test('listener: a new certificate applies to new connections, and an invalid one changes nothing', async () => {
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

test('listener: closes clients without TLS, and those that stall in the TLS handshake', async () => {
  const { port, listener, deadlines } = await listen(directDialer(), {
    tls: material('first'),
    clock: new LoopClock(),
    handshakeTimeoutMs: 4_000,
  });
  const plain = (await RawClient.open(port)).send(connectTo(1));
  await plain.whole();
  const halting = (await RawClient.open(port)).send('\x16\x03\x01\x00');
  await halting.whole();
  await until('both closes', () => listener.connectionCount === 0);
  expect(deadlines.size).toBe(0);
});

test('listener: refuses unusable TLS material at the start', async () => {
  const tls = { cert: 'no', key: 'no' };
  expect((await failure(openListener(listenerOptions(directDialer(), { tls })))).code).toBe('bad-config');
});
