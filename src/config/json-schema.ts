/** The table as JSON Schema, from which editors complete and check a noria.yaml: `noria check --schema`. */
import { z } from 'zod';
import { KEY_NOTES, KINDS } from './keys.ts';
import type { KindNote, KindSchema } from './kinds.ts';
import { SCHEMA } from './schema.ts';

/** A value that comes from the environment can stand wherever a scalar can. */
const REFERENCE: KindSchema = { type: 'string', pattern: '\\$\\{' };

/** JSON Schema, draft 2020-12, of a configuration file. A new object each time. */
export function schemaJson(): Readonly<Record<string, unknown>> {
  const schema = z.toJSONSchema(SCHEMA, {
    io: 'input',
    override({ zodSchema, jsonSchema }) {
      if (!(zodSchema instanceof z.ZodType)) return;
      const kind = KINDS.get(zodSchema);
      if (kind !== undefined) replace(jsonSchema, scalarSchema(kind));
      const { default: fallback } = jsonSchema;
      if (typeof fallback === 'string') jsonSchema.default = typed(fallback);
      const note = KEY_NOTES.get(zodSchema);
      if (note !== undefined) jsonSchema.description = note.about;
    },
  });
  return { $schema: schema.$schema, title: 'Configuration of noria', ...schema };
}

function scalarSchema({ json, good }: KindNote): object {
  const isFree =
    json.pattern === undefined && json.enum === undefined && [json.type].flat().includes('string');
  const schema = isFree ? json : { anyOf: [json, REFERENCE] };
  return good === undefined ? schema : { ...schema, examples: [good] };
}

function replace(target: object, by: object): void {
  for (const key of Object.keys(target)) Reflect.deleteProperty(target, key);
  Object.assign(target, by);
}

/** A default as YAML's own types have it. */
function typed(text: string): string | number | boolean {
  if (text === 'true' || text === 'false') return text === 'true';
  return /^\d+$/.test(text) ? Number(text) : text;
}
