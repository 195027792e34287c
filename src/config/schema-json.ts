/** The schema as JSON Schema, with which editors complete and check a noria.yaml: `noria check --schema`. */
import { parse } from 'yaml';
import { z } from 'zod';
import { OPERATIONS, PRODUCTS } from '../service/operations.ts';
import { KEY_NOTES } from './keys.ts';
import { isScalar, type ScalarJsonSchema, type ScalarType } from './scalars.ts';
import { SCHEMA } from './schema.ts';

/** A value from the environment. Every scalar may have one. */
const REFERENCE: ScalarJsonSchema = { type: 'string', pattern: '\\$\\{' };

/** The parameters of all products. The product of a source decides which of them it accepts. */
const PARAMS = {
  type: 'object',
  properties: Object.fromEntries(
    PRODUCTS.flatMap((product) => Object.entries(OPERATIONS[product].params)).map(([name, { about }]) => [
      name,
      { description: about, type: ['string', 'integer', 'array'] },
    ]),
  ),
};

/** Returns the JSON Schema, draft 2020-12, of a configuration file. Each call returns a new object. */
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

/** A default, converted to the type that YAML gives it. */
function typed(text: string): string | number | boolean {
  if (text === 'true' || text === 'false') return text === 'true';
  return /^\d+$/.test(text) ? Number(text) : text;
}
