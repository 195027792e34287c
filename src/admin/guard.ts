/**
 * Decides who may use the admin API. Each check prevents one attack:
 *
 * - Host: a web page whose own name resolves to our address (DNS rebinding).
 * - Origin and Sec-Fetch-Site: a web page that sends requests from the operator's browser (CSRF).
 * - Token: anyone else who can reach the address. It is compared in constant time.
 * - Content type: CSRF by an HTML form, which cannot send application/json.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { HonoRequest, MiddlewareHandler } from 'hono';
import { parseHostPort } from '../core/host-port.ts';
import { isLoopbackAddress } from '../core/networks.ts';
import type { Secret } from '../core/secret.ts';
import { sendError } from './openapi.ts';

export interface GuardOptions {
  /** The name of the address, for messages: `the admin address`. */
  readonly name: string;
  readonly address: () => { readonly host: string; readonly port: number };
  readonly token?: Secret;
  /** Whether there is a route. Requests without a route get 404 or 405, whatever their content type. */
  readonly hasRoute: (method: string, path: string) => boolean;
  /** Paths that need no token: the page itself and the probes. */
  readonly openPaths: ReadonlySet<string>;
}

/** The headers of every response. The page replaces the Content-Security-Policy with its own. */
export const SECURITY_HEADERS = {
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-store',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
} as const;

const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD']);

/** Whether requests with this method change no state. */
export function isSafe(method: string): boolean {
  return SAFE_METHODS.has(method);
}

/** Refuses every request that one of the attacks could have sent. Sets the headers of every response. */
export function guard(options: GuardOptions): MiddlewareHandler {
  return async (context, next) => {
    const { req } = context;
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) context.header(name, value);
    if (!isOwnHost(req.header('host'), options.address())) {
      return sendError(context, 'wrong-host', `wrong Host header: use ${options.name} or localhost`);
    }
    if (!isOwnOrigin(req.header('origin'), req.header('host')) || isCrossSite(req)) {
      return sendError(context, 'wrong-origin', 'requests from other web pages are refused');
    }
    const { token, openPaths } = options;
    if (
      token !== undefined &&
      !openPaths.has(req.path) &&
      !isAuthorized(req.header('authorization'), token)
    ) {
      context.header('WWW-Authenticate', 'Bearer realm="noria"');
      return sendError(
        context,
        'token-required',
        'send Authorization: Bearer with admin.token of the configuration',
      );
    }
    const isJson = /^application\/json\b/i.test(req.header('content-type') ?? '');
    if (!isSafe(req.method) && !isJson && options.hasRoute(req.method, req.path)) {
      return sendError(context, 'wrong-content-type', 'send Content-Type: application/json');
    }
    return next();
  };
}

/**
 * Whether another site sent the request, by its fetch metadata. A link to the page is allowed from any site, because
 * the page cannot be framed.
 */
function isCrossSite(req: HonoRequest): boolean {
  const site = req.header('sec-fetch-site') ?? 'none';
  if (site === 'same-origin' || site === 'none') return false;
  const isNavigation =
    isSafe(req.method) &&
    req.header('sec-fetch-mode') === 'navigate' &&
    req.header('sec-fetch-dest') === 'document';
  return !(req.path === '/' && isNavigation);
}

/**
 * Whether the host is the admin address, localhost or a loopback address. If the server listens on all addresses, every
 * IP literal is accepted.
 */
function isOwnHost(
  host: string | undefined,
  address: { readonly host: string; readonly port: number },
): boolean {
  const named = host === undefined ? undefined : parseHostPort(host, 80);
  if (named === undefined || named.port !== address.port) return false;
  if (named.host === 'localhost' || named.host === address.host) return true;
  if (isLoopbackAddress(named.host)) return true;
  // DNS rebinding needs a name, so an IP literal cannot come from an attacker.
  return named.kind !== 'name' && (address.host === '0.0.0.0' || address.host === '::');
}

function isOwnOrigin(origin: string | undefined, host: string | undefined): boolean {
  return origin === undefined || origin === `http://${host}` || origin === `https://${host}`;
}

function isAuthorized(authorization: string | undefined, token: Secret): boolean {
  const given = /^Bearer +(\S+)$/i.exec(authorization ?? '')?.[1] ?? '';
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(given), digest(token.reveal()));
}
