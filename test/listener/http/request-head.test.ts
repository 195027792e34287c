import { createServer, METHODS } from 'node:http';
import { duplexPair } from 'node:stream';
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { NoriaError } from '../../../src/core/faults.ts';
import { parseRequestHead } from '../../../src/listener/http/request-head.ts';
import { runsOf } from '../../support/properties.ts';

const read = (text: string) => parseRequestHead(Buffer.from(text, 'latin1'));
const headOf = (text: string) => {
  const parsed = read(text);
  if (parsed === undefined || parsed instanceof NoriaError) throw new Error('no head');
  return parsed.head;
};

test('request head: returns the unchanged target and fields, the framing and the length of the head', () => {
  const head =
    '\r\nPOST http://a.example/x HTTP/1.1\r\nHost: a.example\r\nX-A:  b \r\nX-a:\r\nContent-Length: 3\r\n\r\n';
  expect(read(`${head}abc`)).toEqual({
    head: {
      method: 'POST',
      target: 'http://a.example/x',
      minorVersion: 1,
      fields: [
        ['Host', 'a.example'],
        ['X-A', 'b'],
        ['X-a', ''],
        ['Content-Length', '3'],
      ],
      framing: { kind: 'length', bytes: 3 },
      keepAlive: true,
    },
    bytes: head.length,
  });
});

test.each([
  ['HTTP/1.1', 'HTTP/1.1\r\n\r\n', true],
  ['HTTP/1.1 with close', 'HTTP/1.1\r\nConnection: x, Close\r\n\r\n', false],
  ['HTTP/1.0', 'HTTP/1.0\r\n\r\n', false],
  ['HTTP/1.0 with keep-alive', 'HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n', true],
  ['HTTP/1.0 with keep-alive and close', 'HTTP/1.0\r\nConnection: Keep-Alive, close\r\n\r\n', false],
  ['another version', 'HTTP/2.0\r\n\r\n', false],
  ['ambiguous framing', 'HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n', false],
])('request head: whether another request may follow: %s', (_what, rest, expected) => {
  expect(headOf(`GET http://a.example/ ${rest}`).keepAlive).toBe(expected);
});

test('request head: any token is a method', () => {
  expect(
    ['FROB', 'get', "!#$%&'*+-.^_`|~9"].map((method) => headOf(`${method} * HTTP/1.1\r\n\r\n`).method),
  ).toEqual(['FROB', 'get', "!#$%&'*+-.^_`|~9"]);
});

const LONG = 'b'.repeat(20_000);

test.each([
  ['a method with a colon', 'GE:T http://a/ HTTP/1.1\r\n\r\n', 'bad-request'],
  ['no version', 'GET http://a/\r\n\r\n', 'bad-request'],
  ['a control character in the target', 'GET http://a/\x01 HTTP/1.1\r\n\r\n', 'bad-request'],
  ['a space in the target', 'GET http://a/ b HTTP/1.1\r\n\r\n', 'bad-request'],
  ['a bare LF', 'GET http://a/ HTTP/1.1\r\nA: b\nC: d\r\n\r\n', 'bad-request'],
  ['a bare CR', 'GET http://a/ HTTP/1.1\r\nA: b\rC: d\r\n\r\n', 'bad-request'],
  ['a folded line', 'GET http://a/ HTTP/1.1\r\nA: b\r\n c\r\n\r\n', 'bad-request'],
  ['a space before the colon', 'GET http://a/ HTTP/1.1\r\nA : b\r\n\r\n', 'bad-request'],
  ['a line without a colon', 'GET http://a/ HTTP/1.1\r\nA\r\n\r\n', 'bad-request'],
  ['a NUL in a value', 'GET http://a/ HTTP/1.1\r\nA: b\0\r\n\r\n', 'bad-request'],
  ['the start of another protocol', '\x16\x03\x01', 'bad-request'],
  ['an incomplete line that cannot become valid', 'GET http://a/ b', 'bad-request'],
  ['an incomplete head with a bare LF', 'GET http://a/ HTTP/1.1\nHost: x\n\n', 'bad-request'],
  ['a request line above the limit', `GET http://a/${LONG} HTTP/1.1\r\n\r\n`, 'uri-too-long'],
  ['a request line above the limit, incomplete', `GET http://a/${LONG}`, 'uri-too-long'],
  ['fields above the limit', `GET http://a/ HTTP/1.1\r\nA: ${LONG}\r\n\r\n`, 'head-too-large'],
  ['fields above the limit, incomplete', `GET http://a/ HTTP/1.1\r\nA: ${LONG}`, 'head-too-large'],
])('request head: %s is refused', (_what, text, code) => {
  const parsed = read(text);
  expect(parsed instanceof NoriaError ? parsed.code : parsed).toBe(code);
});

