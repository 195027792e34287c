/**
 * The admin server: guards first, then the routes, errors in one shape. Owns its HTTP server, and what follows the events
 * for it; nothing depends on it.
 */
import { createServer, type Server } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import { OpenAPIHono } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { bodyLimit } from 'hono/body-limit';
import { HTTPException } from 'hono/http-exception';
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { NoriaError } from '../core/faults.ts';
import { formatHostPort } from '../core/host-port.ts';
import type { Secret } from '../core/secret.ts';
import { addActionRoutes } from './action-routes.ts';
import type { AdminBackend } from './backend.ts';
import { addEventStream } from './event-stream.ts';
import { openFailures } from './failures.ts';
import { guard, isSafe } from './guard.ts';
import { openHistory } from './history.ts';
import { openMetrics } from './metrics.ts';
import { addDescription, describeIssues, sendError } from './openapi.ts';
import { addPage, readPageFiles } from './page-files.ts';
import { addReadRoutes } from './read-routes.ts';

export interface AdminOptions {
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  readonly token?: Secret;
  readonly version: string;
  readonly backend: AdminBackend;
  readonly bus: EventBus;
  readonly clock: Clock;
  /** Told of a failure that no route foresaw. */
  readonly onError: (error: unknown) => void;
}

export interface AdminServer {
  readonly host: string;
  readonly port: number;
  /** Ends open requests and streams. Safe to call twice. */
  close(): Promise<void>;
}

/** What orchestrators, and browsers in search of a proxy, ask without being able to send a token. */
const OPEN_PATHS = ['/healthz', '/readyz', '/proxy.pac'] as const;
/** More than any verb needs. */
const MAX_BODY_BYTES = 16_384;
const MAX_CONNECTIONS = 512;
/** Those that any route has. */
const METHODS = ['GET', 'POST', 'PUT', 'DELETE'] as const;
/** For a whole request to arrive. */
const REQUEST_TIMEOUT_MS = 10_000;

/** Opens a server that already listens. @throws NoriaError listen-failed */
export async function openAdmin(options: AdminOptions): Promise<AdminServer> {
  const { bus, clock, backend } = options;
  const address = { host: options.host, port: options.port };
  const followers = {
    metrics: openMetrics(bus, backend),
    history: openHistory(bus, clock),
    failures: openFailures(bus, clock),
  };
  const app = buildApp(options, () => address, followers);
  const server = createServer(
    { requestTimeout: REQUEST_TIMEOUT_MS, headersTimeout: REQUEST_TIMEOUT_MS },
    getRequestListener(app.fetch),
  );
  server.maxConnections = MAX_CONNECTIONS;
  const closeFollowers = () => {
    for (const follower of Object.values(followers)) follower.close();
  };
  try {
    await listen(server, options.host, options.port);
  } catch (error) {
    closeFollowers();
    throw error;
  }
  const bound = server.address();
  if (bound !== null && typeof bound === 'object') address.port = bound.port;
  return {
    host: options.host,
    port: address.port,
    close: () => closeServer(server).finally(closeFollowers),
  };
}

type Address = Pick<AdminOptions, 'host' | 'port'>;

interface Followers {
  readonly metrics: ReturnType<typeof openMetrics>;
  readonly history: ReturnType<typeof openHistory>;
  readonly failures: ReturnType<typeof openFailures>;
}

function buildApp(options: AdminOptions, address: () => Address, followers: Followers): OpenAPIHono {
  const { backend, bus, clock, token, version } = options;
  const files = readPageFiles();
  // The page's own files, too: nothing in them is worth a token.
  const open = new Set([...OPEN_PATHS, ...files.map(({ path }) => path)]);
  const app = new OpenAPIHono({
    defaultHook: (result, context) => {
      if (result.success) return undefined;
      return sendError(context, 'bad-request', describeIssues(result.error));
    },
  });
  const hasRoute = (method: string, path: string) => methodsAt(app, path).includes(method);
  app.use(guard({ address, open, hasRoute, ...(token === undefined ? {} : { token }) }));
  app.use(
    bodyLimit({
      maxSize: MAX_BODY_BYTES,
      onError: (context) =>
        sendError(context, 'too-large', `a body may have ${MAX_BODY_BYTES} bytes at most`),
    }),
  );
  app.use(async (context, next) => {
    await fillEmptyBody(context);
    await next();
    if (!isSafe(context.req.method)) clearCaches();
  });
  const clearCaches = addReadRoutes(app, { backend, clock, ...followers });
  addActionRoutes(app, backend);
  addEventStream(app, bus, clock);
  addPage(app, files);
  addDescription(app, version, open);
  app.notFound((context) => {
    const allowed = methodsAt(app, context.req.path);
    if (allowed.length === 0)
      return sendError(context, 'not-found', 'no such route: /openapi.json lists them');
    context.header('Allow', allowed.join(', '));
    return sendError(context, 'method-not-allowed', `this route takes ${allowed.join(', ')}`);
  });
  app.onError((error, context) => {
    if (error instanceof NoriaError && error.code === 'not-found') {
      return sendError(context, error.code, error.message);
    }
    if (error instanceof HTTPException && error.status === 400) {
      return sendError(context, 'bad-request', 'the body is not JSON');
    }
    options.onError(error);
    return sendError(context, 'internal', 'noria made a mistake: see its log');
  });
  return app;
}

/** The methods of the routes at a path; what stands before every route is none. */
function methodsAt(app: OpenAPIHono, path: string): string[] {
  const found = METHODS.filter((method) =>
    app.router.match(method, path)[0].some(([[, route]]) => route.method === method),
  );
  return found.flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
}

/** Bodies may be empty: that stands for an object without members. */
async function fillEmptyBody({ req }: Context): Promise<void> {
  if (isSafe(req.method)) return;
  const text = await req.raw.clone().text();
  if (text.trim() !== '') return;
  const { url, method, headers } = req.raw;
  req.raw = new Request(url, { method, headers, body: '{}' });
}

function listen(server: Server, host: string, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      const where = formatHostPort(host, port);
      reject(
        new NoriaError('listen-failed', `admin address ${where} cannot be listened on: ${cause.code}`, {
          cause,
        }),
      );
    });
    server.listen(port, host, resolve);
  });
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
    server.closeAllConnections();
  });
}
