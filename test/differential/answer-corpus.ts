/** Responses in many spellings, each with what every client must understand. They are built, never parsed. */
import { BAD_CHUNKED_BODIES, BAD_CODINGS, BAD_LENGTHS } from './bad-framing.ts';

export interface Answer {
  readonly name: string;
  readonly method: 'GET' | 'HEAD';
  /** The response in Latin-1. */
  readonly text: string;
  /** What the target does with the connection after the response. */
  readonly ending: 'keeps' | 'ends' | 'resets';
  /** What the client must get. `error`: noria's own 502, or a connection that fails before the response is complete. */
  readonly expected: { readonly status: number; readonly body: string } | 'error';
  /** Whether a 1xx response precedes the response. */
  readonly hasInterim: boolean;
}

type Options = Partial<Pick<Answer, 'method' | 'ending' | 'hasInterim'>>;

/**
 * A response that is hidden in a body or follows a response. If a client gets it, noria or the client has misread where
 * a response ends.
 */
const SMUGGLED = 'HTTP/1.1 203 Smuggled\r\nContent-Length: 8\r\n\r\nsmuggled';
const OK = 'HTTP/1.1 200 OK';
const hex = SMUGGLED.length.toString(16);
const singleBytes = [...SMUGGLED].map((byte) => `1\r\n${byte}\r\n`).join('');
const CHUNKED = 'Transfer-Encoding: chunked';

const answer = (name: string, text: string, expected: Answer['expected'], options: Options): Answer => ({
  name,
  method: 'GET',
  ending: 'keeps',
  hasInterim: false,
  ...options,
  text,
  expected,
});
const good = (
  name: string,
  head: readonly string[],
  wire: string,
  body: string,
  options: Options = {},
): Answer => {
  const status = Number(/^HTTP\/1\.[01] (\d+)/.exec(head[0] ?? '')?.[1]);
  return answer(name, `${[...head, '', ''].join('\r\n')}${wire}`, { status, body }, options);
};
const bad = (name: string, text: string, options: Options = {}): Answer =>
  answer(name, text, 'error', { ending: 'ends', ...options });
const badHead = (name: string, ...lines: readonly string[]): Answer =>
  bad(name, `${[...lines, '', ''].join('\r\n')}0\r\n\r\n${SMUGGLED}`);
const badBody = (name: string, wire: string): Answer =>
  bad(name, `${OK}\r\n${CHUNKED}\r\n\r\n${wire}${SMUGGLED}`);

const LENGTH = `Content-Length: ${SMUGGLED.length}`;
const END: Options = { ending: 'ends' };
const HEAD: Options = { method: 'HEAD' };
const INTERIM: Options = { hasInterim: true };

