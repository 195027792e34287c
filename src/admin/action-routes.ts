/** The admin API's routes that change state. Each of them runs one command of the daemon. */
import { ServerResponse } from 'node:http';
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import { NoriaError } from '../core/faults.ts';
import type { AdminBackend } from './backend.ts';
import { jsonContent, jsonResponse, NOT_FOUND } from './openapi.ts';
import { errorSchema, logLevelSchema, reloadSchema, reportSchema, rotateSchema } from './schemas.ts';

const idParam = z.object({ id: z.string().min(1) });
const nameParam = z.object({ name: z.string().min(1) });

export function addActionRoutes(app: OpenAPIHono, backend: AdminBackend): void {
  addMemberActions(app, backend);
  addSourceActions(app, backend);
  addSessionActions(app, backend);
  addReload(app, backend);
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

function addMemberActions(app: OpenAPIHono, backend: AdminBackend): void {
  app.openapi(
    createRoute({
      method: 'post',
      path: '/api/members/{id}/evict',
      summary: 'Remove a member for good; its open tunnels continue',
      request: { params: idParam },
      responses: { 204: { description: 'Done' }, 404: NOT_FOUND },
    }),
    (context) => {
      const { id } = context.req.valid('param');
      assertFound(backend.evictMember(id), `there is no member ${id}`);
      return context.body(null, 204);
    },
  );
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
      const report = context.req.valid('json');
      assertFound(backend.reportMember(report), 'there is no such session or member');
      return context.body(null, 204);
    },
  );
}

function addSourceActions(app: OpenAPIHono, backend: AdminBackend): void {
  const actions = [
    [
      'refill',
      'Draw the missing members of a source as soon as the pace allows',
      (name: string) => backend.refillSource(name),
    ],
    ['pause', 'Stop drawing', (name: string) => backend.pauseSource(name)],
    [
      'resume',
      'Draw again; a halted source makes one call, which shows whether the problem is solved',
      (name: string) => backend.resumeSource(name),
    ],
  ] as const;
  for (const [action, summary, run] of actions) {
    app.openapi(
      createRoute({
        method: 'post',
        path: `/api/sources/{name}/${action}`,
        summary,
        request: { params: nameParam },
        responses: { 202: { description: 'Accepted' }, 404: NOT_FOUND },
      }),
      (context) => {
        const { name } = context.req.valid('param');
        assertFound(run(name), `there is no source ${name}`);
        return context.body(null, 202);
      },
    );
  }
}

function addSessionActions(app: OpenAPIHono, backend: AdminBackend): void {
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
      method: 'delete',
      path: '/api/sessions/{id}',
      summary: 'Forget a session',
      request: { params: idParam },
      responses: { 204: { description: 'Done' }, 404: NOT_FOUND },
    }),
    (context) => {
      const { id } = context.req.valid('param');
      assertFound(backend.forgetSession(id), `there is no session ${id}`);
      return context.body(null, 204);
    },
  );
}

function addReload(app: OpenAPIHono, backend: AdminBackend): void {
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
