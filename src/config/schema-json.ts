/** The table as JSON Schema, from which editors complete and check a noria.yaml: `noria check --schema`. */
import { parse } from 'yaml';
import { z } from 'zod';
import { OPERATIONS, PRODUCTS } from '../service/operations.ts';
import { KEY_NOTES, KINDS } from './keys.ts';
import type { KindNote, KindSchema } from './kinds.ts';
import { SCHEMA } from './schema.ts';

/** A value that comes from the environment can stand wherever a scalar can. */
const REFERENCE: KindSchema = { type: 'string', pattern: '\\$\\{' };

/** The parameters of all products: which of them a source takes depends on its product. */
const PARAMS = {
  type: 'object',
  properties: Object.fromEntries(
    PRODUCTS.flatMap((product) => Object.entries(OPERATIONS[product].params)).map(([name, { about }]) => [
      name,
      { description: about, type: ['string', 'integer', 'array'] },
    ]),
  ),
};

/** JSON Schema, draft 2020-12, of a configuration file. A new object each time. */
export function schemaJson(): Readonly<Record<string, unknown>> {
  const schema = z.toJSONSchema(SCHEMA, {
    io: 'input',
    override({ zodSchema, jsonSchema }) {
      if (!(zodSchema instanceof z.ZodType)) return;
      const kind = KINDS.get(zodSchema);
      if (kind !== undefined) replace(jsonSchema, scalarSchema(kind));
      if (zodSchema instanceof z.ZodRecord) replace(jsonSchema, PARAMS);
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
  const example: unknown = good === undefined ? undefined : parse(good, { schema: 'failsafe' });
  return example === undefined ? schema : { ...schema, examples: [example] };
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
