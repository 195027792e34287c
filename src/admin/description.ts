/** The API's description at /openapi.json, made of the schemas that validate; and what all its routes have in common. */
import type { OpenAPIHono } from '@hono/zod-openapi';
import { errorSchema } from './schemas.ts';

const ABOUT = `What a running noria shows and how it is steered. Reads are snapshots. Requests that change something need
\`Content-Type: application/json\`; their body may be empty. Every error has one shape: \`{ "error": { "code", "message" } }\`.`;

/**
 * Adds the description, last of all routes: it names those that were added before.
 *
 * @param openPaths - what answers without the token.
 */
export function addDescription(app: OpenAPIHono, version: string, openPaths: ReadonlySet<string>): void {
  app.openAPIRegistry.register('Error', errorSchema);
  app.openAPIRegistry.registerComponent('securitySchemes', 'token', {
    type: 'http',
    scheme: 'bearer',
    description: '`admin.token` of the configuration, where it has one',
  });
  app.openAPIRegistry.registerPath({
    method: 'get',
    path: '/openapi.json',
    summary: 'This description',
    responses: { 200: { description: 'the description' } },
  });
  const document = app.getOpenAPI31Document({
    openapi: '3.1.0',
    info: { title: 'noria admin API', version, description: ABOUT },
    security: [{ token: [] }],
  });
  for (const [path, operations] of Object.entries(document.paths ?? {})) {
    for (const operation of [operations.get, operations.post, operations.put, operations.delete]) {
      if (operation === undefined) continue;
      if (openPaths.has(path) || path === '/page/{file}') operation.security = [];
      operation.responses = { ...operation.responses, default: REFUSED };
    }
  }
  app.get('/openapi.json', (context) => context.json(document));
}

const REFUSED = {
  description: 'refused by a guard, not understood, or failed',
  content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
};
