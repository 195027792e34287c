/**
 * The admin server. It checks each request with the guard and passes it to the routes. All errors have the same format.
 * The server owns the HTTP server, the metrics, the history and the list of failures.
 */

import { OpenAPIHono } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import { HTTPException } from 'hono/http-exception';
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { NoriaError } from '../core/faults.ts';
import type { BoundAddress } from '../core/listen-address.ts';
import type { Secret } from '../core/secret.ts';
import type { AdminBackend } from './backend.ts';
import { addEventStream } from './event-stream.ts';
import { openFailures } from './failures.ts';
import { openHistory } from './history.ts';
import { guard, type HttpServer, isSafe, openHttpServer } from './http-server.ts';
import { openMetrics } from './metrics.ts';
import { addDescription, describeIssues, isAdminError, sendError } from './openapi.ts';
import { addPage, readPageFiles } from './page-files.ts';
import { addRoutes } from './routes.ts';

export interface AdminOptions {
  readonly host: string;
  readonly port: number;
  readonly token?: Secret;
  readonly version: string;
  readonly backend: AdminBackend;
  readonly bus: EventBus;
  readonly clock: Clock;
  readonly onError: (error: unknown) => void;
}

/**
 * Paths that need no token, because their clients cannot send one: orchestrators, and browsers that load a PAC file.
 */
const OPEN_PATHS = ['/healthz', '/readyz', '/proxy.pac'] as const;
const MAX_BODY_BYTES = 16_384;
const METHODS = ['GET', 'POST', 'PUT', 'DELETE'] as const;

export async function openAdmin(options: AdminOptions): Promise<HttpServer> {
  const { bus, clock, backend, host, port } = options;
  const observers = {
    metrics: openMetrics(bus, backend),
    history: openHistory(bus, clock),
    failures: openFailures(bus, clock),
  };
  const closeObservers = () => {
    for (const observer of Object.values(observers)) observer.close();
  };
  try {
    const server = await openHttpServer({
      name: 'the admin address',
      host,
      port,
      methods: METHODS,
      handler: (address) => buildApp(options, address, observers).fetch,
    });
    return { ...server, close: () => server.close().finally(closeObservers) };
  } catch (error) {
    closeObservers();
    throw error;
  }
}

function buildApp(
  options: AdminOptions,
  address: () => BoundAddress,
  observers: Parameters<typeof addRoutes>[3],
): OpenAPIHono {
  const { backend, bus, clock, token, version } = options;
  const pageFiles = readPageFiles();
  // The files of the dashboard contain no secrets, so they need no token.
  const openPaths = new Set([...OPEN_PATHS, ...pageFiles.map(({ path }) => path)]);
  const app = new OpenAPIHono({
    defaultHook: (result, context) => {
      if (result.success) return undefined;
      return sendError(context, 'bad-request', describeIssues(result.error));
    },
  });
  const hasRoute = (method: string, path: string) => methodsAt(app, path).includes(method);
  app.use(guard({ name: 'the admin address', address, token, openPaths, hasRoute }));
  app.use(
    bodyLimit({
      maxSize: MAX_BODY_BYTES,
      onError: (context) => sendError(context, 'too-large', `the body exceeds ${MAX_BODY_BYTES} bytes`),
    }),
  );
  app.use(async (context, next) => {
    await fillEmptyBody(context);
    await next();
    if (!isSafe(context.req.method)) clearCaches();
  });
  const clearCaches = addRoutes(app, backend, clock, observers);
  addEventStream(app, bus, clock);
  addPage(app, pageFiles);
  addDescription(app, version, openPaths);
  answerErrors(app, options.onError);
  return app;
}

function answerErrors(app: OpenAPIHono, onError: AdminOptions['onError']): void {
  app.notFound((context) => {
    const allowed = methodsAt(app, context.req.path);
    if (allowed.length === 0)
      return sendError(context, 'not-found', 'no such route; GET /openapi.json lists the routes');
    context.header('Allow', allowed.join(', '));
    return sendError(context, 'method-not-allowed', `allowed methods: ${allowed.join(', ')}`);
  });
  app.onError((error, context) => {
    if (error instanceof NoriaError && isAdminError(error.code)) {
      return sendError(context, error.code, error.message);
    }
    if (error instanceof HTTPException && error.status === 400) {
      return sendError(context, 'bad-request', 'the body is not valid JSON');
    }
    onError(error);
    return sendError(context, 'internal', 'internal error of noria: see the log of noria');
  });
}

/** Returns the methods for which the path has a route. Middleware does not count: it matches every path. */
function methodsAt(app: OpenAPIHono, path: string): string[] {
  const found = METHODS.filter((method) =>
    app.router.match(method, path)[0].some(([[, route]]) => route.method === method),
  );
  return found.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
}

/** Replaces an empty body with `{}`, so that clients may send a request without a body. */
async function fillEmptyBody({ req }: Context): Promise<void> {
  if (isSafe(req.method)) return;
  const text = await req.raw.clone().text();
  if (text.trim() !== '') return;
  const { url, method, headers } = req.raw;
  req.raw = new Request(url, { method, headers, body: '{}' });
}
