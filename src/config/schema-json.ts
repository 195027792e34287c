/** The schema as JSON Schema, with which editors complete and check a noria.yaml (`noria check --schema`). */
import { parse } from 'yaml';
import { z } from 'zod';
import { OPERATIONS, PRODUCTS } from '../service/operations.ts';
import { KEY_NOTES } from './keys.ts';
import { isScalar, type ScalarJsonSchema, type ScalarType } from './scalars.ts';
import { SCHEMA } from './schema.ts';

/** Matches a text with a reference to an environment variable. Any scalar may be such a text. */
const REFERENCE: ScalarJsonSchema = { type: 'string', pattern: '\\$\\{' };

/** The parameters of all products, because this JSON Schema does not distinguish products. */
const PARAMS = {
  type: 'object',
  properties: Object.fromEntries(
    PRODUCTS.flatMap((product) => Object.entries(OPERATIONS[product].params)).map(([name, { about }]) => [
      name,
      { description: about, type: ['string', 'integer', 'array'] },
    ]),
  ),
};

/** Returns the JSON Schema (draft 2020-12) of a configuration file. The object is new at each call. */
export function schemaJson(): Readonly<Record<string, unknown>> {
  const schema = z.toJSONSchema(SCHEMA, {
    io: 'input',
    override({ zodSchema, jsonSchema }) {
      if (isScalar(zodSchema)) replace(jsonSchema, scalarJsonSchema(zodSchema.scalarType));
      if (zodSchema instanceof z.ZodRecord && zodSchema.valueType instanceof z.ZodUnion)
        replace(jsonSchema, PARAMS);
      const { default: fallback } = jsonSchema;
      if (typeof fallback === 'string') jsonSchema.default = typed(fallback);
      const note = zodSchema instanceof z.ZodType ? KEY_NOTES.get(zodSchema) : undefined;
      if (note !== undefined) jsonSchema.description = note.about;
    },
  });
  return { $schema: schema.$schema, title: 'Configuration of noria', ...schema };
}

function scalarJsonSchema({ json, example }: ScalarType<unknown>): object {
  const isAnyText =
    json.pattern === undefined && json.enum === undefined && [json.type].flat().includes('string');
  const schema = isAnyText ? json : { anyOf: [json, REFERENCE] };
  if (example === undefined) return schema;
  return { ...schema, examples: [parse(example, { schema: 'failsafe' })] };
}

function replace(target: object, by: object): void {
  for (const key of Object.keys(target)) Reflect.deleteProperty(target, key);
  Object.assign(target, by);
}

/** Converts a default to the type that YAML editors expect, such as a number. */
function typed(text: string): string | number | boolean {
  if (text === 'true' || text === 'false') return text === 'true';
  return /^\d+$/.test(text) ? Number(text) : text;
}
