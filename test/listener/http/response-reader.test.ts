import { request } from 'node:http';
import type { Socket } from 'node:net';
import { duplexPair } from 'node:stream';
import * as fc from 'fast-check';
import { expect, test } from 'vitest';
import { NoriaError } from '../../../src/core/faults.ts';
import type { HeaderField } from '../../../src/listener/http/header-fields.ts';
import { ResponseReader } from '../../../src/listener/http/response-reader.ts';
import { runsOf } from '../../support/properties.ts';

interface ParsedResponse {
  readonly status: number;
  readonly reason: string;
  readonly fields: readonly HeaderField[];
  readonly interim: readonly number[];
  readonly body: string;
  readonly trailers: readonly HeaderField[];
  readonly rest: string;
}

type Outcome = ParsedResponse | 'refused' | 'cut short';

/** Feeds the chunks to the reader, then the end of the connection. */
function readChunks(chunks: readonly Buffer[], method = 'GET'): Outcome {
  const reader = new ResponseReader(method);
  const interim: number[] = [];
  let response: ParsedResponse | undefined;
  let body = '';
  let trailers: readonly HeaderField[] | undefined;
  const take = (part: ReturnType<ResponseReader['next']>): void => {
    if (part === undefined) return;
    if (part.kind === 'interim') interim.push(part.head.status);
    else if (part.kind === 'data') body += part.chunk.toString('latin1');
    else if (part.kind === 'complete') trailers = part.trailers;
    else response = { ...part.head, interim, body: '', trailers: [], rest: '' };
  };
  try {
    for (const chunk of chunks) {
      reader.push(chunk);
      for (let part = reader.next(); part !== undefined; part = reader.next()) take(part);
    }
    if (trailers === undefined) take(reader.finish());
  } catch (error) {
    if (!(error instanceof NoriaError)) throw error;
    return error.code === 'member-closed' ? 'cut short' : 'refused';
  }
  if (response === undefined || trailers === undefined) throw new Error('complete without a head');
  const { status, reason, fields } = response;
  return { status, reason, fields, interim, body, trailers, rest: reader.rest.toString('latin1') };
}

const bytes = (text: string) => Buffer.from(text, 'latin1');
const read = (text: string, method?: string) => readChunks([bytes(text)], method);
const byteByByte = (text: string, method?: string) =>
  readChunks(
    [...text].map((letter) => bytes(letter)),
    method,
  );

const plain = { status: 200, reason: 'OK', fields: [], interim: [], body: '', trailers: [], rest: '' };

