/**
 * Who may talk to the admin API: each guard answers one attack.
 *
 * - Host: a page on the web that points its own name at our address (DNS rebinding).
 * - Origin and Sec-Fetch-Site: a page on the web that sends requests to us from the operator's browser (CSRF).
 * - Token: anyone else who can reach the address; compared in constant time.
 * - Content type: CSRF by a plain form, which cannot say application/json.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { HonoRequest, MiddlewareHandler } from 'hono';
import { parseHostPort } from '../core/host-port.ts';
import { isLoopbackAddress } from '../core/networks.ts';
import type { Secret } from '../core/secret.ts';
import { sendError } from './openapi.ts';

export interface GuardOptions {
  /** Host and port the server listens on. */
  readonly address: () => { readonly host: string; readonly port: number };
  readonly token?: Secret;
  /** Whether such a request would do something: only then its content type is of any interest. */
  readonly hasRoute: (method: string, path: string) => boolean;
  /** Paths that need no token: the page's shell, and what an orchestrator asks. */
  readonly open: ReadonlySet<string>;
}

/** On every answer, the page's own policy aside: nothing of it is to be run, framed, kept or guessed at. */
const HEADERS = {
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-store',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
} as const;

const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD']);

/** Whether requests of this method change nothing. */
export function isSafe(method: string): boolean {
  return SAFE_METHODS.has(method);
}

/** Lets pass what none of the attacks could have sent; the rest is told why not. Sets the headers that every answer has. */
export function guard(options: GuardOptions): MiddlewareHandler {
  return async (context, next) => {
    const { req } = context;
    for (const [name, value] of Object.entries(HEADERS)) context.header(name, value);
    if (!namesUs(req.header('host'), options.address())) {
      return sendError(
        context,
        'wrong-host',
        'this name is not one of the admin address: use the address or localhost',
      );
    }
    if (!isOwnOrigin(req.header('origin'), req.header('host'))) {
      return sendError(context, 'wrong-origin', 'requests from other web pages are refused');
    }
    const site = req.header('sec-fetch-site');
    const ownSite = site === undefined || site === 'same-origin' || site === 'none';
    // A link to the page may stand anywhere: what it opens is a page of its own, and cannot be framed.
    if (!ownSite && !(req.path === '/' && isNavigation(req))) {
      return sendError(context, 'wrong-origin', 'requests from other web pages are refused');
    }
    if (
      options.token !== undefined &&
      !options.open.has(req.path) &&
      !bears(req.header('authorization'), options.token)
    ) {
      context.header('WWW-Authenticate', 'Bearer realm="noria"');
      return sendError(
        context,
        'token-required',
        'send Authorization: Bearer with the token of the configuration',
      );
    }
    const isJson = /^application\/json\b/i.test(req.header('content-type') ?? '');
    if (!isSafe(req.method) && !isJson && options.hasRoute(req.method, req.path)) {
      return sendError(context, 'wrong-content-type', 'send Content-Type: application/json');
    }
    return next();
  };
}

/** Someone follows a link, and what comes is shown as a page of its own. */
function isNavigation(req: HonoRequest): boolean {
  return (
    isSafe(req.method) &&
    req.header('sec-fetch-mode') === 'navigate' &&
    req.header('sec-fetch-dest') === 'document'
  );
}

/** Whether the Host header names the admin address: itself, localhost, or for a wildcard address any IP literal. */
function namesUs(
  host: string | undefined,
  address: { readonly host: string; readonly port: number },
): boolean {
  const named = host === undefined ? undefined : parseHostPort(host, 80);
  if (named === undefined || named.port !== address.port) return false;
  if (named.host === 'localhost' || named.host === address.host) return true;
  if (isLoopbackAddress(named.host)) return true;
  // Rebinding needs a name: an IP literal in Host cannot be an attacker's.
  return named.kind !== 'name' && (address.host === '0.0.0.0' || address.host === '::');
}

function isOwnOrigin(origin: string | undefined, host: string | undefined): boolean {
  return origin === undefined || origin === `http://${host}` || origin === `https://${host}`;
}

function bears(authorization: string | undefined, token: Secret): boolean {
  const given = /^Bearer +(\S+)$/i.exec(authorization ?? '')?.[1] ?? '';
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(token.reveal()));
}
