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

const TEXT_FIELDS: ReadonlySet<string> = new Set(['reason', 'advice', 'meaning', 'says', 'detail']);

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

const KEPT_PER_MS = 50;

export class SnapshotCache<T extends object> {
  readonly #clock: Clock;
  readonly #create: () => T;
  #value: T | undefined;
  #freshUntil = Number.NEGATIVE_INFINITY;

  constructor(clock: Clock, create: () => T) {
    this.#clock = clock;
    this.#create = create;
  }

  get(): T {
    const startedAt = this.#clock.monotonic();
    if (this.#value !== undefined && startedAt < this.#freshUntil) return this.#value;
    this.#value = this.#create();
    const endedAt = this.#clock.monotonic();
    this.#freshUntil = endedAt + (endedAt - startedAt) * KEPT_PER_MS;
    return this.#value;
  }

  clear(): void {
    this.#value = undefined;
  }
}

/** A list whose JSON is created only once, even if many clients read it. */
export class JsonList {
  readonly #items: readonly object[];
  readonly #encoded: Uint8Array<ArrayBuffer>;

  constructor(items: readonly object[]) {
    this.#items = items;
    this.#encoded = encodeJson(items);
  }

  /** Returns the JSON of the first `limit` items, or of all items when `limit` is undefined. */
  encode(limit: number | undefined): Uint8Array<ArrayBuffer> {
    if (limit === undefined || limit >= this.#items.length) return this.#encoded;
    return encodeJson(this.#items.slice(0, limit));
  }
}

function encodeJson(items: readonly object[]): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(items));
}
