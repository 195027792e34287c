/**
 * Requests that noria must not serve. After ambiguous or malformed ones, it closes the connection; it only declines the
 * others.
 */
import { BAD_CHUNKED_BODIES, BAD_CODINGS, BAD_LENGTHS } from './bad-framing.ts';
import { type Body, HOST, HOST_LINE, SMUGGLED, type Spelling } from './request-corpus.ts';

const wrong =
  (verdict: 'declined' | 'refused') =>
  (name: string, make: (start: string, body: Body) => string): Spelling =>
  (id, method, body) => ({ name, verdict, text: make(`${method} http://${HOST}/${id}`, body) });
const refused = wrong('refused');
const declined = wrong('declined');

const withLines =
  (...lines: readonly string[]) =>
  (start: string): string =>
    `${[`${start} HTTP/1.1`, HOST_LINE, ...lines, '', ''].join('\r\n')}`;
/** A head that frames its body in two ways. Each way leaves other bytes after the body. */
const ambiguous = (name: string, ...lines: readonly string[]): Spelling =>
  refused(name, (start) => `${withLines(...lines)(start)}0\r\n\r\n${SMUGGLED}`);
const line = (name: string, text: string): Spelling =>
  refused(
    name,
    (start) => `${start} HTTP/1.1\r\n${HOST_LINE}\r\n${text}\r\nContent-Length: 0\r\n\r\n${SMUGGLED}`,
  );
const requestLine = (name: string, make: (start: string) => string): Spelling =>
  refused(name, (start) => `${make(start)}\r\n${HOST_LINE}\r\n\r\n${SMUGGLED}`);
const badBody = (name: string, wire: string): Spelling =>
  refused(name, (start) => `${withLines('Transfer-Encoding: chunked')(start)}${wire}${SMUGGLED}`);

export const REFUSED: readonly Spelling[] = [
  ambiguous('a length, then a transfer coding', 'Content-Length: 5', 'Transfer-Encoding: chunked'),
  ambiguous('a transfer coding, then a length', 'Transfer-Encoding: chunked', 'Content-Length: 5'),
  ambiguous('a length of 0 and a transfer coding', 'Content-Length: 0', 'transfer-encoding: chunked'),
  ambiguous('an invalid length and a transfer coding', 'Content-Length: x', 'Transfer-Encoding: chunked'),
  ambiguous('a length and another transfer coding', 'Transfer-Encoding: identity', 'Content-Length: 5'),
  ambiguous(
    'a nominated length and a transfer coding',
    'Connection: Content-Length',
    'Content-Length: 5',
    'Transfer-Encoding: chunked',
  ),
  ambiguous('two transfer codings', 'Transfer-Encoding: chunked', 'Transfer-Encoding: chunked'),
  ambiguous('identity, then chunked', 'Transfer-Encoding: identity', 'Transfer-Encoding: chunked'),
  ambiguous('chunked, then identity', 'Transfer-Encoding: chunked', 'transfer-encoding: identity'),
  ambiguous('two lengths', 'Content-Length: 0', `Content-Length: ${SMUGGLED.length}`),
  ambiguous('one length twice', 'Content-Length: 5', 'content-length: 5'),
  ...BAD_LENGTHS.map((value) =>
    ambiguous(`Content-Length: ${JSON.stringify(value)}`, `Content-Length: ${value}`),
  ),
  ...BAD_CODINGS.map((value) =>
    ambiguous(`Transfer-Encoding: ${JSON.stringify(value)}`, `Transfer-Encoding: ${value}`),
  ),
  refused(
    'a transfer coding in HTTP/1.0',
    (start) =>
      `${start} HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${SMUGGLED}`,
  ),
  ...[' ', '\t', '\x0b', '\0', '\xa0', '\r'].flatMap((gap) => [
    ambiguous(`${JSON.stringify(gap)} before the colon of a length`, `Content-Length${gap}: 5`),
    ambiguous(`${JSON.stringify(gap)} before the colon of a coding`, `Transfer-Encoding${gap}: chunked`),
    ambiguous(`${JSON.stringify(gap)} before a coding`, `${gap}Transfer-Encoding: chunked`),
  ]),
  line('a folded line', 'X-A: b\r\n c'),
  line('a folded coding', 'Transfer-Encoding:\r\n chunked'),
  line('a coding after a bare LF', 'X-A: b\nTransfer-Encoding: chunked'),
  line('a coding after a bare CR', 'X-A: b\rTransfer-Encoding: chunked'),
  line('a coding after CR CR LF', 'X-A: b\r\r\nTransfer-Encoding: chunked'),
  line('an end of the head in bare LF', 'X-A: b\n\nGET /smuggled HTTP/1.1'),
  line('an end of the head in CR LF LF', 'X-A: b\r\n\nGET /smuggled HTTP/1.1'),
  line('an end of the head in LF CR LF', 'X-A: b\n\r\nGET /smuggled HTTP/1.1'),
  line('no colon', 'X-A'),
  line('no name', ': b'),
  line('a name with a space', 'X A: b'),
  line('a name with a bracket', 'X(A): b'),
  line('a name outside ASCII', 'X\xe9: b'),
  line('a NUL in a value', 'X-A: b\0c'),
  line('a DEL in a value', 'X-A: b\x7fc'),
  line('a form feed in a value', 'X-A: b\x0cc'),
  requestLine('no version', (start) => start),
  requestLine('HTTP/0.9', (start) => `${start} HTTP/0.9`),
  requestLine('HTTP/2.0', (start) => `${start} HTTP/2.0`),
  requestLine('a version in lower case', (start) => `${start} http/1.1`),
  requestLine('a version of two digits', (start) => `${start} HTTP/1.11`),
  requestLine('a version without a point', (start) => `${start} HTTP/11`),
  requestLine('a space after the version', (start) => `${start} HTTP/1.1 `),
  requestLine('a tab after the version', (start) => `${start} HTTP/1.1\t`),
  requestLine('a bare LF after the version', (start) => `${start} HTTP/1.1\nX: y`),
  requestLine('a bare CR after the version', (start) => `${start} HTTP/1.1\rX: y`),
  requestLine('two targets', (start) => `${start} /x HTTP/1.1`),
  requestLine('two versions', (start) => `${start} HTTP/1.1 HTTP/1.1`),
  requestLine('a tab between method and target', (start) => `${start.replace(' ', '\t')} HTTP/1.1`),
  requestLine('a leading space', (start) => ` ${start} HTTP/1.1`),
  requestLine('a leading bare LF', (start) => `\n${start} HTTP/1.1`),
  requestLine('a leading bare CR', (start) => `\r${start} HTTP/1.1`),
  requestLine('a leading NUL', (start) => `\0${start} HTTP/1.1`),
  requestLine('a NUL in the target', (start) => `${start}\0 HTTP/1.1`),
  requestLine('a bare CR in the target', (start) => `${start}\rx HTTP/1.1`),
  requestLine('a control character in the method', (start) => `G\x01${start} HTTP/1.1`),
  requestLine('a bracket in the method', (start) => `(${start} HTTP/1.1`),
  requestLine('an unknown expectation', (start) => `${start} HTTP/1.1\r\nExpect: 200-ok`),
  refused(
    'a CONNECT with a length',
    () => `CONNECT ${HOST}:80 HTTP/1.1\r\nContent-Length: 5\r\n\r\n${SMUGGLED}`,
  ),
  refused(
    'a CONNECT with a transfer coding',
    () => `CONNECT ${HOST}:80 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n${SMUGGLED}`,
  ),
  refused('a CONNECT to a URL', (start) => `CONNECT ${start.split(' ')[1]} HTTP/1.1\r\n\r\n${SMUGGLED}`),
  ...BAD_CHUNKED_BODIES.map(([name, wire]) => badBody(name, wire)),
  badBody('a space before the colon of a trailer', 'A\r\n0123456789\r\n0\r\nX : y\r\n\r\n'),
];

