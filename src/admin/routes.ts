/** Every route of the admin API: its description and its answer in one place. Reads are snapshots, writes are verbs. */
import { createRoute, type OpenAPIHono, z } from '@hono/zod-openapi';
import { NoriaError } from '../core/faults.ts';
import type { Metrics } from './metrics.ts';
import {
  errorSchema,
  logLevelSchema,
  memberSchema,
  reportSchema,
  rotateSchema,
  sessionSchema,
  statusSchema,
} from './schemas.ts';
import type { Watched } from './watched.ts';

const json = <Schema extends z.ZodType>(schema: Schema) => ({ 'application/json': { schema } });
const answer = <Schema extends z.ZodType>(description: string, schema: Schema) => ({
  description,
  content: json(schema),
});
const NOT_FOUND = answer('there is no such thing', errorSchema);
const idParam = z.object({ id: z.string().min(1) });
const nameParam = z.object({ name: z.string().min(1) });

export function addRoutes(app: OpenAPIHono, watched: Watched): void {
  addReads(app, watched);
  addMemberVerbs(app, watched);
  addSourceVerbs(app, watched);
  addSessionVerbs(app, watched);
}

function addReads(app: OpenAPIHono, watched: Watched): void {
  app.openapi(
    createRoute({
      method: 'get',
      path: '/healthz',
      summary: 'Whether the process works',
      responses: { 200: { description: 'it does', content: { 'text/plain': { schema: z.string() } } } },
    }),
    (context) => context.text('ok\n', 200),
  );
  app.openapi(
    createRoute({
      method: 'get',
      path: '/readyz',
      summary: 'Whether clients can be served',
      responses: {
        200: { description: 'they can', content: { 'text/plain': { schema: z.string() } } },
        503: { description: 'the reason why not', content: { 'text/plain': { schema: z.string() } } },
      },
    }),
    (context) => {
      const { ready, reason } = watched.status();
      return context.text(`${reason}\n`, ready ? 200 : 503);
    },
  );
  app.openapi(
    createRoute({
      method: 'get',
      path: '/api/status',
      summary: 'The state of the daemon and of each source',
      responses: { 200: answer('the state', statusSchema) },
    }),
    (context) => context.json(watched.status(), 200),
  );
  app.openapi(
    createRoute({
      method: 'get',
      path: '/api/members',
      summary: 'Every member of the pool',
      responses: { 200: answer('the members', z.array(memberSchema)) },
    }),
    (context) => context.json([...watched.members()], 200),
  );
  app.openapi(
    createRoute({
      method: 'get',
      path: '/api/sessions',
      summary: 'Every session',
      responses: { 200: answer('the sessions', z.array(sessionSchema)) },
    }),
    (context) => context.json([...watched.sessions()], 200),
  );
}

/** What is read by machines other than people's scripts. */
export function addTextRoutes(app: OpenAPIHono, metrics: Metrics, watched: Watched): void {
  app.openapi(
    createRoute({
      method: 'get',
      path: '/metrics',
      summary: 'Prometheus metrics',
      responses: { 200: { description: 'the metrics', content: { 'text/plain': { schema: z.string() } } } },
    }),
    async (context) => context.text(await metrics.render(), 200, { 'Content-Type': metrics.contentType }),
  );
  app.openapi(
    createRoute({
      method: 'get',
      path: '/proxy.pac',
      summary: 'A PAC file that sends everything but this machine through the first listener',
      responses: {
        200: {
          description: 'the file',
          content: { 'application/x-ns-proxy-autoconfig': { schema: z.string() } },
        },
        404: NOT_FOUND,
      },
    }),
    (context) => {
      const address = watched.proxyAddress();
      if (address === undefined) throw new NoriaError('not-found', 'no listener speaks HTTP');
      return context.body(pacFile(address), 200, { 'Content-Type': 'application/x-ns-proxy-autoconfig' });
    },
  );
}

/** No DIRECT behind PROXY: a browser must not go around noria when it is down. */
function pacFile(address: string): string {
  return `function FindProxyForURL(url, host) {
  if (host === "localhost" || host === "127.0.0.1" || host === "[::1]" || host === "::1") return "DIRECT";
  return "PROXY ${address}";
}
`;
}

function addMemberVerbs(app: OpenAPIHono, watched: Watched): void {
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
      must(watched.evict(id), `there is no member ${id}`);
      return context.body(null, 204);
    },
  );
  app.openapi(
    createRoute({
      method: 'post',
      path: '/api/reports',
      summary: "A client's own verdict: a banned member is not used for that host again",
      request: { body: { content: json(reportSchema), required: true } },
      responses: { 204: { description: 'noted' }, 404: NOT_FOUND, 400: answer('not a report', errorSchema) },
    }),
    (context) => {
      const report = context.req.valid('json');
      must(watched.report(report), 'there is no such session or member');
      return context.body(null, 204);
    },
  );
}

function addSourceVerbs(app: OpenAPIHono, watched: Watched): void {
  const verbs = [
    ['refill', 'Draw now, within the pace', (name: string) => watched.refill(name)],
    ['pause', 'Stop drawing', (name: string) => watched.pause(name)],
    ['resume', 'Draw again; out of halted it tries once', (name: string) => watched.resume(name)],
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
      request: { body: { content: json(logLevelSchema), required: true } },
      responses: { 204: { description: 'done' }, 400: answer('not a level', errorSchema) },
    }),
    (context) => {
      watched.setLogLevel(context.req.valid('json').level);
      return context.body(null, 204);
    },
  );
}

function addSessionVerbs(app: OpenAPIHono, watched: Watched): void {
  app.openapi(
    createRoute({
      method: 'post',
      path: '/api/sessions/{id}/rotate',
      summary: 'Move a session to another member',
      request: { params: idParam, body: { content: json(rotateSchema) } },
      responses: { 202: { description: 'it moves with its next connection' }, 404: NOT_FOUND },
    }),
    (context) => {
      const { id } = context.req.valid('param');
      const { close } = context.req.valid('json');
      must(watched.rotateSession(id, close === true), `there is no session ${id}`);
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
      must(watched.forgetSession(id), `there is no session ${id}`);
      return context.body(null, 204);
    },
  );
}

function must(found: boolean, message: string): void {
  if (!found) throw new NoriaError('not-found', message);
}
