/** Functions with which schema.ts declares keys (required, optional or with a default) and sections. */
import { z } from 'zod';
import { type Duration, isDuration, isScalar, oneOf } from './scalars.ts';

/** What the docs, the example and editors say about a key, and for a key without a default: what applies without it. */
export const KEY_NOTES = z.registry<{ readonly about: string; readonly otherwise?: string }>();

export function required<S extends z.ZodType>(schema: S, about: string): S {
  KEY_NOTES.add(schema, { about });
  return schema;
}

export function optional<S extends z.ZodType>(
  schema: S,
  about: string,
  otherwise?: string,
): z.ZodOptional<S> {
  const key = schema.optional();
  KEY_NOTES.add(key, otherwise === undefined ? { about } : { about, otherwise });
  return key;
}

export function given<S extends z.ZodType>(schema: S, fallback: z.input<S>, about: string): z.ZodPrefault<S> {
  const key = z.prefault(schema, fallback);
  KEY_NOTES.add(key, { about });
  return key;
}

type Shape = Readonly<Record<string, z.ZodType>>;
type DurationKey = Duration | z.ZodOptional<Duration> | z.ZodPrefault<Duration>;
type Frozen<T> = T extends readonly (infer Item)[] ? readonly Item[] : T;

/** A key for a duration gets a name with the unit: `timeout: 10s` becomes `timeoutMs: 10_000`. */
type SectionOf<S extends Shape> = {
  readonly [Key in keyof S & string as S[Key] extends DurationKey ? `${Key}Ms` : Key]: Frozen<
    z.output<S[Key]>
  >;
};
const OFF = oneOf(['off']);

export function section<S extends Shape>(shape: S) {
  const durations = new Set(Object.keys(shape).filter((key) => isDuration(unwrapKey(shape[key]))));
  return z.strictObject(shape).transform((value) => {
    const named = Object.entries(value).map(([key, inner]) => [durations.has(key) ? `${key}Ms` : key, inner]);
    return Object.fromEntries(named) as SectionOf<S>; // the keys are renamed as the type says, so the cast is safe
  });
}

/** A section whose keys all have a default or are optional. */
export function group<S extends Shape>(about: string, shape: S) {
  const schema = section(shape);
  return given(schema, {} as z.input<typeof schema>, about);
}

export function optionalGroup<S extends Shape>(about: string, otherwise: string | undefined, shape: S) {
  return optional(section(shape), about, otherwise);
}

/** A section that the word `off` disables; it is then `undefined` in the Config. */
export function sectionOrOff<S extends Shape>(shape: S) {
  const schema = section(shape);
  return z
    .union([OFF, schema])
    .transform((value) => (value === 'off' ? undefined : (value as z.output<typeof schema>)));
}

function unwrapKey(schema: unknown): unknown {
  return isOptionalKey(schema) ? schema.unwrap() : schema;
}

export function isOptionalKey(schema: unknown): schema is z.ZodOptional | z.ZodPrefault {
  return schema instanceof z.ZodOptional || schema instanceof z.ZodPrefault;
}

/** The schema of what the file has at a key: a scalar, a map, a list, or a union of a text and a map or list. */
export function inputOf(schema: unknown): unknown {
  const plain = unwrapKey(schema);
  return plain instanceof z.ZodPipe && !isScalar(plain) ? plain.def.in : plain;
}
