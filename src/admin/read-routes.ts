/** The admin API's read-only routes: health, snapshots as JSON, metrics, the PAC file. */
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { languageOf, translate } from '../core/chinese.ts';
import type { Clock } from '../core/clock.ts';
import { NoriaError } from '../core/faults.ts';
import type { AdminBackend } from './backend.ts';
import type { Failures } from './failures.ts';
import type { History } from './history.ts';
import type { Metrics } from './metrics.ts';
import { describeIssues, jsonResponse, NOT_FOUND, sendError, textResponse } from './openapi.ts';
import { readinessLines } from './readiness-text.ts';
import {
  failureSchema,
  historySchema,
  memberSchema,
  type Status,
  sessionSchema,
  spanSchema,
  statusSchema,
} from './schemas.ts';
import { JsonList, SnapshotCache } from './snapshot-cache.ts';

export interface ReadRouteParts {
  readonly backend: AdminBackend;
  readonly clock: Clock;
  readonly history: History;
  readonly failures: Failures;
  readonly metrics: Metrics;
}

const PAC_TYPE = 'application/x-ns-proxy-autoconfig';

const limitQuery = z.object({
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .optional()
    .openapi({ description: 'The maximum number of entries; without it, all entries' }),
});

/**
 * @returns a function that discards the cached snapshots. Call this function after a change, so that the next read
 * shows the change.
 */
export function addReadRoutes(app: OpenAPIHono, parts: ReadRouteParts): () => void {
  const { backend, clock } = parts;
  const status = new SnapshotCache(clock, () => backend.status());
  const members = new SnapshotCache(clock, () => new JsonList(backend.members()));
  const sessions = new SnapshotCache(clock, () => new JsonList(backend.sessions()));
  addHealth(app, status);
  app.openapi(
    createRoute({
      method: 'get',
      path: '/api/status',
      summary: 'The state of noria, its pool and each source',
      responses: { 200: jsonResponse('The state', statusSchema) },
    }),
    (context) => localised(context, status.get()),
  );
  addList(app, { path: '/api/members', summary: 'All members', schema: memberSchema.array(), list: members });
  addList(app, {
    path: '/api/sessions',
    summary: 'All sessions',
    schema: sessionSchema.array(),
    list: sessions,
  });
  addRecent(app, parts);
  addMetrics(app, parts.metrics);
  addPac(app, backend);
  return () => {
    for (const cache of [status, members, sessions]) cache.clear();
  };
}

function addHealth(app: OpenAPIHono, status: SnapshotCache<Status>): void {
  app.openapi(
    createRoute({
      method: 'get',
      path: '/healthz',
      summary: 'Liveness: whether the process works',
      responses: { 200: textResponse('It works', 'text/plain') },
    }),
    (context) => context.text('ok\n', 200),
  );
  app.openapi(
    createRoute({
      method: 'get',
      path: '/readyz',
      summary: 'Readiness: whether noria expects to serve a new client',
      responses: {
        200: textResponse('Ready: the state of noria and the reason for this state', 'text/plain'),
        503: textResponse(
          'Not ready: the reason, since when, when noria tries again, what to do',
          'text/plain',
        ),
      },
    }),
    (context) => {
      const current = status.get();
      const language = languageOf(context.req.header('accept-language'));
      const lines = readinessLines(current).map((line) => translate(line, language));
      return context.text(`${lines.join('\n')}\n`, current.ready ? 200 : 503);
    },
  );
}

interface ListRoute {
  readonly path: string;
  readonly summary: string;
  readonly schema: z.ZodType;
  readonly list: SnapshotCache<JsonList>;
}

/**
 * Adds a route whose list is already encoded as JSON. The handlers of `app.openapi` return objects, so this function
 * registers the route and its description separately.
 */
function addList(app: OpenAPIHono, { path, summary, schema, list }: ListRoute): void {
  app.openAPIRegistry.registerPath({
    method: 'get',
    path,
    summary,
    request: { query: limitQuery },
    responses: { 200: jsonResponse('The list', schema) },
  });
  app.get(path, (context) => {
    const query = limitQuery.safeParse(context.req.query());
    if (!query.success) return sendError(context, 'bad-request', describeIssues(query.error));
    return context.body(list.get().encode(query.data.limit), 200, { 'Content-Type': 'application/json' });
  });
}

function addRecent(app: OpenAPIHono, { history, failures }: ReadRouteParts): void {
  app.openapi(
    createRoute({
      method: 'get',
      path: '/api/history',
      summary: 'Recent traffic: tunnels, bytes, connect time, failures by side',
      request: {
        query: z.object({ span: spanSchema.default('15m') }),
      },
      responses: { 200: jsonResponse('One value per step, oldest first', historySchema) },
    }),
    (context) => context.json(history.read(context.req.valid('query').span), 200),
  );
  app.openapi(
    createRoute({
      method: 'get',
      path: '/api/failures',
      summary: 'Recent failures, latest first; repeated failures are one entry',
      responses: { 200: jsonResponse('The failures', z.array(failureSchema)) },
    }),
    (context) => localised(context, [...failures.list()]),
  );
}

/** The fields with noria's own sentences. Their language follows the request's Accept-Language. */
const TEXT_FIELDS: ReadonlySet<string> = new Set(['reason', 'advice', 'meaning', 'says', 'detail']);

/** Answers with JSON in the language that the client prefers. */
function localised<Value extends object>(context: Context, value: Value) {
  const language = languageOf(context.req.header('accept-language'));
  context.header('Vary', 'Accept-Language');
  if (language === 'en') return context.json(value, 200);
  const inLanguage: unknown = JSON.parse(
    JSON.stringify(value, (field, inner: unknown) =>
      typeof inner === 'string' && TEXT_FIELDS.has(field) ? translate(inner, language) : inner,
    ),
  );
  return context.json(inLanguage as Value, 200);
}

function addMetrics(app: OpenAPIHono, metrics: Metrics): void {
  app.openapi(
    createRoute({
      method: 'get',
      path: '/metrics',
      summary: 'Prometheus metrics',
      responses: { 200: textResponse('The metrics', 'text/plain') },
    }),
    async (context) => context.text(await metrics.render(), 200, { 'Content-Type': metrics.contentType }),
  );
}

function addPac(app: OpenAPIHono, backend: AdminBackend): void {
  app.openapi(
    createRoute({
      method: 'get',
      path: '/proxy.pac',
      summary:
        'A PAC file: the browser sends all requests through the first HTTP listener, except requests to its own machine',
      responses: { 200: textResponse('The file', PAC_TYPE), 404: NOT_FOUND },
    }),
    (context) => {
      const address = backend.proxyAddress();
      if (address === undefined) throw new NoriaError('not-found', 'no listener accepts HTTP');
      return context.body(pacFile(address), 200, { 'Content-Type': PAC_TYPE });
    },
  );
}

/** Returns the PAC file. It has no DIRECT fallback: a browser must not bypass noria when noria is down. */
function pacFile(address: string): string {
  return `function FindProxyForURL(url, host) {
  if (host === "localhost" || host === "127.0.0.1" || host === "[::1]" || host === "::1") return "DIRECT";
  return "PROXY ${address}";
}
`;
}
