/** The keys of the schema: as a flat list for messages, masking and the tests of the docs, and as JSON Schema for editors. */

import { parse } from 'yaml';
import { z } from 'zod';
import { OPERATIONS, PRODUCTS } from '../service/operations.ts';
import { inputOf, isOptionalKey, KEY_NOTES } from './keys.ts';
import { isScalar, type ScalarJsonSchema, type ScalarType } from './scalars.ts';
import { SCHEMA } from './schema.ts';

export interface Field {
  /** The path of the key, with `[]` for the entries of a list: `sources[].upstream.auth`. */
  readonly path: string;
  readonly about: string;
  /**
   * The shape of the value. `choice`: a word or a map, for example the value of `health.check`. `list`: a list of
   * scalars. `maps`: a list of maps. `names`: a map with any keys.
   */
  readonly shape: 'scalar' | 'map' | 'choice' | 'list' | 'maps' | 'names';
  /** For `list` of each item, and for `choice` of a word. */
  readonly type: ScalarType<unknown> | undefined;
  readonly required: boolean;
  readonly fallback: unknown;
  readonly otherwise: string | undefined;
  /** The keys of the map, or of each map in the list. */
  readonly keys: readonly string[];
}

export const FIELDS: readonly Field[] = fieldsOf(SCHEMA, '');

/** The parameters of all operations. None of them is a secret. */
const PARAMS: ReadonlySet<string> = new Set([
  'count',
  ...PRODUCTS.flatMap((product) => Object.keys(OPERATIONS[product].params)),
]);

const BY_PATH: ReadonlyMap<string, Field> = new Map(FIELDS.map((field) => [field.path, field]));

/** An entry of a list has the field of the whole list. */
export function fieldAt(path: string): Field | undefined {
  const general = path.replace(/\[\d+\]/g, '[]');
  if (!general.endsWith('[]')) return BY_PATH.get(general);
  const list = BY_PATH.get(general.slice(0, -2));
  return list?.shape === 'list' || list?.shape === 'maps' ? list : undefined;
}

/**
 * How a message may show the value at a path. `itself`: unchanged. `secret`: masked. `nothing`: the message must omit
 * the value, because it may contain a secret. Examples are the value of an unknown key, and a text where the schema has
 * a map.
 *
 * @param text - the text of a scalar; undefined for a list or a map.
 */
export function shownAs(path: string, text: string | undefined): 'itself' | 'secret' | 'nothing' {
  const param = /^sources\[\d+\]\.params\.(\w+)(\[\d+\])?$/.exec(path)?.[1];
  if (param !== undefined) return PARAMS.has(param) ? 'itself' : 'nothing';
  const { type, shape } = fieldAt(path) ?? {};
  if (type?.quoted === 'never') return 'secret';
  if (text === undefined || text === '') return 'itself';
  if (type === undefined || text.includes('@')) return 'nothing'; // a password may precede the @: user:password@host
  // an invalid word of a `choice` may be a password that belongs in the map, as in `auth: hunter2`
  const isHarmless = type.quoted === 'always' && shape !== 'choice';
  return isHarmless || 'value' in type.read(text) ? 'itself' : 'nothing';
}

function fieldsOf(schema: z.ZodObject, prefix: string): Field[] {
  return Object.entries(schema.shape).flatMap(([name, entry]) => {
    const path = prefix === '' ? name : `${prefix}.${name}`;
    if (!(entry instanceof z.ZodType)) throw new TypeError(`${path} is not a schema`);
    const note = KEY_NOTES.get(entry);
    if (note === undefined)
      throw new TypeError(`${path}: create the schema of this key with a function of keys.ts`);
    const { below, suffix = '', ...form } = formOf(entry);
    const field: Field = {
      path,
      about: note.about,
      ...form,
      required: !isOptionalKey(entry),
      fallback: entry instanceof z.ZodPrefault ? entry.def.defaultValue : undefined,
      otherwise: note.otherwise,
      keys: below === undefined ? [] : Object.keys(below.shape),
    };
    return [field, ...(below === undefined ? [] : fieldsOf(below, path + suffix))];
  });
}

function formOf(schema: unknown): Pick<Field, 'shape' | 'type'> & {
  readonly below?: z.ZodObject | undefined;
  readonly suffix?: '[]';
} {
  const plain = inputOf(schema);
  if (isScalar(plain)) return { shape: 'scalar', type: plain.scalarType };
  if (plain instanceof z.ZodObject) return { shape: 'map', type: undefined, below: plain };
  if (plain instanceof z.ZodRecord) return { shape: 'names', type: undefined };
  if (plain instanceof z.ZodArray) {
    const { shape, ...entry } = formOf(plain.element);
    return { ...entry, shape: shape === 'map' ? 'maps' : 'list', suffix: '[]' };
  }
  if (plain instanceof z.ZodUnion) {
    const options = plain.options.map(formOf);
    const word = options.find(({ shape }) => shape === 'scalar');
    const map = options.find(({ shape }) => shape === 'map');
    const list = options.find(({ shape }) => shape === 'list');
    if (word?.type !== undefined && list !== undefined) {
      const expected = `${word.type.expected}, or a list, each entry ${list.type?.expected}`;
      return { shape: 'scalar', type: { ...word.type, expected } };
    }
    return { shape: 'choice', type: word?.type, below: map?.below };
  }
  throw new TypeError('the schema uses a zod type that fields.ts does not know');
}

/** Any scalar may be a text with a reference to an environment variable. */
const REFERENCE: ScalarJsonSchema = { type: 'string', pattern: '\\$\\{' };

/** The parameters of all products, because this JSON Schema does not distinguish products. */
const ANY_PARAMS = {
  type: 'object',
  properties: Object.fromEntries(
    PRODUCTS.flatMap((product) => Object.entries(OPERATIONS[product].params)).map(([name, { about }]) => [
      name,
      { description: about, type: ['string', 'integer', 'array'] },
    ]),
  ),
};

export function schemaJson(): Readonly<Record<string, unknown>> {
  const schema = z.toJSONSchema(SCHEMA, {
    io: 'input',
    override({ zodSchema, jsonSchema }) {
      if (isScalar(zodSchema)) replace(jsonSchema, scalarJsonSchema(zodSchema.scalarType));
      if (zodSchema instanceof z.ZodRecord && zodSchema.valueType instanceof z.ZodUnion)
        replace(jsonSchema, ANY_PARAMS);
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

function typed(text: string): string | number | boolean {
  if (text === 'true' || text === 'false') return text === 'true';
  return /^\d+$/.test(text) ? Number(text) : text;
}
