/** Spellings of framing that are wrong in a request and in a response. */

/** Invalid values of Content-Length. */
export const BAD_LENGTHS = [
  '+5',
  '-5',
  '0x5',
  '5 5',
  '5.0',
  '5e0',
  '',
  '5,',
  '5, 5',
  '5;',
  'five',
  '5\0',
  '\0',
  '\x0b5',
  '\xa05',
  '\xb2',
  '\xef\xbc\x91',
  '9007199254740992',
  '18446744073709551621',
  '99999999999999999999999',
] as const;

/** Invalid values of Transfer-Encoding. */
export const BAD_CODINGS = [
  'gzip, chunked',
  'chunked, gzip',
  'chunked, chunked',
  'chunked;q=1',
  ', chunked',
  'chunked,',
  '"chunked"',
  'xchunked',
  'chunkedx',
  'chunk',
  'identity',
  '',
  'chunked\x0b',
  '\x0bchunked',
  'chunked\0',
  '\xa0chunked',
  'chunked\x0c',
  'chun\tked',
  '\x7fchunked',
] as const;

const BAD_SIZES = [
  '+5',
  '-5',
  '0x5',
  ' 5',
  '5 ',
  '5\t',
  '\t5',
  '',
  'g',
  '5g',
  '5,',
  '5\0',
  ';a',
  '5 ;a',
  '5;a\0',
  '5;a\nb',
  '00000000000005',
  'ffffffffffffffff',
  '1\xef\xbc\x90',
] as const;
/** What replaces the CR LF after a chunk. */
const BAD_CHUNK_ENDS = ['', '\n', '\r', 'xx', '\n\n', '\r\r', '\n\r', '\r0'] as const;
const BAD_TRAILERS = ['X', ' X: y', 'X: y\nZ: z', 'X: y\rZ: z', ': y', 'X: \0', 'X: y\r\n folded'] as const;

/** Chunked bodies of `hello` with an error, each with the name of the error. */
export const BAD_CHUNKED_BODIES: readonly (readonly [name: string, wire: string])[] = [
  ...BAD_SIZES.map((size) => named('a chunk size', size, `${size}\r\nhello\r\n0\r\n\r\n`)),
  ...['\n', '\r'].map((end) => named('a chunk size that ends in', end, `5${end}hello\r\n0\r\n\r\n`)),
  ...BAD_CHUNK_ENDS.map((end) => named('a chunk that ends in', end, `5\r\nhello${end}0\r\n\r\n`)),
  ['a chunk longer than its size', '5\r\nhello, you\r\n0\r\n\r\n'],
  ['a chunk shorter than its size', '5\r\nhel\r\n0\r\n\r\n'],
  ['a last chunk that ends in a bare LF', '5\r\nhello\r\n0\n\r\n'],
  ['an end of the body in a bare LF', '5\r\nhello\r\n0\r\n\n'],
  ...BAD_TRAILERS.map((line) => named('a trailer', line, `5\r\nhello\r\n0\r\n${line}\r\n\r\n`)),
];

function named(what: string, text: string, wire: string): readonly [name: string, wire: string] {
  return [`${what} ${JSON.stringify(text)}`, wire];
}
