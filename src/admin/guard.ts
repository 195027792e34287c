/**
 * Decides which requests may use the admin API. Each check prevents one attack:
 *
 * - Host: a web page whose own host name resolves to the admin address (DNS rebinding).
 * - Origin and Sec-Fetch-Site: a web page that makes the operator's browser send requests (CSRF).
 * - Token: any other client that can reach the address. The token is compared in constant time.
 * - Content type: CSRF by an HTML form, which cannot send application/json.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { HonoRequest, MiddlewareHandler } from 'hono';
import { parseHostPort } from '../core/host-port.ts';
import type { BoundAddress } from '../core/listen-address.ts';
import { isLoopbackAddress } from '../core/networks.ts';
import type { Secret } from '../core/secret.ts';
import { sendError } from './openapi.ts';

export const SECURITY_HEADERS = {
  'Content-Security-Policy': "default-src 'none'; frame-ancestors 'none'",
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-store',
  'Referrer-Policy': 'no-referrer',
  'X-Content-Type-Options': 'nosniff',
} as const;

const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD']);

export function isSafe(method: string): boolean {
  return SAFE_METHODS.has(method);
}

/**
 * @param options.hasRoute - whether there is a route for the method and the path. Without one, the guard does not check
 * the content type, so that the answer is 404 or 405.
 */
export function guard(options: {
  readonly name: string;
  readonly address: () => BoundAddress;
  readonly token: Secret | undefined;
  readonly hasRoute: (method: string, path: string) => boolean;
  readonly openPaths: ReadonlySet<string>;
}): MiddlewareHandler {
  return async (context, next) => {
    const { req } = context;
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) context.header(name, value);
    if (!isOwnHost(req.header('host'), options.address())) {
      return sendError(
        context,
        'wrong-host',
        `the Host header names another host: use ${options.name} or localhost`,
      );
    }
    if (!isOwnOrigin(req.header('origin'), req.header('host')) || isCrossSite(req)) {
      return sendError(context, 'wrong-origin', 'noria refuses requests that pages of other sites make');
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
        'this path needs a token: send Authorization: Bearer TOKEN with the value of admin.token',
      );
    }
    const isJson = /^application\/json\b/i.test(req.header('content-type') ?? '');
    if (!isSafe(req.method) && !isJson && options.hasRoute(req.method, req.path)) {
      return sendError(
        context,
        'wrong-content-type',
        'a request that changes state needs Content-Type: application/json',
      );
    }
    return next();
  };
}

/**
 * Whether a page of another site caused the request, according to the Sec-Fetch headers. The result is false if the
 * user follows another site's link to the dashboard. That is safe, because no site can show the dashboard in a frame.
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

function isOwnHost(host: string | undefined, address: BoundAddress): boolean {
  const named = host === undefined ? undefined : parseHostPort(host, 80);
  if (named === undefined || named.port !== address.port) return false;
  if (named.host === 'localhost' || named.host === address.host) return true;
  if (isLoopbackAddress(named.host)) return true;
  // DNS rebinding needs a host name, so an IP address in the Host header is safe.
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
