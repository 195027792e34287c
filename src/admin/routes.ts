/** The routes of the admin API: snapshots as JSON, metrics and the PAC file; and the commands of the daemon. */
import { ServerResponse } from 'node:http';
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
import { describeIssues, jsonContent, jsonResponse, NOT_FOUND, sendError, textResponse } from './openapi.ts';
import { readinessLines } from './readiness-text.ts';
import {
  errorSchema,
  failureSchema,
  historySchema,
  logLevelSchema,
  memberSchema,
  reloadSchema,
  reportSchema,
  requestSchema,
  rotateSchema,
  sessionSchema,
  siteSchema,
  spanSchema,
  statusSchema,
  usageSchema,
} from './schemas.ts';

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
export function addRoutes(
  app: OpenAPIHono,
  backend: AdminBackend,
  clock: Clock,
  { history, failures, metrics }: { history: History; failures: Failures; metrics: Metrics },
): () => void {
  const status = cached(clock, () => backend.status());
  const members = cached(clock, () => listOf(backend.members()));
  const sessions = cached(clock, () => listOf(backend.sessions()));
  const sites = cached(clock, () => listOf(backend.sites()));
  const works = { 200: textResponse('It works', 'text/plain') };
  addRead(app, '/healthz', 'Liveness: whether the process works', works, (context) => context.text('ok\n'));
  const readiness = {
    200: textResponse('Ready: the state of noria and the reason for this state', 'text/plain'),
    503: textResponse('Not ready: the reason, since when, when noria tries again, what to do', 'text/plain'),
  };
  addRead(app, '/readyz', 'Readiness: whether noria expects to serve a new client', readiness, (context) => {
    const current = status.get();
    const language = languageOf(context.req.header('accept-language'));
    const lines = readinessLines(current).map((line) => translate(line, language));
    return context.text(`${lines.join('\n')}\n`, current.ready ? 200 : 503);
  });
  const state = { 200: jsonResponse('The state', statusSchema) };
  addRead(app, '/api/status', 'The state of noria, its pool and each source', state, (context) =>
    localised(context, status.get()),
  );
  addList(app, '/api/members', 'All members', memberSchema, members);
  addList(app, '/api/sessions', 'All sessions', sessionSchema, sessions);
  addList(app, '/api/sites', 'The busiest 100 sites', siteSchema, sites);
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
  addLedger(app, backend, clock);
  const page = { 200: textResponse('The metrics', 'text/plain') };
  addRead(app, '/metrics', 'Prometheus metrics', page, async (context) =>
    context.text(await metrics.render(), 200, { 'Content-Type': metrics.contentType }),
  );
  addPac(app, backend);
  addCommands(app, backend);
  return () => {
    for (const cache of [status, members, sessions, sites]) cache.clear();
  };
}

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
  list: { get(): ReturnType<typeof listOf> },
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
    const { items, json } = list.get();
    const { limit = items.length } = query.data;
    const body = limit >= items.length ? json : encodeJson(items.slice(0, limit));
    return context.body(body, 200, { 'Content-Type': 'application/json' });
  });
}

/** With its JSON, which is created only once, even if many clients read it. */
function listOf(items: readonly object[]) {
  return { items, json: encodeJson(items) };
}

function encodeJson(items: readonly object[]): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(items));
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

