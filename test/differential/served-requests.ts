/**
 * Requests that noria serves, in many spellings, each with what the target must see. The expected result follows from
 * how a request is built, never from parsing it, so the corpus does not repeat a mistake of noria's parser.
 */
import { HOST, HOST_LINE, type SentRequest, type Spelling, sortFields } from './request-corpus.ts';

interface Served {
  /** The field lines, without the one that frames the body. */
  readonly lines?: readonly string[];
  /** The field lines that reach the target, without Host and without the line that frames the body. */
  readonly kept?: readonly string[];
  readonly requestLine?: (method: string, path: string) => string;
  readonly path?: (path: string) => string;
}

const served =
  (name: string, { lines = [HOST_LINE], kept = [], requestLine, path = (same) => same }: Served): Spelling =>
  (id, method, body) => {
    const first = requestLine?.(method, `/${id}`) ?? `${method} http://${HOST}/${id} HTTP/1.1`;
    const framing = body.field === undefined ? [] : [body.field];
    const fields = [`host: ${HOST}`, ...kept, ...(body.forwarded === undefined ? [] : [body.forwarded])];
    const { content, trailers = [] } = body;
    return {
      name,
      text: `${[first, ...lines, ...framing, '', ''].join('\r\n')}${body.wire}`,
      verdict: 'served',
      seen: { method, target: path(`/${id}`), fields: sortFields(fields), body: content, trailers },
    };
  };

const kept = (name: string, ...lines: string[]): Spelling =>
  served(name, { lines: [HOST_LINE, ...lines], kept: lines.map((line) => line.toLowerCase()) });

export const PLAIN: Spelling = served('plain', {});
export const SERVED: readonly Spelling[] = [
  PLAIN,
  served('no Host', { lines: [] }),
  served('another Host', { lines: ['hOST: b.example'] }),
  served('an empty Host', { lines: ['Host:'] }),
  served('a Host that is no host', { lines: ['Host: a b/c@d, e'] }),
  served('white space around a value', { lines: [HOST_LINE, 'X-A:\t b \t'], kept: ['x-a: b'] }),
  served('no white space', { lines: ['Host:a.example', 'X-A:b', 'X-B:'], kept: ['x-a: b', 'x-b: '] }),
  served('a field twice', { lines: ['X-A: 1', HOST_LINE, 'x-a: 2'], kept: ['x-a: 1', 'x-a: 2'] }),
  kept('bytes outside ASCII', 'X-A: \xfc\xff\xa0'),
  kept('a field in a value', 'X-A: transfer-encoding: chunked', 'X-B: 5, content-length: 7'),
  kept(
    'names that resemble framing fields',
    'Transfer_Encoding: chunked',
    'Content_Length: 7',
    'X-Transfer-Encoding: chunked',
  ),
  kept(
    'other names that resemble framing fields',
    'Transfer-Encodings: chunked',
    'Content-Lengt: 7',
    'Content-Length2: 9',
  ),
  served('hop-by-hop fields', {
    lines: [
      HOST_LINE,
      'Connection: keep-alive, X-Hop',
      'X-Hop: 1',
      'Keep-Alive: 5',
      'TE: trailers',
      'Proxy-Connection: close',
      'Proxy-X: 1',
    ],
  }),
  served('Connection names what it must not remove', {
    lines: [
      HOST_LINE,
      'Connection: Content-Length, Transfer-Encoding, Host',
      'connection: Authorization',
      'Authorization: z',
    ],
    kept: ['authorization: z'],
  }),
  served('Connection with empty options', { lines: [HOST_LINE, 'Connection: ,, X-Hop\t,', 'X-HOP: 1'] }),
  served('an offer of h2c', {
    lines: [HOST_LINE, 'Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMA'],
  }),
  served('noria fields', { lines: [HOST_LINE, 'X-Noria-Session: s', 'Proxy-Authorization: Basic eDp5'] }),
  served('HTTP/1.0 with keep-alive', {
    lines: [HOST_LINE, 'Connection: keep-alive'],
    requestLine: (method, path) => `${method} http://${HOST}${path} HTTP/1.0`,
  }),
  served('empty lines first', {
    requestLine: (method, path) => `\r\n\r\n${method} http://${HOST}${path} HTTP/1.1`,
  }),
  served('two spaces', { requestLine: (method, path) => `${method}  http://${HOST}${path}   HTTP/1.1` }),
  served('another spelling of the authority', {
    requestLine: (method, path) => `${method} HTTP://A.EXAMPLE.:0080${path} HTTP/1.1`,
  }),
  served('a path that contains a URL', {
    requestLine: (method, path) =>
      `${method} http://${HOST}${path}/../;x=%2e%2e%0d%0a?y=http://b.example/@:80 HTTP/1.1`,
    path: (path) => `${path}/../;x=%2e%2e%0d%0a?y=http://b.example/@:80`,
  }),
  served('a path in UTF-8', {
    requestLine: (method, path) => `${method} http://${HOST}${path}\xc3\xbc HTTP/1.1`,
    path: (path) => `${path}%C3%BC`,
  }),
];
/** Excludes transfer codings in HTTP/1.0, which has none. */
export const fits = (spelling: SentRequest): boolean =>
  !(
    spelling.text.includes(' HTTP/1.0\r\n') &&
    spelling.seen?.fields.includes('transfer-encoding: chunked') === true
  );
