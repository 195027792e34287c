/** The answers of proxyPool, in the format of the public proxy pools that scrapers support. */
import { MINUTE_MS, SECOND_MS } from '../../core/duration.ts';
import { formatHostPort } from '../../core/host-port.ts';
import type { HandedOut } from './port-ring.ts';

/**
 * The answer of `/get/` and `/pop/` if there is no proxy. Its status is 200, because scrapers of public pools do not
 * check the status.
 */
export const NO_PROXY = { code: 0, src: 'no proxy' } as const;

/**
 * Every path, with a description of its answer. docs/proxy-pool.md lists the same paths; test/held/proxy-pool.test.ts
 * compares them.
 */
export const ROUTES = {
  '/': 'this list',
  '/get/': 'a proxy as JSON: the proxy that noria has not handed out for the longest time',
  '/pop/': 'the same as `/get/`; after 60 s, noria assigns another member to the port of this proxy',
  '/random': 'the same as `/get/`, as plain text: `127.0.0.1:24003`',
  '/all/': 'all proxies, as a JSON list',
  '/get_all/': 'the same as `/all/`',
  '/all': 'all proxies as plain text, one on each line',
  '/count/':
    'the number of proxies, as JSON: `{"count": {"total": 20, "https": 20}, "source": {"city": 20}}`',
  '/get_status/': 'the same as `/count/`',
  '/count': 'the number of proxies, as plain text',
  '/delete/':
    '`{"code": 0, "src": 1}`. The parameter `?proxy=127.0.0.1:24003` names a port whose member is bad; noria assigns another member to this port',
} as const;

export type RoutePath = keyof typeof ROUTES;

export function describeRoutes() {
  const filters = "type: 'https' | '', source: NAME";
  const paramsOf = (path: string) => (path === '/delete/' ? 'proxy: HOST:PORT' : path === '/' ? '' : filters);
  return { url: Object.entries(ROUTES).map(([url, desc]) => ({ url, params: paramsOf(url), desc })) };
}

/** @param host - the host with which the client reaches the ports. */
export function describeProxy({ port, member }: HandedOut, host: string, now: number) {
  const { https, faults, location, source, uses, remainingMs, sinceSuccessMs } = member;
  return {
    proxy: formatHostPort(host, port),
    https,
    fail_count: Math.ceil(faults),
    region: location,
    anonymous: '',
    source,
    check_count: uses,
    last_status: faults === 0,
    last_time: formatLocalTime(now - sinceSuccessMs),
    expires_in: remainingMs === undefined ? null : Math.max(0, Math.floor(remainingMs / SECOND_MS)),
  };
}

export function describeCount(found: readonly HandedOut[]) {
  const sources: Record<string, number> = {};
  for (const { member } of found) sources[member.source] = (sources[member.source] ?? 0) + 1;
  const https = found.filter(({ member }) => member.https).length;
  return { count: { total: found.length, https }, source: sources };
}

/** Formats a moment as `2026-11-22 10:43:03` in this machine's time zone, as the public pools do. */
function formatLocalTime(epochMs: number): string {
  const offsetMs = new Date(epochMs).getTimezoneOffset() * MINUTE_MS;
  return new Date(epochMs - offsetMs).toISOString().slice(0, 'YYYY-MM-DD HH:MM:SS'.length).replace('T', ' ');
}