const GOOD: readonly Answer[] = [
  good('a length', [OK, LENGTH], SMUGGLED, SMUGGLED),
  good('a length of 0', [OK, 'Content-Length: 0'], '', ''),
  good(
    'a length with zeros and white space',
    [OK, `content-LENGTH:\t 000${SMUGGLED.length} \t`],
    SMUGGLED,
    SMUGGLED,
  ),
  good('white space before the colon of a length', [OK, 'Content-Length : 5'], 'hello', 'hello'),
  good(
    'white space before the colon of a coding',
    [OK, 'Transfer-Encoding\t: CHUNKED'],
    '5\r\nhello\r\n0\r\n\r\n',
    'hello',
  ),
  good('one chunk', [OK, CHUNKED], `${hex}\r\n${SMUGGLED}\r\n0\r\n\r\n`, SMUGGLED),
  good('chunks of one byte', [OK, CHUNKED], `${singleBytes}0\r\n\r\n`, SMUGGLED),
  good('chunk extensions', [OK, CHUNKED], '5;a="b;c" ;d\r\nhello\r\n0;e\r\n\r\n', 'hello'),
  good(
    'a chunk size in capitals with zeros',
    [OK, CHUNKED],
    '000A\r\n0123456789\r\n00\r\n\r\n',
    '0123456789',
  ),
  good('chunks that contain framing', [OK, CHUNKED], '7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n', '\r\n0\r\n\r\n'),
  good('trailers', [OK, CHUNKED, 'Trailer: X-T'], '1\r\na\r\n0\r\nX-T: 1\r\nx-t :2\r\n\r\n', 'a'),
  good(
    'trailers that are framing fields',
    [OK, CHUNKED],
    '1\r\na\r\n0\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\n\r\n',
    'a',
  ),
  good('an empty chunked body', [OK, CHUNKED], '0\r\n\r\n', ''),
  good('a body until the end', [OK], SMUGGLED, SMUGGLED, END),
  good('an empty body until the end', [OK], '', '', END),
  good('HTTP/1.0 until the end', ['HTTP/1.0 200 OK'], SMUGGLED, SMUGGLED, END),
  good(
    'HTTP/1.0 with a length',
    ['HTTP/1.0 200 OK', 'Connection: keep-alive', 'Content-Length: 5'],
    'hello',
    'hello',
  ),
  good(
    'Connection: close with a length',
    [OK, 'Connection: close', 'Content-Length: 5'],
    'hello',
    'hello',
    END,
  ),
  good(
    'Connection names a length',
    [OK, 'Connection: Content-Length', 'Content-Length: 5'],
    'hello',
    'hello',
  ),
  good(
    'Connection names a coding',
    [OK, 'Connection: Transfer-Encoding', CHUNKED],
    '5\r\nhello\r\n0\r\n\r\n',
    'hello',
  ),
  good(
    'names that resemble framing fields',
    [OK, 'Content_Length: 7', 'X-Transfer-Encoding: chunked', 'Content-Length: 5'],
    'hello',
    'hello',
  ),
  good(
    'a field in a value',
    [OK, 'X-A: transfer-encoding: chunked', 'Content-Length: 5', 'X-B: content-length: 7'],
    'hello',
    'hello',
  ),
  good(
    'bytes outside ASCII',
    ['HTTP/1.1 200 \xdcber', 'X-A: \xfc\xff\xa0', 'Content-Length: 2'],
    '\xfc\0',
    '\xfc\0',
  ),
  good('no reason', ['HTTP/1.1 200', 'Content-Length: 5'], 'hello', 'hello'),
  good('an empty reason', ['HTTP/1.1 200 ', 'Content-Length: 5'], 'hello', 'hello'),
  good('a reason that is a status', ['HTTP/1.1 200 HTTP/1.1 404', 'Content-Length: 5'], 'hello', 'hello'),
  good(
    'an offer of another protocol',
    [OK, 'Upgrade: h2c', 'Connection: Upgrade', 'Content-Length: 5'],
    'hello',
    'hello',
  ),
  good(
    'noria fields',
    [OK, 'X-Noria-Error: internal', 'Proxy-Authenticate: Basic', 'Content-Length: 5'],
    'hello',
    'hello',
  ),
  good('an unknown status', ['HTTP/1.1 299 Odd', 'Content-Length: 5'], 'hello', 'hello'),
  good('an error', ['HTTP/1.1 404 No', 'Content-Length: 5'], 'hello', 'hello'),
  good('a redirect', ['HTTP/1.1 302 There', 'Location: /smuggled', 'Content-Length: 5'], 'hello', 'hello'),
  good('HEAD with a length', [OK, 'Content-Length: 5'], '', '', HEAD),
  good('HEAD with chunks', [OK, CHUNKED], '', '', HEAD),
  good('HEAD without framing', [OK], '', '', HEAD),
  good('204', ['HTTP/1.1 204 No'], '', ''),
  good('204 with a length', ['HTTP/1.1 204 No', 'Content-Length: 5'], '', ''),
  good('204 with a coding', ['HTTP/1.1 204 No', CHUNKED], '', ''),
  good('304 with a length', ['HTTP/1.1 304 Same', 'Content-Length: 5'], '', ''),
  good('304 with a coding', ['HTTP/1.1 304 Same', CHUNKED], '', ''),
  good('a 100 that nobody asked for', ['HTTP/1.1 100 Go on', '', OK, 'Content-Length: 5'], 'hello', 'hello'),
  good('a 103', ['HTTP/1.1 103 Early', 'Link: a', '', OK, 'Content-Length: 5'], 'hello', 'hello', INTERIM),
  good(
    'a 102 with framing',
    ['HTTP/1.1 102 Wait', LENGTH, '', OK, CHUNKED],
    '5\r\nhello\r\n0\r\n\r\n',
    'hello',
    INTERIM,
  ),
].map((given) => {
  // The status of the last head counts.
  if (typeof given.expected === 'string' || given.expected.status >= 200) return given;
  return { ...given, expected: { ...given.expected, status: 200 } };
});

/** Responses whose end is clear, each followed by another response that no client has requested. */
const FOLLOWED = GOOD.filter(({ ending }) => ending === 'keeps').map((given) => ({
  ...given,
  name: `${given.name}, and a second response`,
  text: given.text + SMUGGLED,
}));