function addLedger(app: OpenAPIHono, backend: AdminBackend, clock: Clock): void {
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

/** Keeps a snapshot the longer, the longer it took to create. */
export function cached<T extends object>(clock: Clock, create: () => T) {
  let value: T | undefined;
  let freshUntil = Number.NEGATIVE_INFINITY;
  return {
    get(): T {
      const startedAt = clock.monotonic();
      if (value !== undefined && startedAt < freshUntil) return value;
      value = create();
      const endedAt = clock.monotonic();
      freshUntil = endedAt + (endedAt - startedAt) * KEPT_PER_MS;
      return value;
    },
    clear(): void {
      value = undefined;
    },
  };
}

const idParam = z.object({ id: z.string().min(1) });
const nameParam = z.object({ name: z.string().min(1) });

function addCommands(app: OpenAPIHono, backend: AdminBackend): void {
  const evict = 'Remove a member for good; its open tunnels continue';
  const refill = 'Draw the missing members of a source as soon as the pace allows';
  const resume = 'Draw again; a halted source makes one call, which shows whether the problem is solved';
  const commands = [
    ['post', '/api/members/{id}/evict', 204, evict, 'member', (id: string) => backend.evictMember(id)],
    ['post', '/api/sources/{name}/refill', 202, refill, 'source', (name) => backend.refillSource(name)],
    ['post', '/api/sources/{name}/pause', 202, 'Stop drawing', 'source', (name) => backend.pauseSource(name)],
    ['post', '/api/sources/{name}/resume', 202, resume, 'source', (name) => backend.resumeSource(name)],
    ['delete', '/api/sessions/{id}', 204, 'Forget a session', 'session', (id) => backend.forgetSession(id)],
  ] as const satisfies readonly (readonly [
    string,
    string,
    number,
    string,
    string,
    (name: string) => boolean,
  ])[];
  for (const [method, path, status, summary, kind, run] of commands) {
    const params = kind === 'source' ? nameParam : idParam;
    const done = { description: status === 204 ? 'Done' : 'Accepted' };
    const responses = { [status]: done, 404: NOT_FOUND };
    app.openAPIRegistry.registerPath({ method, path, summary, request: { params }, responses });
    app.on(method, path.replace(/\{\w+\}/, ':name'), (context) => {
      const { name } = nameParam.parse(context.req.param());
      assertFound(run(name), `there is no ${kind} ${name}`);
      return context.body(null, status);
    });
  }
  app.openapi(
    createRoute({
      method: 'post',
      path: '/api/reports',
      summary:
        'Report whether a site bans the exit of a session or member, also up to 10 minutes after the member left',
      request: { body: { content: jsonContent(reportSchema), required: true } },
      responses: {
        204: { description: 'Recorded' },
        404: NOT_FOUND,
        400: jsonResponse('The report is invalid', errorSchema),
      },
    }),
    (context) => {
      assertFound(backend.reportMember(context.req.valid('json')), 'there is no such session or member');
      return context.body(null, 204);
    },
  );
  app.openapi(
    createRoute({
      method: 'post',
      path: '/api/sessions/{id}/rotate',
      summary: 'Move a session to another member',
      request: { params: idParam, body: { content: jsonContent(rotateSchema) } },
      responses: {
        202: { description: 'The session moves to another member with its next connection' },
        404: NOT_FOUND,
      },
    }),
    (context) => {
      const { id } = context.req.valid('param');
      const { close } = context.req.valid('json');
      assertFound(backend.rotateSession(id, close === true), `there is no session ${id}`);
      return context.body(null, 202);
    },
  );
  app.openapi(
    createRoute({
      method: 'post',
      path: '/api/reload',
      summary: 'Read the configuration file again and apply it',
      responses: {
        200: jsonResponse('The new configuration is in use', reloadSchema),
        202: jsonResponse('The change affects `admin`: noria applies it after this answer', reloadSchema),
        400: jsonResponse(
          'The configuration is invalid or cannot be read; the message lists all errors',
          errorSchema,
        ),
        409: jsonResponse('noria cannot listen on an address, or is shutting down', errorSchema),
      },
    }),
    async (context) => {
      const { applied, ...reload } = await backend.reload(answered(context.env));
      return context.json(reload, applied ? 200 : 202);
    },
  );
  app.openapi(
    createRoute({
      method: 'put',
      path: '/api/log-level',
      summary: 'Set the log level until the next start or reload',
      request: { body: { content: jsonContent(logLevelSchema), required: true } },
      responses: {
        204: { description: 'Done' },
        400: jsonResponse('The log level does not exist', errorSchema),
      },
    }),
    (context) => {
      backend.setLogLevel(context.req.valid('json').level);
      return context.body(null, 204);
    },
  );
}

function answered(env: object | undefined): Promise<void> {
  if (env === undefined || !('outgoing' in env)) return Promise.resolve();
  const { outgoing } = env;
  return new Promise((resolve) => {
    if (outgoing instanceof ServerResponse) outgoing.once('close', resolve);
    else resolve();
  });
}

function assertFound(found: boolean, message: string): void {
  if (!found) throw new NoriaError('not-found', message);
}