test('request head: every prefix of a valid head is incomplete', () => {
  const text = '\r\nPOST  http://a.example/\xfc  HTTP/1.1\r\nHost: x\r\nA:\r\n\r\n';
  for (let end = 1; end < text.length; end += 1) {
    expect(read(text.slice(0, end)), JSON.stringify(text.slice(0, end))).toBeUndefined();
  }
  expect(headOf(text).target).toBe('http://a.example/\xfc');
});

interface Understood {
  readonly method: string | undefined;
  readonly target: string | undefined;
  readonly fields: readonly string[];
}

/** Returns how node:http parses the same bytes. */
async function nodeReads(bytes: Buffer): Promise<Understood | 'refused'> {
  const server = createServer({ requireHostHeader: false, maxHeaderSize: 16 * 1024 });
  server.maxHeadersCount = 0;
  const understood = new Promise<Understood | 'refused'>((resolve) => {
    for (const event of ['connect', 'request', 'upgrade', 'checkContinue', 'checkExpectation']) {
      server.on(event, ({ method, url, rawHeaders }) => resolve({ method, target: url, fields: rawHeaders }));
    }
    server.on('clientError', () => resolve('refused'));
  });
  const [client, socket] = duplexPair();
  server.emit('connection', socket);
  client.write(bytes);
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
    weight: 2,
    arbitrary: fc.constantFrom(
      'Connection: close',
      'Connection: Upgrade',
      'Upgrade: websocket',
      'Content-Length: 03',
      'Transfer-Encoding: chunked',
      'Expect: 100-continue',
      ' folded',
      'A : b',
    ),
  },
);
const target = fc.oneof(
  {
    weight: 4,
    arbitrary: fc
      .tuple(
        fc.constantFrom('http', 'https'),
        fc.domain(),
        fc.stringMatching(/^(\/[\w!$&'()*+,;=:@.~%-]{0,9}){0,3}(\?[!-~]{0,12})?$/),
      )
      .map(([scheme, host, path]) => `${scheme}://${host}${path}`),
  },
  { weight: 2, arbitrary: fc.domain().map((host) => `${host}:443`) },
  { weight: 1, arbitrary: fc.stringMatching(/^[\x20-\x7e]{1,20}$/) },
);
const ending = fc.constantFrom('\r\n', '\r\n', '\r\n', '\r\n', '\r\n', '\r\n', '\r\n', '\n', '\r');
const head = fc
  .tuple(
    fc.constantFrom('GET', 'POST', 'CONNECT', 'PROPFIND'),
    target,
    fc.constantFrom('HTTP/1.1', 'HTTP/1.1', 'HTTP/1.0'),
    fc.array(fc.tuple(line, ending), { maxLength: 5 }),
  )
  .map(([method, to, version, lines]) => `${method} ${to} ${version}\r\n${lines.flat().join('')}\r\n`);

test('request head: node:http parses every accepted head the same way', async () => {
  let comparedCount = 0;
  await fc.assert(
    fc.asyncProperty(head, async (text) => {
      const ours = read(text);
      if (ours === undefined || ours instanceof NoriaError || ours.head.framing instanceof NoriaError) return;
      expect(METHODS).toContain(ours.head.method);
      const { method, target: to, fields } = ours.head;
      const theirs = await nodeReads(Buffer.from(text, 'latin1'));
      // node:http also checks the request target, which noria does later. Both must understand what both accept in the
      // same way.
      if (theirs === 'refused' && !/^https?:\/\/[a-z]/.test(to)) return;
      comparedCount += 1;
      expect(theirs).toEqual({ method, target: to, fields: fields.flat() });
    }),
    { numRuns: runsOf(2_000) },
  );
  expect(comparedCount, 'hardly anything was comparable').toBeGreaterThan(runsOf(200));
});

test('request head: has at most 16 KiB without the empty lines before it, complete or not', () => {
  const head = (bytes: number) => `GET http://a/ HTTP/1.1\r\nA: ${'b'.repeat(bytes - 31)}\r\n\r\n`;
  const line = (bytes: number) => `GET /${'b'.repeat(bytes - 16)} HTTP/1.1\r\n`;
  expect(read(`\r\n${head(16_384)}`)).toMatchObject({ bytes: 16_386 });
  expect(read(head(16_388).slice(0, -4))).toBeUndefined();
  const tooLong: readonly [string, string][] = [
    [head(16_385), 'head-too-large'],
    [head(16_389).slice(0, -4), 'head-too-large'],
    [`\r\n\r\n${line(16_386)}A: b`, 'head-too-large'],
    [`${line(16_387)}A: b`, 'uri-too-long'],
    [`GET /${'b'.repeat(16_380)}`, 'uri-too-long'],
  ];
  for (const [text, code] of tooLong) expect(read(text), code).toMatchObject({ code });
  expect(read(`GET /${'b'.repeat(16_379)}`)).toBeUndefined();
});
