/** The admin API's read-only routes: health, snapshots as JSON, metrics, the PAC file. */
import { createRoute, type OpenAPIHono, type RouteConfig, z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { languageOf, translate } from '../core/chinese.ts';
import type { Clock } from '../core/clock.ts';
import { parseDuration } from '../core/duration.ts';
import { NoriaError } from '../core/faults.ts';
import { recordJson } from '../core/request-record.ts';
import { USAGE_KINDS, type UsageRow } from '../ledger/usage.ts';
import type { AdminBackend } from './backend.ts';
import type { Failures } from './failures.ts';
import type { History } from './history.ts';
import type { Metrics } from './metrics.ts';
import { describeIssues, jsonResponse, NOT_FOUND, sendError, textResponse } from './openapi.ts';
import { readinessLines } from './readiness-text.ts';
import {
  errorSchema,
  failureSchema,
  historySchema,
  memberSchema,
  requestSchema,
  type Status,
  sessionSchema,
  siteSchema,
  spanSchema,
  statusSchema,
  usageSchema,
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

/** @returns a function that discards the cached snapshots, so that the next read shows a change. */
export function addReadRoutes(app: OpenAPIHono, parts: ReadRouteParts): () => void {
  const { backend, clock } = parts;
  const status = new SnapshotCache(clock, () => backend.status());
  const members = new SnapshotCache(clock, () => new JsonList(backend.members()));
  const sessions = new SnapshotCache(clock, () => new JsonList(backend.sessions()));
  const sites = new SnapshotCache(clock, () => new JsonList(backend.sites()));
  addHealth(app, status);
  const state = { 200: jsonResponse('The state', statusSchema) };
  addRead(app, '/api/status', 'The state of noria, its pool and each source', state, (context) =>
    localised(context, status.get()),
  );
  addList(app, '/api/members', 'All members', memberSchema, members);
  addList(app, '/api/sessions', 'All sessions', sessionSchema, sessions);
  addList(app, '/api/sites', 'The busiest 100 sites', siteSchema, sites);
  addRecent(app, parts);
  addLedger(app, parts);
  const { metrics } = parts;
  const page = { 200: textResponse('The metrics', 'text/plain') };
  addRead(app, '/metrics', 'Prometheus metrics', page, async (context) =>
    context.text(await metrics.render(), 200, { 'Content-Type': metrics.contentType }),
  );
  addPac(app, backend);
  return () => {
    for (const cache of [status, members, sessions, sites]) cache.clear();
  };
}

function addHealth(app: OpenAPIHono, status: SnapshotCache<Status>): void {
  const works = { 200: textResponse('It works', 'text/plain') };
  addRead(app, '/healthz', 'Liveness: whether the process works', works, (context) => context.text('ok\n'));
  const notReady = 'Not ready: the reason, since when, when noria tries again, what to do';
  const readiness = {
    200: textResponse('Ready: the state of noria and the reason for this state', 'text/plain'),
    503: textResponse(notReady, 'text/plain'),
  };
  const readySummary = 'Readiness: whether noria expects to serve a new client';
  addRead(app, '/readyz', readySummary, readiness, (context) => {
    const current = status.get();
    const language = languageOf(context.req.header('accept-language'));
    const lines = readinessLines(current).map((line) => translate(line, language));
    return context.text(`${lines.join('\n')}\n`, current.ready ? 200 : 503);
  });
}

/** Adds a route without parameters. */
function addRead(
  app: OpenAPIHono,
  path: string,
  summary: string,
  responses: RouteConfig['responses'],
  read: (context: Context) => Response | Promise<Response>,
): void {
  app.openAPIRegistry.registerPath({ method: 'get', path, summary, responses });
  app.get(path, read);
}

function addList(
  app: OpenAPIHono,
  path: string,
  summary: string,
  item: z.ZodType,
  list: SnapshotCache<JsonList>,
): void {
  app.openAPIRegistry.registerPath({
    method: 'get',
    path,
    summary,
    request: { query: limitQuery },
    responses: { 200: jsonResponse('The list', z.array(item)) },
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
  const list = { 200: jsonResponse('The failures', z.array(failureSchema)) };
  const summary = 'Recent failures, latest first; repeated failures are one entry';
  addRead(app, '/api/failures', summary, list, (context) => localised(context, failures.list()));
}

const TEXT_FIELDS: ReadonlySet<string> = new Set(['reason', 'advice', 'meaning', 'says', 'detail']);

function localised(context: Context, value: object): Response {
  const language = languageOf(context.req.header('accept-language'));
  context.header('Vary', 'Accept-Language');
  const text = JSON.stringify(value, (field, inner: unknown) =>
    typeof inner === 'string' && TEXT_FIELDS.has(field) ? translate(inner, language) : inner,
  );
  return context.body(text, 200, { 'Content-Type': 'application/json' });
}

const requestsQuery = z.object({
  target: z.string().optional().openapi({ description: 'A host, host:port, parent domain or URL' }),
  user: z.string().optional(),
  session: z.string().optional(),
  tag: z.string().optional(),
  member: z.string().optional(),
  failed: z.enum(['0', '1']).optional().openapi({ description: '1: only failed requests' }),
  since: z
    .string()
    .optional()
    .openapi({ description: 'A duration such as 10m, or a moment in ISO 8601', example: '10m' }),
  limit: limitQuery.shape.limit,
});

function addLedger(app: OpenAPIHono, { backend, clock }: ReadRouteParts): void {
  app.openapi(
    createRoute({
      method: 'get',
      path: '/api/requests',
      summary:
        'The latest 10,000 client requests, newest first: which members were tried, and what each answered',
      request: { query: requestsQuery },
      responses: {
        200: jsonResponse('The requests', z.array(requestSchema)),
        400: jsonResponse('`since` is neither a duration nor a moment', errorSchema),
      },
    }),
    (context) => {
      const { failed, since, ...filter } = context.req.valid('query');
      const from = since === undefined ? undefined : momentOf(since, clock.now());
      if (Number.isNaN(from))
        return sendError(context, 'bad-request', 'since: neither a duration nor a moment');
      const found = backend.requests({ ...filter, failed: failed === '1', since: from });
      return context.json(found.map(recordJson), 200);
    },
  );
  app.openapi(
    createRoute({
      method: 'get',
      path: '/api/usage',
      summary: 'What users, sites or sources used on a day, and what it cost; `Accept: text/csv` gives CSV',
      request: {
        query: z.object({
          by: z.enum(USAGE_KINDS).default('user'),
          day: z.iso.date().optional().openapi({ description: 'Default: today', example: '2026-11-23' }),
        }),
      },
      responses: { 200: jsonResponse('One row for each name', z.array(usageSchema)), 404: NOT_FOUND },
    }),
    async (context) => {
      const { by, day } = context.req.valid('query');
      const rows = await backend.usage(by, day);
      if (rows === undefined) {
        const days = (await backend.usageDays()).join(', ');
        throw new NoriaError('not-found', `no usage is known of ${day}; known days: ${days}`);
      }
      if (!(context.req.header('accept') ?? '').includes('text/csv')) return context.json(rows, 200);
      return context.body(csvOf(rows), 200, { 'Content-Type': 'text/csv; charset=utf-8' }) as never;
    },
  );
}

/** In epoch ms; NaN for a text that is neither a duration nor a moment. */
function momentOf(text: string, now: number): number {
  const ms = parseDuration(text);
  return ms === undefined ? Date.parse(text) : now - ms;
}

/** A cell that begins with one of these characters would be a formula in a spreadsheet. */
const FORMULA = /^[=+\-@\t\r]/;

function csvOf(rows: readonly UsageRow[]): string {
  const cell = (value: string | number) => {
    if (typeof value === 'number') return String(value);
    const safe = FORMULA.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  const columns = Object.keys(usageSchema.shape) as (keyof UsageRow)[];
  return [columns.join(','), ...rows.map((row) => columns.map((name) => cell(row[name])).join(','))]
    .map((line) => `${line}\r\n`)
    .join('');
}

function addPac(app: OpenAPIHono, backend: AdminBackend): void {
  const summary =
    'A PAC file: the browser sends all requests through the first HTTP listener, except requests to its own machine';
  const responses = { 200: textResponse('The file', PAC_TYPE), 404: NOT_FOUND };
  addRead(app, '/proxy.pac', summary, responses, (context) => {
    const address = backend.proxyAddress();
    if (address === undefined) throw new NoriaError('not-found', 'no listener accepts HTTP');
    return context.body(pacFile(address), 200, { 'Content-Type': PAC_TYPE });
  });
}

/** It has no DIRECT fallback: a browser must not bypass noria when noria is down. */
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
class JsonList {
  readonly #items: readonly object[];
  readonly #encoded: Uint8Array<ArrayBuffer>;

  constructor(items: readonly object[]) {
    this.#items = items;
    this.#encoded = encodeJson(items);
  }

  encode(limit: number | undefined): Uint8Array<ArrayBuffer> {
    if (limit === undefined || limit >= this.#items.length) return this.#encoded;
    return encodeJson(this.#items.slice(0, limit));
  }
}

function encodeJson(items: readonly object[]): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(items));
}
