/**
 * The admin server: guards first, then the routes, errors in one shape. Owns its HTTP server; nothing depends on it.
 */
import { createServer, type Server } from 'node:http';
import { getRequestListener } from '@hono/node-server';
import { OpenAPIHono } from '@hono/zod-openapi';
import type { HonoRequest } from 'hono';
import { HTTPException } from 'hono/http-exception';
import type { Clock } from '../core/clock.ts';
import type { EventBus } from '../core/events.ts';
import { NoriaError } from '../core/faults.ts';
import { formatHostPort } from '../core/host-port.ts';
import type { Secret } from '../core/secret.ts';
import { addEventStream } from './event-stream.ts';
import { guard } from './guard.ts';
import { openMetrics } from './metrics.ts';
import { addRoutes, addTextRoutes } from './routes.ts';
import type { Watched } from './watched.ts';

export interface AdminOptions {
  readonly host: string;
  /** 0 takes a free one. */
  readonly port: number;
  readonly token?: Secret;
  readonly version: string;
  readonly watched: Watched;
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

/** The page's shell and what an orchestrator asks: nothing in them is worth a token. */
const OPEN_PATHS: ReadonlySet<string> = new Set(['/', '/healthz', '/readyz']);

/** @throws NoriaError listen-failed */
export async function openAdmin(options: AdminOptions): Promise<AdminServer> {
  const address = { host: options.host, port: options.port };
  const app = new OpenAPIHono({
    defaultHook: (result, context) => {
      if (result.success) return undefined;
      const message = result.error.issues
        .map(({ path, message }) => `${path.join('.')}: ${message}`)
        .join('; ');
      return context.json({ error: { code: 'bad-request', message } }, 400);
    },
  });
  app.use(
    guard({
      address: () => address,
      open: OPEN_PATHS,
      ...(options.token === undefined ? {} : { token: options.token }),
    }),
  );
  app.use(async (context, next) => {
    await fillEmptyBody(context.req);
    return next();
  });
  const metrics = openMetrics(options.bus, options.watched);
  addRoutes(app, options.watched);
  addTextRoutes(app, metrics, options.watched);
  addEventStream(app, options.bus, options.clock);
  app.doc31('/openapi.json', {
    openapi: '3.1.0',
    info: { title: 'noria admin API', version: options.version },
  });
  app.notFound((context) =>
    context.json({ error: { code: 'not-found', message: 'no such route: /openapi.json lists them' } }, 404),
  );
  app.onError((error, context) => {
    if (error instanceof NoriaError && error.code === 'not-found') {
      return context.json({ error: { code: error.code, message: error.message } }, 404);
    }
    if (error instanceof HTTPException && error.status === 400) {
      return context.json({ error: { code: 'bad-request', message: 'the body is not JSON' } }, 400);
    }
    options.onError(error);
    return context.json({ error: { code: 'internal', message: 'noria made a mistake: see its log' } }, 500);
  });

  const server = createServer(getRequestListener(app.fetch));
  await listen(server, options.host, options.port);
  const bound = server.address();
  if (bound !== null && typeof bound === 'object') address.port = bound.port;
  return {
    host: options.host,
    port: address.port,
    close: () => closeServer(server).finally(() => metrics.close()),
  };
}

/** Bodies may be empty: that stands for an object without members. */
async function fillEmptyBody(request: HonoRequest): Promise<void> {
  if (request.method === 'GET' || request.method === 'HEAD') return;
  const text = await request.raw.clone().text();
  if (text.trim() !== '') return;
  const { url, method, headers } = request.raw;
  request.raw = new Request(url, { method, headers, body: '{}' });
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
