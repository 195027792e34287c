/** How answers are described and errors told: what many routes share. */
import { z } from '@hono/zod-openapi';
import type { Context } from 'hono';
import { errorSchema } from './schemas.ts';

/** A body of JSON, described. */
export const jsonContent = <Schema extends z.ZodType>(schema: Schema) => ({ 'application/json': { schema } });

/** An answer of JSON, described. */
export const jsonResponse = <Schema extends z.ZodType>(description: string, schema: Schema) => ({
  description,
  content: jsonContent(schema),
});

/** An answer that is text of some kind, described. */
export const textResponse = <Type extends string>(description: string, type: Type) => ({
  description,
  content: { [type]: { schema: z.string() } } as Record<Type, { schema: z.ZodString }>,
});

/** What a verb answers for a thing that is not there. */
export const NOT_FOUND = jsonResponse('there is no such thing', errorSchema);

/** The codes of errors, with their HTTP status. docs/admin-api.md lists them, held by test/held/admin-api.test.ts. */
export const ADMIN_ERRORS = {
  'bad-request': 400,
  'token-required': 401,
  'wrong-origin': 403,
  'not-found': 404,
  'method-not-allowed': 405,
  'too-large': 413,
  'wrong-content-type': 415,
  'wrong-host': 421,
  internal: 500,
  'too-many-readers': 503,
} as const;

/** An error in the one shape that all of them have. */
export function sendError<Code extends keyof typeof ADMIN_ERRORS>(
  context: Context,
  code: Code,
  message: string,
) {
  const error: { code: string; message: string } = { code, message };
  return context.json({ error }, ADMIN_ERRORS[code]);
}

/** What was wrong with a request, in one line: each place with its problem. */
export function describeIssues(error: z.ZodError): string {
  return error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`).join('; ');
}