const framed = (first: string, { field, wire }: Body, ...lines: readonly string[]): string =>
  `${[first, ...lines, ...(field === undefined ? [] : [field]), '', ''].join('\r\n')}${wire}`;
const target = (name: string, make: (start: string) => string): Spelling =>
  declined(name, (start, body) => framed(`${make(start)} HTTP/1.1`, body, HOST_LINE));
const methodOf = (start: string): string => start.split(' ')[0] ?? '';

export const DECLINED: readonly Spelling[] = [
  target('origin form', (start) => `${methodOf(start)} /smuggled`),
  target('asterisk form', (start) => `${methodOf(start)} *`),
  target('authority form', (start) => `${methodOf(start)} ${HOST}:80`),
  target('an https URL', (start) => start.replace('http:', 'https:')),
  target('another scheme', (start) => start.replace('http:', 'ftp:')),
  target('user info', (start) => start.replace('://', '://b.example@')),
  target('a host with a backslash', (start) => start.replace('://', '://b.example\\')),
  target('no host', (start) => start.replace(HOST, '')),
  target('a port of 0', (start) => start.replace(HOST, `${HOST}:0`)),
  target('a port above the limit', (start) => start.replace(HOST, `${HOST}:65616`)),
  target('a fragment', (start) => `${start}#x`),
  declined('two Host fields', (start, body) => framed(`${start} HTTP/1.1`, body, HOST_LINE, HOST_LINE)),
  declined('two credentials', (start, body) =>
    framed(
      `${start} HTTP/1.1`,
      body,
      HOST_LINE,
      'Proxy-Authorization: Basic eDp5',
      'Proxy-Authorization: Basic eDp5',
    ),
  ),
  declined('an invalid routing option', (start, body) =>
    framed(`${start} HTTP/1.1`, body, HOST_LINE, 'X-Noria-Life: soon'),
  ),
];
