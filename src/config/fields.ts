/**
 * The table of schema.ts as a flat list: every key with its path, its words and its default.
 *
 * Messages, masks, docs and the JSON Schema for editors are made from it.
 */
import { z } from 'zod';
import { OPERATIONS, PRODUCTS } from '../service/operations.ts';
import { KEY_NOTES, KINDS } from './keys.ts';
import type { KindNote } from './kinds.ts';
import { SCHEMA } from './schema.ts';

/** One key of the table. */
export interface Field {
  /** With `[]` for the entries of a list: `sources[].upstream.auth`. */
  readonly path: string;
  readonly about: string;
  /** A `choice` is a scalar or a map, such as `health.check`; `list` holds scalars, `maps` holds maps, `names` any keys. */
  readonly shape: 'scalar' | 'map' | 'choice' | 'list' | 'maps' | 'names';
  /** Of the scalar, of the entries of a list, of the word of a choice. */
  readonly kind: KindNote | undefined;
  readonly required: boolean;
  /** As it stands in YAML; `undefined` where there is none. */
  readonly fallback: unknown;
  /** What holds without a value, in words, where there is no default. */
  readonly otherwise: string | undefined;
  /** The keys of a map, of the entries of `maps`, of a choice. */
  readonly keys: readonly string[];
}

/** Every key, in the order of the table. */
export const FIELDS: readonly Field[] = keysOf(SCHEMA, '');

/** `user:password@host`, in whatever value. */
const USER_INFO = /@/;
/** The parameters of all operations: none of them is a secret. */
const PARAMS: ReadonlySet<string> = new Set([
  'count',
  ...PRODUCTS.flatMap((product) => Object.keys(OPERATIONS[product].params)),
]);

const BY_PATH: ReadonlyMap<string, Field> = new Map(FIELDS.map((field) => [field.path, field]));

/** The key at a path of a document, where the entries of lists have their number; an entry stands for its list. */
export function fieldAt(path: string): Field | undefined {
  const general = path.replace(/\[\d+\]/g, '[]');
  if (!general.endsWith('[]')) return BY_PATH.get(general);
  const list = BY_PATH.get(general.slice(0, -2));
  return list?.shape === 'list' || list?.shape === 'maps' ? list : undefined;
}

/**
 * How a value at a path may be shown: as it is, as a secret, or, where nobody can know what it is (an unknown key, a text in
 * place of a map), not at all.
 *
 * @param text - of a scalar; undefined for a list or a map.
 */
export function shownAs(path: string, text: string | undefined): 'itself' | 'secret' | 'nothing' {
  const param = /^sources\[\d+\]\.params\.(\w+)(\[\d+\])?$/.exec(path)?.[1];
  if (param !== undefined) return PARAMS.has(param) ? 'itself' : 'nothing';
  const { kind, shape } = fieldAt(path) ?? {};
  if (kind?.shown === 'never') return 'secret';
  if (text === undefined || text === '') return 'itself';
  if (kind === undefined || USER_INFO.test(text)) return 'nothing';
  // A text in place of the map of a choice may be anything.
  const isHarmless = kind.shown === 'always' && shape !== 'choice';
  return isHarmless || 'value' in kind.read(text) ? 'itself' : 'nothing';
}

function keysOf(schema: z.ZodObject, prefix: string): Field[] {
  return Object.entries(schema.shape).flatMap(([name, entry]) => {
    if (!(entry instanceof z.ZodType)) return [];
    return fieldsAt(entry, prefix === '' ? name : `${prefix}.${name}`);
  });
}

function fieldsAt(schema: z.ZodType, path: string): Field[] {
  const note = KEY_NOTES.get(schema);
  if (note === undefined) throw new TypeError(`the table says nothing about ${path}`);
  const inner = unwrap(schema);
  const { shape, below, kind, suffix } = look(inner);
  const field: Field = {
    path,
    about: note.about,
    shape,
    kind,
    required: !(schema instanceof z.ZodOptional || schema instanceof z.ZodPrefault),
    fallback: schema instanceof z.ZodPrefault ? schema.def.defaultValue : undefined,
    otherwise: note.otherwise,
    keys: below === undefined ? [] : Object.keys(below.shape),
  };
  return [field, ...(below === undefined ? [] : keysOf(below, path + suffix))];
}

interface Look {
  readonly shape: Field['shape'];
  readonly kind: KindNote | undefined;
  readonly below: z.ZodObject | undefined;
  readonly suffix: '' | '[]';
}

function look(schema: z.ZodType): Look {
  const kind = KINDS.get(schema);
  if (kind !== undefined) return { shape: 'scalar', kind, below: undefined, suffix: '' };
  if (schema instanceof z.ZodObject) return { shape: 'map', kind, below: schema, suffix: '' };
  if (schema instanceof z.ZodRecord) return { shape: 'names', kind, below: undefined, suffix: '' };
  if (schema instanceof z.ZodArray) {
    const element: unknown = schema.element;
    if (element instanceof z.ZodObject) return { shape: 'maps', kind, below: element, suffix: '[]' };
    const each = element instanceof z.ZodType ? KINDS.get(element) : undefined;
    return { shape: 'list', kind: each, below: undefined, suffix: '[]' };
  }
  if (schema instanceof z.ZodUnion) {
    const options: readonly unknown[] = schema.options;
    const below = options.find((option) => option instanceof z.ZodObject);
    const word = options.find((option) => option instanceof z.ZodCodec);
    return { shape: 'choice', kind: word === undefined ? undefined : KINDS.get(word), below, suffix: '' };
  }
  throw new TypeError(`the table has a schema that fields.ts does not know: ${schema.def.type}`);
}

function unwrap(schema: z.ZodType): z.ZodType {
  if (!(schema instanceof z.ZodOptional || schema instanceof z.ZodPrefault)) return schema;
  const inner: unknown = schema.unwrap();
  return inner instanceof z.ZodType ? inner : schema;
}