const BAD_STATUS_LINES = [
  'HTTP/1.1 20 OK',
  'HTTP/1.1 2000 OK',
  'HTTP/1.1 099 OK',
  'HTTP/1.1 +20 OK',
  'HTTP/1.1 20x OK',
  'HTTP/1.1  200 OK',
  'HTTP/1.1\t200 OK',
  'HTTP/1.1 200\tOK',
  ' HTTP/1.1 200 OK',
  '\r\nHTTP/1.1 200 OK',
  '\nHTTP/1.1 200 OK',
  'HTTP/2.0 200 OK',
  'HTTP/1.2 200 OK',
  'HTTP/0.9 200 OK',
  'HTTP/11 200 OK',
  'http/1.1 200 OK',
  'HTTP/1.1',
  'ICY 200 OK',
  'HTTP/1.1 200 O\0K',
  'HTTP/1.1 200 O\rK',
  'HTTP/1.1 200 OK\nX: y',
  'HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: Upgrade',
  'HTTP/1.1 407 Password\r\nProxy-Authenticate: Basic',
] as const;

const BAD: readonly Answer[] = [
  badHead('a length, then a coding', OK, 'Content-Length: 5', CHUNKED),
  badHead('a coding, then a length', OK, CHUNKED, 'Content-Length: 5'),
  badHead('a length with a space before the colon, and a coding', OK, 'Content-Length : 5', CHUNKED),
  badHead('an invalid length and a coding', OK, 'Content-Length: x', CHUNKED),
  badHead('a nominated length and a coding', OK, 'Connection: Content-Length', 'Content-Length: 5', CHUNKED),
  badHead('two lengths', OK, 'Content-Length: 5', 'Content-Length: 10'),
  badHead('one length twice', OK, 'Content-Length: 5', 'content-length: 5'),
  badHead('two codings', OK, CHUNKED, CHUNKED),
  badHead('identity, then chunked', OK, 'Transfer-Encoding: identity', CHUNKED),
  badHead('a coding in HTTP/1.0', 'HTTP/1.0 200 OK', CHUNKED),
  ...BAD_LENGTHS.map((value) =>
    badHead(`Content-Length: ${JSON.stringify(value)}`, OK, `Content-Length: ${value}`),
  ),
  ...BAD_CODINGS.map((value) =>
    badHead(`Transfer-Encoding: ${JSON.stringify(value)}`, OK, `Transfer-Encoding: ${value}`),
  ),
  ...BAD_STATUS_LINES.map((value) => badHead(JSON.stringify(value), value, 'Content-Length: 5')),
  ...[
    'X-A: b\r\n c',
    'X-A: b\nX-B: c',
    'X-A: b\rX-B: c',
    'X-A: b\r\r\nX-B: c',
    'X-A: b\n\nhello',
    'X-A',
    ': b',
    'X A: b',
    'X-A: b\0',
    'X-A: b\x7f',
    'X\xe9: b',
    '\0: b',
  ].map((text) => badHead(`the line ${JSON.stringify(text)}`, OK, text, 'Content-Length: 5')),
  bad('a head in bare LF', `${OK}\nContent-Length: 5\n\nhello`),
  bad('a head without an end', `${OK}\r\nContent-Length: 5\r\n`),
  bad('no answer', ''),
  bad('a page without a head', '<html>hello</html>'),
  bad('too many 1xx', 'HTTP/1.1 103 Early\r\n\r\n'.repeat(40) + SMUGGLED, INTERIM),
  bad('a body shorter than its length', `${OK}\r\nContent-Length: 6\r\n\r\nhello`),
  bad('a body shorter than its length, and a reset', `${OK}\r\nContent-Length: 6\r\n\r\nhello`, {
    ending: 'resets',
  }),
  bad('a chunk that ends early', `${OK}\r\n${CHUNKED}\r\n\r\n6\r\nhello`),
  bad('no last chunk', `${OK}\r\n${CHUNKED}\r\n\r\n5\r\nhello\r\n`),
  bad('a last chunk without the empty line', `${OK}\r\n${CHUNKED}\r\n\r\n5\r\nhello\r\n0\r\n`),
  bad('trailers without an end', `${OK}\r\n${CHUNKED}\r\n\r\n5\r\nhello\r\n0\r\nX: y\r\n`),
  ...BAD_CHUNKED_BODIES.map(([name, wire]) => badBody(name, wire)),
];

export const ANSWERS: readonly Answer[] = [...GOOD, ...FOLLOWED, ...BAD];