test.each<[string, string, Partial<ParsedResponse>, string?]>([
  [
    'a length',
    'HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc',
    { fields: [['Content-Length', '3']], body: 'abc' },
  ],
  ['a length of 0', 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n', { fields: [['Content-Length', '0']] }],
  ['no length: until close', 'HTTP/1.1 200 OK\r\n\r\nabc', { body: 'abc' }],
  ['HTTP/1.0', 'HTTP/1.0 200 OK\r\n\r\nabc', { body: 'abc' }],
  [
    'no reason phrase',
    'HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n',
    { reason: '', fields: [['Content-Length', '0']] },
  ],
  [
    'a reason in Latin-1',
    'HTTP/1.1 404 Nicht gef\xfcgt\r\nContent-Length: 0\r\n\r\n',
    { status: 404, reason: 'Nicht gef\xfcgt', fields: [['Content-Length', '0']] },
  ],
  [
    'chunks, with extensions and trailers',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\nA;x\r\n0123456789\r\n0\r\nX-T: 1\r\nX-t: 2\r\n\r\n',
    {
      fields: [['Transfer-Encoding', 'chunked']],
      body: 'abc0123456789',
      trailers: [
        ['X-T', '1'],
        ['X-t', '2'],
      ],
    },
  ],
  [
    'a chunk extension of 4,096 bytes, with a tab and a space',
    `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;\t ${'a'.repeat(4_094)}\r\nx\r\n0\r\n\r\n`,
    { fields: [['Transfer-Encoding', 'chunked']], body: 'x' },
  ],
  [
    'HEAD with a length',
    'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n',
    { fields: [['Content-Length', '9']] },
    'HEAD',
  ],
  ['204', 'HTTP/1.1 204 No\r\n\r\n', { status: 204, reason: 'No' }],
  [
    '304 with a length',
    'HTTP/1.1 304 Not\r\nContent-Length: 9\r\n\r\n',
    { status: 304, reason: 'Not', fields: [['Content-Length', '9']] },
  ],
  [
    'interim responses before the final one',
    'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx',
    { interim: [100, 103], fields: [['Content-Length', '1']], body: 'x' },
  ],
  [
    'fields in order, with case and duplicates',
    'HTTP/1.1 204 OK\r\nset-cookie: a\r\nSet-Cookie:b \r\nX:\t\r\n\r\n',
    {
      status: 204,
      fields: [
        ['set-cookie', 'a'],
        ['Set-Cookie', 'b'],
        ['X', ''],
      ],
    },
  ],
  [
    'white space before a colon, which is removed',
    'HTTP/1.1 204 OK\r\nX : a\r\nY\t:b\r\n\r\n',
    {
      status: 204,
      fields: [
        ['X', 'a'],
        ['Y', 'b'],
      ],
    },
  ],
  [
    '101, and what follows is not its body',
    'HTTP/1.1 101 Switching\r\nUpgrade: x\r\n\r\nframes',
    { status: 101, reason: 'Switching', fields: [['Upgrade', 'x']], rest: 'frames' },
  ],
])('response reader: %s', (_what, text, differs, method) => {
  expect(read(text, method)).toEqual({ ...plain, ...differs });
  if (differs.rest === undefined) expect(byteByByte(text, method)).toEqual({ ...plain, ...differs });
});

test('response reader: bytes after a response are not part of it', () => {
  expect(read('HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n\r\n')).toMatchObject({
    body: 'x',
    rest: 'HTTP/1.1 200 OK\r\n\r\n',
  });
});

const CHUNKED = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';

test.each([
  ['another protocol', 'SSH-2.0-x\r\n'],
  ['HTTP/2', 'HTTP/2.0 200 OK\r\n\r\n'],
  ['a status of two digits', 'HTTP/1.1 20 OK\r\n\r\n'],
  ['a status below 100', 'HTTP/1.1 099 OK\r\n\r\n'],
  ['a folded line', 'HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n'],
  ['a bare LF in the head', 'HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n'],
  ['a NUL', 'HTTP/1.1 200 OK\r\nA: \0\r\n\r\n'],
  ['two lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx'],
  ['the same length twice', 'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx'],
  ['a list of lengths', 'HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\nx'],
  ['a negative length', 'HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n'],
  ['a length in hex', 'HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\nx'],
  [
    'a length and a coding',
    'HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
  ],
  ['another transfer coding', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n'],
  [
    'two codings',
    'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
  ],
  ['a transfer coding in HTTP/1.0', 'HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
  ['an invalid chunk size', `${CHUNKED}x\r\n`],
  ['no chunk size', `${CHUNKED}\r\n\r\n`],
  ['no chunk size before an extension', `${CHUNKED};a\r\n\r\n`],
  ['a control character in a chunk extension', `${CHUNKED}1;\x7f\r\nx\r\n0\r\n\r\n`],
  ['a chunk extension of 4,097 bytes', `${CHUNKED}1;${'a'.repeat(4_097)}\r\nx\r\n0\r\n\r\n`],
  ['a chunk size with a sign', `${CHUNKED}+1\r\nx\r\n0\r\n\r\n`],
  ['a chunk size with 0x', `${CHUNKED}0x1\r\nx\r\n0\r\n\r\n`],
  ['a chunk size above the safe integers', `${CHUNKED}${'f'.repeat(17)}\r\n`],
  ['a chunk size padded with spaces', `${CHUNKED}1 \r\nx\r\n0\r\n\r\n`],
  ['a chunk size line that ends in bare LF', `${CHUNKED}1\nx\r\n0\r\n\r\n`],
  ['a chunk longer than its size', `${CHUNKED}1\r\nxy\r\n0\r\n\r\n`],
  ['a chunk that ends in bare LF', `${CHUNKED}1\r\nx\n0\r\n\r\n`],
  ['an endless chunk extension', `${CHUNKED}1;${'a'.repeat(5_000)}`],
  ['an unterminated quoted chunk extension', `${CHUNKED}1;a="b\r\nx\r\n0\r\n\r\n`],
  ['a quoted chunk extension whose last quote is escaped', `${CHUNKED}1;a="b\\"\r\nx\r\n0\r\n\r\n`],
  ['an invalid trailer', `${CHUNKED}0\r\nA\r\n\r\n`],
  ['a head above the limit', `HTTP/1.1 200 OK\r\nA: ${'b'.repeat(65_600)}\r\n\r\n`],
  ['a head that never ends', `HTTP/1.1 200 OK\r\nA: ${'b'.repeat(66_000)}`],
  ['trailers above the limit', `${CHUNKED}0\r\nA: ${'b'.repeat(66_000)}`],
  ['endless interim responses', 'HTTP/1.1 102 Wait\r\n\r\n'.repeat(40)],
])('response reader: %s is refused', (_what, text) => {
  expect(read(text)).toBe('refused');
});

test.each([
  ['in the head', 'HTTP/1.1 200 OK\r\nA: b\r\n'],
  ['in the body', 'HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab'],
  ['in a chunk', `${CHUNKED}3\r\nab`],
  ['before the last chunk', `${CHUNKED}3\r\nabc\r\n`],
  ['in the trailers', `${CHUNKED}0\r\nA: b\r\n`],
])('response reader: an end %s is an incomplete response', (_where, text) => {
  expect(read(text)).toBe('cut short');
});

test('response reader: accepts what is just within its limits, and no byte more', () => {
  const length = 'Content-Length: 0\r\n';
  const head = (bytes: number) => {
    const fields = `HTTP/1.1 200 OK\r\n${length}A: `;
    return `${fields}${'b'.repeat(bytes - fields.length)}\r\n\r\n`;
  };
  const trailers = (bytes: number) => `${CHUNKED}0\r\nA: ${'b'.repeat(bytes - 3)}\r\n\r\n`;
  const interim = (count: number) => `${'HTTP/1.1 102 Wait\r\n\r\n'.repeat(count)}HTTP/1.1 204 No\r\n\r\n`;
  const digits = (count: number) => `${CHUNKED}${'1'.padStart(count, '0')}\r\nx\r\n0\r\n\r\n`;
  for (const [build, most] of [
    [head, 65_536],
    [trailers, 65_536],
    [interim, 32],
    [digits, 13],
  ] as const) {
    expect(read(build(most)), `${build.name} ${most}`).toMatchObject({ trailers: expect.anything() });
    expect(read(build(most + 1)), `${build.name} ${most + 1}`).toBe('refused');
  }
  for (const build of [head, trailers]) {
    const unfinished = (bytes: number) => build(bytes).slice(0, -4);
    expect(read(unfinished(65_536)), build.name).toBe('cut short');
    expect(read(unfinished(65_537)), build.name).toBe('refused');
  }
});

test('response reader: when nothing follows a head, it holds no buffer of a read', () => {
  for (const [rest, isEmpty] of [
    ['', true],
    ['x', false],
  ] as const) {
    const reader = new ResponseReader('GET');
    reader.push(bytes(`HTTP/1.1 200 OK\r\n\r\n${rest}`));
    expect(reader.next()).toMatchObject({ kind: 'head' });
    expect([reader.rest.toString(), reader.rest.buffer.byteLength === 0]).toEqual([rest, isEmpty]);
  }
});

test('response reader: an empty line is a malformed status line', () => {
  const reader = new ResponseReader('GET');
  reader.push(bytes('\r\n\r\n'));
  expect(() => reader.next()).toThrow('the status line is malformed');
});

test('response reader: refuses another protocol at its first wrong byte', () => {
  for (const start of ['HTTQ', 'H ', 'HTTP/2', 'http/1.1 200', '220 '])
    expect(read(start), start).toBe('refused');
  for (const start of ['H', 'HTTP', 'HTTP/1', 'HTTP/1.']) expect(read(start), start).toBe('cut short');
});

test('response reader: trailers in pieces, whose end is split anywhere', () => {
  const text = `${CHUNKED}1\r\nx\r\n0\r\nX-T: 1\r\nX-U: 2\r\n\r\nrest`;
  for (let at = text.indexOf('X-T'); at < text.length - 4; at += 1) {
    const chunks = [bytes(text.slice(0, at)), bytes(text.slice(at))];
    expect(readChunks(chunks), `${at}`).toMatchObject({
      trailers: [
        ['X-T', '1'],
        ['X-U', '2'],
      ],
      rest: 'rest',
    });
  }
});

/** Returns how node:http parses the same bytes and the end of the connection. */
function nodeReads(
  raw: Buffer,
): Promise<Pick<ParsedResponse, 'status' | 'reason' | 'fields' | 'body' | 'trailers'> | 'refused'> {
  return new Promise((resolve) => {
    const [near, far] = duplexPair();
    const sent = request({
      createConnection: () => near as unknown as Socket,

      host: 'a',
      maxHeaderSize: 64 * 1024,
    });
    sent.on('error', () => resolve('refused'));
    sent.on('upgrade', () => resolve('refused'));
    sent.on('response', (response) => {
      let body = '';
      response.setEncoding('latin1');
      response.on('data', (chunk: string) => {
        body += chunk;
      });
      response.on('error', () => resolve('refused'));
      response.on('end', () => {
        const pairs = (flat: readonly string[]) =>
          flat.flatMap((name, at): HeaderField[] => (at % 2 === 0 ? [[name, flat[at + 1] ?? '']] : []));
        const { statusCode: status = 0, statusMessage: reason = '', rawHeaders, rawTrailers } = response;
        resolve({ status, reason, fields: pairs(rawHeaders), body, trailers: pairs(rawTrailers) });
      });
    });
    sent.end(() => far.end(raw));
    far.resume();
  });
}

const name = fc.stringMatching(/^X-[!#$%&'*+.^_`|~0-9A-Za-z-]{1,8}$/);
const value = fc.string({
  unit: fc.integer({ min: 0x09, max: 0xff }).map((code) => String.fromCharCode(code)),
  maxLength: 12,
});
const line = fc.oneof(
  { weight: 6, arbitrary: fc.tuple(name, fc.constantFrom(':', ': '), value).map((parts) => parts.join('')) },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      'Content-Length: 3',
      'Content-Length: 03',
      'Content-Length: 3,3',
      'content-length:3',
    ),
  },
  {
    weight: 1,
    arbitrary: fc.constantFrom(
      'Transfer-Encoding: chunked',
      'transfer-encoding: CHUNKED',
      'Transfer-Encoding: x',
    ),
  },
  { weight: 1, arbitrary: fc.constantFrom(' folded', '\tx: y', 'A:\0', '') },
);
const mostlyCrlf = fc.constantFrom('\r\n', '\r\n', '\r\n', '\r\n', '\r\n', '\r\n', '\r\n', '\n', '\r');
const chunk = fc
  .tuple(
    fc.string({ minLength: 1, maxLength: 9 }),
    fc.constantFrom('', '', '', ';a', ' ', ' ;b=c', 'g'),
    mostlyCrlf,
  )
  .map(
    ([data, extension, eol]) =>
      `${Buffer.byteLength(data, 'latin1').toString(16)}${extension}${eol}${data}\r\n`,
  );
const body = fc.oneof(
  fc.string({ maxLength: 6 }),
  fc.constant('abc'),
  fc
    .tuple(
      fc.array(chunk, { maxLength: 3 }),
      fc.constantFrom('0\r\n\r\n', '0\r\nX-T: 1\r\n\r\n', '00\r\n\r\n', '0\n\r\n', ''),
    )
    .map((parts) => parts.flat().join('')),
);
const response = fc
  .tuple(
    fc.constantFrom('200 OK', '200 OK', '404 ', '204 x', '304 y', '200', '2000 z'),
    fc.array(fc.tuple(line, mostlyCrlf), { maxLength: 4 }),
    body,
  )
  .map(([status, lines, content]) => `HTTP/1.1 ${status}\r\n${lines.flat().join('')}\r\n${content}`);

test('response reader: node:http parses every accepted response the same way', async () => {
  let acceptedCount = 0;
  await fc.assert(
    fc.asyncProperty(response, async (text) => {
      const ours = read(text);
      if (typeof ours === 'string' || ours.rest !== '') return;
      acceptedCount += 1;
      const { interim: _interim, rest: _rest, ...seen } = ours;
      expect(await nodeReads(bytes(text))).toEqual(seen);
    }),
    { numRuns: runsOf(2_000) },
  );
  expect(acceptedCount, 'hardly anything was comparable').toBeGreaterThan(runsOf(200));
});

test('response reader: the result does not depend on how the response is split', () => {
  void fc.assert(
    fc.property(response, fc.array(fc.nat(200), { maxLength: 8 }), (text, cuts) => {
      const raw = bytes(text);
      const places = [0, ...cuts.map((cut) => Math.min(cut, raw.length)).sort((a, b) => a - b), raw.length];
      const chunks = places.slice(1).map((end, at) => raw.subarray(places[at] ?? 0, end));
      expect(readChunks(chunks)).toEqual(read(text));
    }),
    { numRuns: runsOf(1_000) },
  );
});
