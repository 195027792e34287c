/** The admin API's routes that change state. Each of them runs one command of the daemon. */
import { ServerResponse } from 'node:http';
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import { NoriaError } from '../core/faults.ts';
import type { AdminBackend } from './backend.ts';
import { jsonContent, jsonResponse, NOT_FOUND } from './openapi.ts';
import { errorSchema, logLevelSchema, reloadSchema, reportSchema, rotateSchema } from './schemas.ts';

export function addActionRoutes(app: OpenAPIHono, backend: AdminBackend): void {
  addCommands(app, backend);
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

const idParam = z.object({ id: z.string().min(1) });
const nameParam = z.object({ name: z.string().min(1) });

/** The commands that need nothing but the name of what they change. */
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
