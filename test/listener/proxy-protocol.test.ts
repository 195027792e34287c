import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { parseProxyHeader, readProxyHeader } from '../../src/listener/proxy-protocol.ts';
import { openTestSandbox, sourceLine, startNoria, untilReady } from '../support/noria.ts';
import { until } from '../support/until.ts';
import { type SocketPair, socketPair } from './socket-pair.ts';

const SIGNATURE = '0d0a0d0a000d0a515549540a';
const v2 = (hex: string) => Buffer.from(SIGNATURE + hex, 'hex');
const TCP4 = v2('2111000cc6336409cb00710730392 2b8'.replaceAll(' ', ''));

test.each([
  ['PROXY TCP4 198.51.100.9 203.0.113.7 12345 8888\r\n', '198.51.100.9'],
  ['PROXY TCP6 2001:db8::9 2001:db8::1 12345 8888\r\n', '2001:db8::9'],
  ['PROXY UNKNOWN\r\n', undefined],
  ['PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n', undefined],
])('proxy protocol: reads %j', (header, client) => {
  const bytes = Buffer.from(`${header}CONNECT`);
  expect(parseProxyHeader(bytes)).toEqual({ bytes: header.length, client });
  for (let length = 0; length < header.length; length += 1)
    expect(parseProxyHeader(bytes.subarray(0, length)), `${length} bytes`).toBeUndefined();
});

test.each([
  ['TCP over IPv4', TCP4, '198.51.100.9'],
  [
    'TCP over IPv6',
    v2(`21210024${'20010db8000000000000000000000009'.padEnd(64, '0')}00010002`),
    '2001:db8::9',
  ],
  ['LOCAL', v2('20000000'), undefined],
  ['UNSPEC', v2('21000000'), undefined],
  ['TLVs', v2(`21110010c6336409cb0071073039${'22b8'}04000101`), '198.51.100.9'],
])('proxy protocol: reads version 2 with %s', (_name, header, client) => {
  expect(parseProxyHeader(Buffer.concat([header, Buffer.from('GET /')]))).toEqual({
    bytes: header.length,
    client,
  });
  for (let length = 0; length < header.length; length += 1)
    expect(parseProxyHeader(header.subarray(0, length)), `${length} bytes`).toBeUndefined();
});

test.each([
  'GET / HTTP/1.1\r\n',
  'PROXY TCP4 198.51.100.9 203.0.113.7 12345 99999\r\n',
  'PROXY TCP4 2001:db8::9 203.0.113.7 1 2\r\n',
  'PROXY TCP4 198.51.100.999 203.0.113.7 1 2\r\n',
  'PROXY TCP4  198.51.100.9 203.0.113.7 1 2\r\n',
  `PROXY UNKNOWN ${'a'.repeat(200)}`,
  `PROXY UNKNOWN ${'a'.repeat(93)}`,
  '\x05\x01\x00',
])('proxy protocol: refuses %j', (header) => {
  expect(parseProxyHeader(Buffer.from(header, 'latin1'))).toBe('invalid');
});

test.each([
  ['TCP over IPv4 without its addresses', v2('2111000b')],
  ['TCP over IPv6 without its addresses', v2('21210023')],
])('proxy protocol: refuses version 2 with %s', (_name, header) => {
  expect(parseProxyHeader(Buffer.concat([header, Buffer.alloc(64)]))).toBe('invalid');
});

test.each([
  ['LOCAL', v2('20000000'), '127.0.0.1'],
  ['TCP', TCP4, '198.51.100.9'],
])('proxy protocol: the address of a socket after a header with %s', async (_name, header, address) => {
  const { near, far } = await socketPair();
  far.write(Buffer.concat([header, Buffer.from('rest')]));
  expect(await new Promise((resolve) => readProxyHeader(near, resolve))).toBe(true);
  expect([near.remoteAddress, String(near.read())]).toEqual([address, 'rest']);
});

test('proxy protocol: accepts what is just within its limits, and no more', () => {
  const payload = (bytes: number) =>
    Buffer.concat([v2(`2100${bytes.toString(16).padStart(4, '0')}`), Buffer.alloc(bytes)]);
  const line = (bytes: number) => Buffer.from(`PROXY UNKNOWN ${'a'.repeat(bytes - 16)}\r\n`);
  const tcp4 = (bytes: number) =>
    Buffer.concat([v2(`2111${bytes.toString(16).padStart(4, '0')}`), Buffer.alloc(bytes)]);
  const tcp6 = (bytes: number) =>
    Buffer.concat([v2(`2121${bytes.toString(16).padStart(4, '0')}`), Buffer.alloc(bytes)]);
  const port = (port: number) => Buffer.from(`PROXY TCP4 192.0.2.1 192.0.2.2 ${port} 1\r\n`);
  const otherPort = (port: number) => Buffer.from(`PROXY TCP4 192.0.2.1 192.0.2.2 1 ${port}\r\n`);
  for (const [header, valid, invalid] of [
    [payload, 4_096, 4_097],
    [line, 107, 108],
    [tcp4, 12, 11],
    [tcp6, 36, 35],
    [port, 65_535, 65_536],
    [otherPort, 65_535, 65_536],
  ] as const) {
    expect(parseProxyHeader(header(valid)), header.name).toMatchObject({ bytes: header(valid).length });
    expect(parseProxyHeader(header(invalid)), header.name).toBe('invalid');
  }
  const unfinished = Buffer.from(`PROXY UNKNOWN ${'a'.repeat(92)}`);
  expect([unfinished.length, parseProxyHeader(unfinished)]).toEqual([106, undefined]);
});

