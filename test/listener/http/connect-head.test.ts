import { createServer } from 'node:http';
import { duplexPair } from 'node:stream';
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { parseConnectHead } from '../../../src/listener/http/connect.ts';
import { pairFields } from '../../../src/listener/http/header-fields.ts';

const read = (text: string) => parseConnectHead(Buffer.from(text, 'latin1'));

test('connect head: returns target, unchanged fields and the length of the head', () => {
  const head =
    'CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\nproxy-Connection:  keep-alive \r\nX-A:\r\n\r\n';
  expect(read(`${head}early`)).toEqual({
    head: {
      authority: 'a.example:443',
      fields: [
        ['Host', 'a.example:443'],
        ['proxy-Connection', 'keep-alive'],
        ['X-A', ''],
      ],
      keepAlive: true,
    },
    bytes: head.length,
  });
});

test('connect head: Connection: close is recognised', () => {
  expect(read('CONNECT a.example:443 HTTP/1.1\r\nConnection: Close\r\n\r\n')?.head.keepAlive).toBe(false);
});

test.each([
  ['an incomplete head', 'CONNECT a.example:443 HTTP/1.1\r\nHost: a\r\n'],
  ['another method', 'GET http://a.example/ HTTP/1.1\r\n\r\n'],
  ['a method in lower case', 'connect a.example:443 HTTP/1.1\r\n\r\n'],
  ['HTTP/1.0', 'CONNECT a.example:443 HTTP/1.0\r\n\r\n'],
  ['HTTP/2', 'CONNECT a.example:443 HTTP/2.0\r\n\r\n'],
  ['user info', 'CONNECT u@a.example:443 HTTP/1.1\r\n\r\n'],
  ['two spaces', 'CONNECT  a.example:443 HTTP/1.1\r\n\r\n'],
  ['a bare LF', 'CONNECT a.example:443 HTTP/1.1\r\nA: b\nC: d\r\n\r\n'],
  ['a bare CR', 'CONNECT a.example:443 HTTP/1.1\r\nA: b\rC: d\r\n\r\n'],
  ['a folded line', 'CONNECT a.example:443 HTTP/1.1\r\nA: b\r\n c\r\n\r\n'],
  ['a space before the colon', 'CONNECT a.example:443 HTTP/1.1\r\nA : b\r\n\r\n'],
  ['a line without a colon', 'CONNECT a.example:443 HTTP/1.1\r\nA\r\n\r\n'],
  ['a NUL in a value', 'CONNECT a.example:443 HTTP/1.1\r\nA: b\0\r\n\r\n'],
  ['a length', 'CONNECT a.example:443 HTTP/1.1\r\nContent-Length: 0\r\n\r\n'],
  ['a transfer coding', 'CONNECT a.example:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n'],
  ['an expectation', 'CONNECT a.example:443 HTTP/1.1\r\nExpect: 100-continue\r\n\r\n'],
  ['an unusual Connection field', 'CONNECT a.example:443 HTTP/1.1\r\nConnection: keep-alive, x\r\n\r\n'],
  ['a head above the limit', `CONNECT a.example:443 HTTP/1.1\r\nA: ${'b'.repeat(16 * 1024)}\r\n\r\n`],
])('connect head: %s is left to node:http', (_what, text) => {
  expect(read(text)).toBeUndefined();
});

interface Understood {
  readonly authority: string;
  readonly fields: readonly (readonly [string, string])[];
  readonly early: string;
}

/** How node:http parses the same bytes. */
async function nodeReads(bytes: Buffer): Promise<Understood | 'refused'> {
  const server = createServer({ requireHostHeader: false, maxHeaderSize: 16 * 1024 });
  server.maxHeadersCount = 0;
  const understood = new Promise<Understood | 'refused'>((resolve) => {
    server.on('connect', (request, _socket, early) => {
      const fields = pairFields(request.rawHeaders);
      resolve({ authority: request.url ?? '', fields, early: early.toString('latin1') });
    });
    server.on('clientError', () => resolve('refused'));
    server.on('request', () => resolve('refused'));
  });
  const [client, socket] = duplexPair();
  server.emit('connection', socket);
  client.end(bytes);
  const result = await understood;
  client.destroy();
  socket.destroy();
  return result;
}

const token = fc.stringMatching(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}$/);
const value = fc.string({
  unit: fc.integer({ min: 0x09, max: 0xff }).map((code) => String.fromCharCode(code)),
  maxLength: 20,
});
const line = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.tuple(token, fc.constantFrom(':', ': ', ':\t '), value).map((parts) => parts.join('')),
  },
  { weight: 1, arbitrary: value },
  {
    weight: 1,
    arbitrary: fc.constantFrom('Connection: close', 'Connection: keep-alive', 'Host: a', ' folded', 'A : b'),
  },
);
const target = fc.oneof(
  {
    weight: 6,
    arbitrary: fc
      .tuple(fc.domain(), fc.integer({ min: 1, max: 65_535 }))
      .map(([host, port]) => `${host}:${port}`),
  },
  { weight: 1, arbitrary: fc.stringMatching(/^[A-Za-z0-9._:[\]-]{1,20}$/) },
);
const ending = fc.constantFrom('\r\n', '\r\n', '\r\n', '\r\n', '\r\n', '\r\n', '\n', '\r');
const head = fc
  .tuple(target, fc.array(fc.tuple(line, ending), { maxLength: 5 }), fc.string({ maxLength: 10 }))
  .map(([to, lines, early]) => `CONNECT ${to} HTTP/1.1\r\n${lines.flat().join('')}\r\n${early}`);

test('connect head: node:http parses every accepted head the same way', async () => {
  let readCount = 0;
  await fc.assert(
    fc.asyncProperty(head, async (text) => {
      const bytes = Buffer.from(text, 'latin1');
      const ours = parseConnectHead(bytes);
      if (ours === undefined) return;
      readCount += 1;
      const early = bytes.subarray(ours.bytes).toString('latin1');
      expect(await nodeReads(bytes)).toEqual({
        authority: ours.head.authority,
        fields: ours.head.fields,
        early,
      });
    }),
    { numRuns: 2_000 },
  );
  expect(readCount, 'hardly anything was comparable').toBeGreaterThan(200);
});
