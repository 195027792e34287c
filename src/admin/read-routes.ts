/** What the admin API lets read: snapshots, made at most so often that reading costs the data plane nothing. */
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import type { Clock } from '../core/clock.ts';
import type { AdminBackend } from './backend.ts';
import type { Failures } from './failures.ts';
import { type History, SPANS } from './history.ts';
import { describeIssues, jsonResponse, sendError, textResponse } from './openapi.ts';
import {
  failureSchema,
  historySchema,
  memberSchema,
  type Status,
  sessionSchema,
  statusSchema,
} from './schemas.ts';
import { SnapshotCache } from './snapshot-cache.ts';

export interface ReadRouteParts {
  readonly backend: AdminBackend;
  readonly history: History;
  readonly failures: Failures;
  readonly clock: Clock;
}

/** Snapshots that are still good. */
export interface SnapshotCaches {
  /** Something was changed by hand: what is read next is made anew. */
  forget(): void;
}

const limitQuery = z.object({
  limit: z.coerce
    .number()
    .int()
    .min(1)
    .optional()
    .openapi({ description: 'at most so many; all when absent' }),
});

/** Adds every route that reads as JSON, and the two that orchestrators ask. */
export function addReadRoutes(
  app: OpenAPIHono,
  { backend, history, failures, clock }: ReadRouteParts,
): SnapshotCaches {
  const status = new SnapshotCache(clock, () => backend.status());
  const members = new SnapshotCache(clock, () => new Listing(backend.members()));
  const sessions = new SnapshotCache(clock, () => new Listing(backend.sessions()));
  addHealth(app, status);
  addLists(app, members, sessions);
  app.openapi(
    createRoute({
      method: 'get',
      path: '/api/status',
      summary: 'The state of the daemon and of each source',
      responses: { 200: jsonResponse('the state', statusSchema) },
    }),
    (context) => context.json(status.get(), 200),
  );
  app.openapi(
    createRoute({
      method: 'get',
      path: '/api/history',
      summary: 'What passed through lately: tunnels, bytes, latency of dials, failures by blame',
      request: {
        query: z.object({ span: z.enum(Object.keys(SPANS) as [keyof typeof SPANS]).default('15m') }),
      },
      responses: { 200: jsonResponse('the steps, oldest first', historySchema) },
    }),
    (context) => context.json(history.read(context.req.valid('query').span), 200),
  );
  app.openapi(
    createRoute({
      method: 'get',
      path: '/api/failures',
      summary: 'What failed lately, latest first, each kind of failure once and explained',
      responses: { 200: jsonResponse('the failures', z.array(failureSchema)) },
    }),
    (context) => context.json([...failures.list()], 200),
  );
  return {
    forget() {
      for (const snapshot of [status, members, sessions]) snapshot.forget();
    },
  };
}

function addHealth(app: OpenAPIHono, status: SnapshotCache<Status>): void {
  app.openapi(
    createRoute({
      method: 'get',
      path: '/healthz',
      summary: 'Whether the process works',
      responses: { 200: textResponse('it does', 'text/plain') },
    }),
    (context) => context.text('ok\n', 200),
  );
  app.openapi(
    createRoute({
      method: 'get',
      path: '/readyz',
      summary: 'Whether clients can be served',
      responses: {
        200: textResponse('they can', 'text/plain'),
        503: textResponse('the reason why not', 'text/plain'),
      },
    }),
    (context) => {
      const { ready, reason } = status.get();
      return context.text(`${reason}\n`, ready ? 200 : 503);
    },
  );
}

function addLists(app: OpenAPIHono, members: SnapshotCache<Listing>, sessions: SnapshotCache<Listing>): void {
  const lists = [
    ['/api/members', 'Every member of the pool', memberSchema.array(), members],
    ['/api/sessions', 'Every session', sessionSchema.array(), sessions],
  ] as const;
  for (const [path, summary, schema, listing] of lists) {
    // Not app.openapi: its handlers give values to be written, and this list is written already.
    app.openAPIRegistry.registerPath({
      method: 'get',
      path,
      summary,
      request: { query: limitQuery },
      responses: { 200: jsonResponse('the list', schema) },
    });
    app.get(path, (context) => {
      const query = limitQuery.safeParse(context.req.query());
      if (!query.success) return sendError(context, 'bad-request', describeIssues(query.error));
      return context.body(listing.get().bytes(query.data.limit), 200, { 'Content-Type': 'application/json' });
    });
  }
}

/** A list as JSON, in bytes; the whole of it is written once, however many ask. */
class Listing {
  readonly #items: readonly object[];
  readonly #whole: Uint8Array<ArrayBuffer>;

  constructor(items: readonly object[]) {
    this.#items = items;
    this.#whole = encode(items);
  }

  bytes(limit: number | undefined): Uint8Array<ArrayBuffer> {
    if (limit === undefined || limit >= this.#items.length) return this.#whole;
    return encode(this.#items.slice(0, limit));
  }
}

function encode(items: readonly object[]): Uint8Array<ArrayBuffer> {
  return new TextEncoder().encode(JSON.stringify(items));
}