test.each(['00000000', '11000000', '22000000', '2f000000', '30000000'])(
  'proxy protocol: refuses version and command of %s',
  (head) => {
    expect(parseProxyHeader(v2(head))).toBe('invalid');
  },
);

test('proxy protocol: both addresses have the family of the line', () => {
  for (const line of [
    'TCP4 192.0.2.1 2001:db8::1',
    'TCP6 2001:db8::1 192.0.2.1',
    'TCP6 192.0.2.1 2001:db8::1',
  ])
    expect(parseProxyHeader(Buffer.from(`PROXY ${line} 1 2\r\n`)), line).toBe('invalid');
});

test.each<[string, (pair: SocketPair) => void, boolean]>([
  ['a header', ({ far }) => far.write(TCP4), true],
  [
    'a header in two parts',
    ({ far }) => far.write(TCP4.subarray(0, 5), () => far.write(TCP4.subarray(5))),
    true,
  ],
  ['other bytes', ({ far }) => far.write('GET / HTTP/1.1\r\n'), false],
  ['an end', ({ far }) => far.end(), false],
  ['an end after half a header', ({ far }) => far.end(TCP4.subarray(0, 5)), false],
  ['a reset', ({ far }) => far.resetAndDestroy(), false],
])('proxy protocol: %s is reported once, and leaves no listener', async (_what, send, expected) => {
  const pair = await socketPair();
  const events = ['readable', 'close', 'end'];
  const before = events.map((name) => pair.near.listenerCount(name));
  const reported: boolean[] = [];
  readProxyHeader(pair.near, (valid) => reported.push(valid));
  send(pair);
  await until('the report', () => reported.length > 0);
  pair.far.destroy();
  pair.near.resume().destroy();
  await until('the close', () => pair.near.closed);
  expect(reported).toEqual([expected]);
  expect(events.map((name) => pair.near.listenerCount(name))).toEqual(before);
});

test('proxy protocol: bytes never throw, and a header is never longer than the bytes', () => {
  fc.assert(
    fc.property(
      fc.uint8Array({ maxLength: 300 }),
      fc.constantFrom('', 'PROXY ', Buffer.from(SIGNATURE, 'hex')),
      (tail, head) => {
        const bytes = Buffer.concat([Buffer.from(head), tail]);
        const header = parseProxyHeader(bytes);
        if (typeof header === 'object') expect(header.bytes).toBeLessThanOrEqual(bytes.length);
      },
    ),
  );
});

async function start(proxyProtocol: string) {
  const sandbox = await openTestSandbox({ instances: [{ product: 'short-classic', members: 2 }] });
  const noria = await startNoria({
    sources: [sourceLine(sandbox, 'city', 'short-classic')],
    listener: `proxyProtocol: [${proxyProtocol}], allow: [198.51.100.0/24, 127.0.0.1], session: client-ip`,
  });
  await untilReady(noria, 1);
  const send = (...parts: (string | Buffer)[]) => {
    const [host, port] = noria.proxy.split(':');
    const socket = connect(Number(port), host);
    for (const part of parts) socket.write(part);
    return text(socket).catch(() => 'reset');
  };
  const request = `GET ${sandbox.targetUrl}/ip HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`;
  return { noria, send, request };
}

test.each([
  ['version 1', 'PROXY TCP4 198.51.100.9 203.0.113.7 12345 8888\r\n'],
  ['version 2', TCP4],
])('proxy protocol: the client of a listed peer has the address of the header, %s', async (_name, header) => {
  const { noria, send, request } = await start('127.0.0.0/8');
  expect(await send(header, request)).toContain('200 OK');
  expect(noria.control.sessions()).toMatchObject([{ id: 'client-ip=198.51.100.9' }]);
  await until('the record', () => noria.control.requests({}).length === 1);
  expect(noria.control.requests({})).toMatchObject([{ client: '198.51.100.9', outcome: 'served' }]);
  const outside = Buffer.from('PROXY TCP4 192.0.2.1 203.0.113.7 12345 8888\r\n');
  expect(await send(outside, request)).toContain('403 Forbidden');
});

test('proxy protocol: a header in pieces is read; a listed peer without one is closed', async () => {
  const { noria, send, request } = await start('127.0.0.0/8');
  const [host, port] = noria.proxy.split(':');
  const socket = connect({ port: Number(port), host: host ?? '', noDelay: true });
  const answer = text(socket);
  for (const byte of `PROXY TCP4 198.51.100.9 203.0.113.7 1 2\r\n${request}`) {
    await new Promise((next) => socket.write(byte, next));
  }
  expect(await answer).toContain('200 OK');
  expect(await send(request)).toMatch(/^(reset)?$/);
});

test('proxy protocol: a peer that is not listed is served plain, and its header is refused', async () => {
  const { noria, send, request } = await start('192.0.2.0/24');
  expect(await send(request)).toContain('200 OK');
  expect(noria.control.sessions()).toMatchObject([{ id: 'client-ip=127.0.0.1' }]);
  expect(await send('PROXY TCP4 198.51.100.9 203.0.113.7 1 2\r\n', request)).toContain('400 Bad Request');
});
