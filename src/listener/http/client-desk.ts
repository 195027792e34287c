/**
 * `http://noria.invalid/`: what a client asks and says through the proxy, with the credentials of any other request. The
 * name never resolves, so a client that bypasses noria gets an error. Nothing of it reaches a member.
 */
import { SECOND_MS } from '../../core/duration.ts';
import type { NoriaError } from '../../core/faults.ts';
import { type HostPort, hostPort } from '../../core/host-port.ts';
import type { RoutingOptions } from '../../pool/lease.ts';
import type { ClientName, ClientUse, Leases, Verdict } from '../../pool/leases.ts';
import { badRequest, refusalError } from '../refusal.ts';
import { parseDuration } from '../routing-options.ts';
import { fieldValues, type HeaderField } from './header-fields.ts';
import type { HttpReply } from './replies.ts';

export interface ClientDesk {
  readonly clients: Pick<Leases, 'describe' | 'judge'>;
  /** The use that the name means. A promise if other processes may know a later one. */
  lastUse(name: ClientName): ClientUse | undefined | Promise<ClientUse | undefined>;
  /** Moves the session now. @returns false if there is no such session, or if it never moves. */
  rotateSession(name: string): boolean;
  /** Ends the open tunnels of the client's session, or of all that used the member, to the site. */
  closeTunnels(name: ClientName, host: string): void;
}

type Answer = HttpReply | NoriaError;

export const DESK_HOST = 'noria.invalid';
const HTTP_PORT = 80;
/** Web pages send at least one of these. A page must not steer the proxy of its visitor. */
const PAGE_FIELDS = ['origin', 'referer', 'sec-fetch-site'];
const NO_CONTENT: HttpReply = { status: 204, reasonPhrase: 'No Content', headers: [], body: '' };
/** `hostPort` requires a port, but only the host of its result counts. */
const ANY_PORT = 1;

/** Only plain HTTP on port 80: a client that speaks TLS would take the desk for an attacker. */
export function deskPortError({ port }: HostPort): NoriaError | undefined {
  return port === HTTP_PORT
    ? undefined
    : refusalError(
        'forbidden',
        'noria.invalid answers only plain HTTP on port 80: use http://noria.invalid/',
      );
}

/** @param path - path and query of the request. */
export function answerDesk(
  { method, path, fields }: { method: string; path: string; fields: readonly HeaderField[] },
  { client = '', session, tag, user }: RoutingOptions,
  desk: ClientDesk,
): Answer | Promise<Answer> {
  if (PAGE_FIELDS.some((field) => fieldValues(fields, field).length > 0))
    return refusalError(
      'forbidden',
      'noria.invalid does not answer web pages (Origin, Referer, Sec-Fetch-Site)',
    );
  const { pathname, searchParams } = new URL(path, `http://${DESK_HOST}`);
  const name: ClientName = { client, session, tag };
  switch (`${method} ${pathname}`) {
    case 'GET /':
      return withLastUse(name, desk, (use) => jsonReply(desk.clients.describe(name, use)));
    case 'POST /rotate':
      return withLastUse(name, desk, () =>
        session !== undefined && desk.rotateSession(session)
          ? NO_CONTENT
          : refusalError('not-found', 'there is no session with this name that may move'),
      );
    case 'GET /banned':
    case 'POST /banned':
      return judge(name, { verdict: 'banned', user }, searchParams, desk);
    case 'GET /ok':
    case 'POST /ok':
      return judge(name, { verdict: 'ok', user }, searchParams, desk);
    default:
      return refusalError(
        'not-found',
        'noria.invalid has GET /, POST /rotate, and GET or POST /banned and /ok',
      );
  }
}

function judge(
  name: ClientName,
  verdict: Pick<Verdict, 'verdict' | 'user'>,
  query: URLSearchParams,
  desk: ClientDesk,
): Answer | Promise<Answer> {
  const given = query.get('host');
  const host = given === null ? undefined : hostPort(given, ANY_PORT)?.host;
  if (given !== null && host === undefined) return badRequest('host is not a host name, or it has a port');
  const duration = query.get('for');
  const forMs = duration === null ? undefined : parseDuration(duration, SECOND_MS);
  if (duration !== null && forMs === undefined)
    return badRequest('for is not a duration: write 30s, 10m or 2h, at most 7 days');
  return withLastUse(name, desk, (use) => {
    const judged = desk.clients.judge(name, { ...verdict, host, forMs }, use);
    if (judged === 'unknown')
      return refusalError('not-found', 'noria knows no request with this session or tag');
    if (judged === 'host-needed')
      return badRequest('this client used several sites, or none: add ?host=NAME');
    if (query.get('close') === '1') desk.closeTunnels(name, judged.host);
    return NO_CONTENT;
  });
}

function withLastUse(
  name: ClientName,
  desk: ClientDesk,
  answer: (use: ClientUse | undefined) => Answer,
): Answer | Promise<Answer> {
  const use = desk.lastUse(name);
  return use instanceof Promise ? use.then(answer) : answer(use);
}

function jsonReply(value: object): HttpReply {
  const body = `${JSON.stringify(value)}\n`;
  return {
    status: 200,
    reasonPhrase: 'OK',
    headers: [
      ['Content-Type', 'application/json'],
      ['Content-Length', String(Buffer.byteLength(body))],
      ['Cache-Control', 'no-store'],
    ],
    body,
  };
}
