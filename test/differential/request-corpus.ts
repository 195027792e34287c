/** The parts of the requests in the corpus: methods, bodies, and what a target must see of them. */

/** What a target sees of a request. */
export interface SeenRequest {
  readonly method: string;
  readonly target: string;
  /** `name: value` with names in lower case, sorted by name because some parsers do not keep the order of names. */
  readonly fields: readonly string[];
  readonly body: string;
  readonly trailers: readonly string[];
}

/** One request as a client sends it, in Latin-1. */
export interface SentRequest {
  readonly name: string;
  readonly text: string;
  /**
   * `served`: the target sees it. `declined`: noria answers it with an error, and the next request is served. `refused`: noria answers
   * it with an error and closes.
   */
  readonly verdict: 'served' | 'declined' | 'refused';
  readonly seen?: SeenRequest;
}

/** Returns a request in this spelling with the path `/id`. */
export type Spelling = (id: string, method: string, body: Body) => SentRequest;

/** A body and the one field that frames it. */
export interface Body {
  readonly field?: string;
  /** The value with which `field` reaches the target; undefined if noria does not change the value. */
  readonly forwarded?: string;
  /** The body with its framing. */
  readonly wire: string;
  readonly content: string;
  readonly trailers?: readonly string[];
}

export const HOST = 'a.example';
export const HOST_LINE = `Host: ${HOST}`;
/**
 * A body that looks like a request. If a target sees it as a request, noria or the target has misread where a body
 * ends.
 */
export const SMUGGLED = `GET http://${HOST}/smuggled HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`;
export const METHODS = ['GET', 'POST', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'PROPFIND'] as const;

const byLength = (content: string, spelt = `${content.length}`): Body => ({
  field: `Content-Length: ${spelt}`,
  forwarded: `content-length: ${content.length}`,
  wire: content,
  content,
});
const chunked = (wire: string, content: string, trailers: readonly string[] = []): Body => ({
  field: 'Transfer-Encoding: chunked',
  forwarded: 'transfer-encoding: chunked',
  wire,
  content,
  trailers,
});
const hex = (content: string): string => content.length.toString(16);
const singleBytes = [...SMUGGLED].map((byte) => `1\r\n${byte}\r\n`).join('');

export const NO_BODY: Body = { wire: '', content: '' };
export const BODIES: readonly Body[] = [
  NO_BODY,
  byLength(SMUGGLED),
  chunked(`${hex(SMUGGLED)}\r\n${SMUGGLED}\r\n0\r\n\r\n`, SMUGGLED),
  byLength(''),
  chunked('0\r\n\r\n', ''),
  chunked(`${singleBytes}0\r\n\r\n`, SMUGGLED),
  byLength(SMUGGLED, `000${SMUGGLED.length}`),
  chunked(`000${hex(SMUGGLED).toUpperCase()};a="b;c" ;d\r\n${SMUGGLED}\r\n00;e\r\n\r\n`, SMUGGLED),
  byLength('0\r\n\r\n'),
  chunked(`3\r\n\r\n0\r\n2\r\n\r\n\r\n0\r\nX-T: 1\r\nx-t:2\r\n\r\n`, '\r\n0\r\n', ['x-t: 1', 'x-t: 2']),
  chunked('1\r\na\r\n0\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\nHost: b\r\n\r\n', 'a'),
  { ...chunked('A\r\n0123456789\r\n0\r\n\r\n', '0123456789'), field: 'TRANSFER-encoding:\t ChUnKeD \t' },
  { ...byLength('ab'), field: 'content-LENGTH:2\t' },
];

/** Sorts by name and keeps the order of fields with the same name. */
export function sortFields(fields: readonly string[]): string[] {
  const nameOf = (field: string): string => field.slice(0, field.indexOf(':'));
  return fields.toSorted((a, b) => (nameOf(a) < nameOf(b) ? -1 : nameOf(a) > nameOf(b) ? 1 : 0));
}
