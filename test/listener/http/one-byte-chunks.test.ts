/**
 * A peer that sends its body in chunks of one byte: noria joins the chunks of one read, and buffers no more of this
 * body than of others.
 */
import { expect, test } from 'vitest';
import { NoriaError } from '../../../src/core/faults.ts';
import { BodyReader } from '../../../src/listener/http/body.ts';
import type { Framing } from '../../../src/listener/http/header-fields.ts';
import { until } from '../../support/until.ts';
import { directDialer } from '../direct-dialer.ts';
import { listen, RawClient, untilStill } from '../harness.ts';
import { rawOrigin } from '../origin.ts';

const COUNT = 20_000;
const CHUNKS = '1\r\nx\r\n'.repeat(COUNT);
/** Counts the size lines of a chunked message. */
const chunkCount = (message: string) => message.match(/\r\n[0-9a-f]+\r\nx/g)?.length ?? 0;
const dataBytes = (message: string) => message.slice(message.indexOf('\r\n\r\n')).match(/x/g)?.length ?? 0;

test('one-byte chunks: the chunks of one read reach the target as one chunk', async () => {
  const origin = await rawOrigin();
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send(
    `POST http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n${CHUNKS}0\r\n\r\n`,
  );
  await until('the whole body', () => origin.seen[0]?.endsWith('\r\n0\r\n\r\n') === true);
  expect(dataBytes(origin.seen[0] ?? '')).toBe(COUNT);
  expect(chunkCount(origin.seen[0] ?? '')).toBeLessThan(COUNT / 100);
});

test('one-byte chunks: the chunks of one read reach the client as one chunk', async () => {
  const origin = await rawOrigin((socket) =>
    socket.once('data', () =>
      socket.write(`HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n${CHUNKS}0\r\n\r\n`),
    ),
  );
  const { port } = await listen(directDialer());
  const client = await RawClient.open(port);
  client.send(`GET http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: t\r\n\r\n`);
  const received = await client.until('the whole body', (text) => text.endsWith('\r\n0\r\n\r\n'));
  expect(dataBytes(received)).toBe(COUNT);
  expect(chunkCount(received)).toBeLessThan(COUNT / 100);
});

test('one-byte chunks: a target that does not read stops the client, and little is queued', async () => {
  const origin = await rawOrigin((socket) => {
    socket.once('data', () => socket.pause());
  });
  const dialer = directDialer();
  const { port } = await listen(dialer);
  const client = await RawClient.open(port);
  client.send(
    `POST http://127.0.0.1:${origin.port}/ HTTP/1.1\r\nHost: t\r\nTransfer-Encoding: chunked\r\n\r\n`,
  );
  let sentBytes = 0;
  const limit = 256 * 1024 * 1024;
  const send = (): void => {
    if (sentBytes >= limit) return;
    client.socket.write(CHUNKS, (error) => {
      if (error) return;
      sentBytes += CHUNKS.length;
      send();
    });
  };
  send();
  await untilStill('back-pressure', () => sentBytes);
  expect(sentBytes).toBeLessThan(limit);
  expect(dialer.sockets[0]?.writableLength).toBeLessThan(200 * 1024);
});

const invalid = (why: string) => new NoriaError('bad-request', why);

test('one-byte chunks: the data of a read is one buffer, and holds no more memory than it has bytes', () => {
  const reader = new BodyReader(
    { kind: 'chunked' },
    { maxTrailerBytes: 100, fieldSyntax: 'request', invalid },
  );
  const data = reader.decode(Buffer.from(`${CHUNKS}a\r\n0123456789\r\n2\r\na`));
  expect(data.toString()).toBe(`${'x'.repeat(COUNT)}0123456789a`);
  expect(data.buffer.byteLength).toBeLessThan(2 * data.length);
  expect(reader.decode(Buffer.from('b\r\n0\r\n\r\nnext')).toString()).toBe('b');
  expect([reader.complete, reader.rest.toString()]).toEqual([true, 'next']);
});

test.each<[string, Framing, string]>([
  ['a length', { kind: 'length', bytes: 3 }, 'abc'],
  ['chunks', { kind: 'chunked' }, '3\r\nabc\r\n0\r\n\r\n'],
  ['trailers', { kind: 'chunked' }, '3\r\nabc\r\n0\r\nX-T: 1\r\n\r\n'],
])(
  'body: when nothing follows a body with %s, its reader holds no buffer of a read',
  (_what, framing, text) => {
    const rules = { maxTrailerBytes: 100, fieldSyntax: 'request', invalid } as const;
    for (const [rest, isEmpty] of [
      ['', true],
      ['n', false],
    ] as const) {
      const reader = new BodyReader(framing, rules);
      expect(reader.decode(Buffer.from(text + rest)).toString()).toBe('abc');
      expect([reader.complete, reader.rest.toString(), reader.rest.buffer.byteLength === 0]).toEqual([
        true,
        rest,
        isEmpty,
      ]);
    }
  },
);

test('body: data that fills less than half of a long read is a buffer of its own', () => {
  const rules = { maxTrailerBytes: 100, fieldSyntax: 'request', invalid } as const;
  const decode = (data: number, padding: number) => {
    const size = data.toString(16);
    const read = Buffer.from(`${size};${'x'.repeat(padding)}\r\n${'d'.repeat(data)}`);
    const decoded = new BodyReader({ kind: 'chunked' }, rules).decode(read);
    expect(decoded.toString()).toBe('d'.repeat(data));
    return { own: decoded.buffer !== read.buffer, bytes: read.length };
  };
  expect(decode(2_000, 4_000).own).toBe(true);
  expect(decode(100, 1_000).own, 'a short read').toBe(false);
  expect(decode(4_000, 100).own, 'more than half').toBe(false);
});
