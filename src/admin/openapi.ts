/** What all routes of the admin API share: their responses, their errors, and the API description at /openapi.json. */
import { type OpenAPIHono, z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { errorSchema } from './schemas.ts';

export const ADMIN_ERRORS = {
  'bad-request': 400,
  'bad-config': 400,
  'token-required': 401,
  'wrong-origin': 403,
  'not-found': 404,
  'method-not-allowed': 405,
  'listen-failed': 409,
  'shutting-down': 409,
  'too-large': 413,
  'wrong-content-type': 415,
  'wrong-host': 421,
  internal: 500,
  'too-many-readers': 503,
} as const;

const ABOUT = `Reads the state of a running noria and controls it. Reads are snapshots. Requests that change state need
\`Content-Type: application/json\`; their body may be empty. Every error has the form \`{ "error": { "code", "message" } }\`.
With \`Accept-Language: zh\`, reasons and advice are in Chinese.`;

export const jsonContent = <Schema extends z.ZodType>(schema: Schema) => ({ 'application/json': { schema } });

export const jsonResponse = <Schema extends z.ZodType>(description: string, schema: Schema) => ({
  description,
  content: jsonContent(schema),
});

export const textResponse = <Type extends string>(description: string, type: Type) => ({
  description,
  content: { [type]: { schema: z.string() } } as Record<Type, { schema: z.ZodString }>,
});

export const NOT_FOUND = jsonResponse('Not found', errorSchema);

export function isAdminError(code: string): code is keyof typeof ADMIN_ERRORS {
  return Object.hasOwn(ADMIN_ERRORS, code);
}

export function sendError<Code extends keyof typeof ADMIN_ERRORS>(
  context: Context,
  code: Code,
  message: string,
) {
  const error: { code: string; message: string } = { code, message };
  return context.json({ error }, ADMIN_ERRORS[code]);
}

export function describeIssues(error: z.ZodError): string {
  return error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; ');
}

/**
 * Adds /openapi.json. The first request generates the description: at the start, this would cost every noria 40 ms of
 * CPU time.
 * @param openPaths - the paths that need no token.
 */
export function addDescription(app: OpenAPIHono, version: string, openPaths: ReadonlySet<string>): void {
  app.openAPIRegistry.register('Error', errorSchema);
  app.openAPIRegistry.registerComponent('securitySchemes', 'token', {
    type: 'http',
    scheme: 'bearer',
    description: '`admin.token` of the configuration, if set',
  });
  app.openAPIRegistry.registerPath({
    method: 'get',
    path: '/openapi.json',
    summary: 'This description',
    responses: { 200: { description: 'The description' } },
  });
  let description: object | undefined;
  app.get('/openapi.json', (context) => {
    description ??= describeRoutes(app, version, openPaths);
    return context.json(description);
  });
}

function describeRoutes(app: OpenAPIHono, version: string, openPaths: ReadonlySet<string>): object {
  const document = app.getOpenAPI31Document({
    openapi: '3.1.0',
    info: { title: 'noria admin API', version, description: ABOUT },
    security: [{ token: [] }],
  });
  const failure = {
    description: 'The request was refused, was invalid, or failed',
    content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
  };
  for (const [path, operations] of Object.entries(document.paths ?? {})) {
    for (const operation of [operations.get, operations.post, operations.put, operations.delete]) {
      if (operation === undefined) continue;
      if (openPaths.has(path) || path === '/page/{file}' || path === '/docs/{page}') operation.security = [];
      operation.responses = { ...operation.responses, default: failure };
    }
  }
  return document;
}
