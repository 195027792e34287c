/** What the admin API lets do: each verb is passed on to the daemon; the description of each route beside its answer. */
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import { NoriaError } from '../core/faults.ts';
import type { AdminBackend } from './backend.ts';
import { jsonContent, jsonResponse, NOT_FOUND } from './openapi.ts';
import { errorSchema, logLevelSchema, reportSchema, rotateSchema } from './schemas.ts';

const idParam = z.object({ id: z.string().min(1) });
const nameParam = z.object({ name: z.string().min(1) });

/** Adds every route that changes something. */
export function addActionRoutes(app: OpenAPIHono, backend: AdminBackend): void {
  addMemberVerbs(app, backend);
  addSourceVerbs(app, backend);
  addSessionVerbs(app, backend);
}

function addMemberVerbs(app: OpenAPIHono, backend: AdminBackend): void {
  app.openapi(
    createRoute({
      method: 'post',
      path: '/api/members/{id}/evict',
      summary: 'Remove a member for good; its open tunnels go on',
      request: { params: idParam },
      responses: { 204: { description: 'done' }, 404: NOT_FOUND },
    }),
    (context) => {
      const { id } = context.req.valid('param');
      must(backend.evictMember(id), `there is no member ${id}`);
      return context.body(null, 204);
    },
  );
  app.openapi(
    createRoute({
      method: 'post',
      path: '/api/reports',
      summary: "A client's own verdict: a banned member is not used for that host again",
      request: { body: { content: jsonContent(reportSchema), required: true } },
      responses: {
        204: { description: 'noted' },
        404: NOT_FOUND,
        400: jsonResponse('not a report', errorSchema),
      },
    }),
    (context) => {
      const report = context.req.valid('json');
      must(backend.reportMember(report), 'there is no such session or member');
      return context.body(null, 204);
    },
  );
}

function addSourceVerbs(app: OpenAPIHono, backend: AdminBackend): void {
  const verbs = [
    ['refill', 'Draw now, within the pace', (name: string) => backend.refillSource(name)],
    ['pause', 'Stop drawing', (name: string) => backend.pauseSource(name)],
    ['resume', 'Draw again; out of halted it tries once', (name: string) => backend.resumeSource(name)],
  ] as const;
  for (const [verb, summary, act] of verbs) {
    app.openapi(
      createRoute({
        method: 'post',
        path: `/api/sources/{name}/${verb}`,
        summary,
        request: { params: nameParam },
        responses: { 202: { description: 'taken' }, 404: NOT_FOUND },
      }),
      (context) => {
        const { name } = context.req.valid('param');
        must(act(name), `there is no source ${name}`);
        return context.body(null, 202);
      },
    );
  }
  app.openapi(
    createRoute({
      method: 'put',
      path: '/api/log-level',
      summary: 'Change how much is logged, until the next start or reload',
      request: { body: { content: jsonContent(logLevelSchema), required: true } },
      responses: { 204: { description: 'done' }, 400: jsonResponse('not a level', errorSchema) },
    }),
    (context) => {
      backend.setLogLevel(context.req.valid('json').level);
      return context.body(null, 204);
    },
  );
}

function addSessionVerbs(app: OpenAPIHono, backend: AdminBackend): void {
  app.openapi(
    createRoute({
      method: 'post',
      path: '/api/sessions/{id}/rotate',
      summary: 'Move a session to another member',
      request: { params: idParam, body: { content: jsonContent(rotateSchema) } },
      responses: { 202: { description: 'it moves with its next connection' }, 404: NOT_FOUND },
    }),
    (context) => {
      const { id } = context.req.valid('param');
      const { close } = context.req.valid('json');
      must(backend.rotateSession(id, close === true), `there is no session ${id}`);
      return context.body(null, 202);
    },
  );
  app.openapi(
    createRoute({
      method: 'delete',
      path: '/api/sessions/{id}',
      summary: 'Forget a session',
      request: { params: idParam },
      responses: { 204: { description: 'forgotten' }, 404: NOT_FOUND },
    }),
    (context) => {
      const { id } = context.req.valid('param');
      must(backend.forgetSession(id), `there is no session ${id}`);
      return context.body(null, 204);
    },
  );
}

function must(found: boolean, message: string): void {
  if (!found) throw new NoriaError('not-found', message);
}
