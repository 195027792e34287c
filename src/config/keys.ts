/** Functions with which schema.ts declares keys (required, optional or with a default) and sections. */
import { z } from 'zod';
import { type Duration, isDuration, oneOf } from './scalars.ts';

interface KeyNote {
  /** One line that describes the key. The docs, the example and editors show it. */
  readonly about: string;
  /** For a key without a default: what applies if the key is missing. */
  readonly otherwise?: string;
}

export const KEY_NOTES = z.registry<KeyNote>();

export function required<S extends z.ZodType>(schema: S, about: string): S {
  KEY_NOTES.add(schema, { about });
  return schema;
}

/** @param otherwise - what applies if the key is missing. */
export function optional<S extends z.ZodType>(
  schema: S,
  about: string,
  otherwise?: string,
): z.ZodOptional<S> {
  const key = schema.optional();
  KEY_NOTES.add(key, otherwise === undefined ? { about } : { about, otherwise });
  return key;
}

/** @param fallback - the default, as written in YAML. */
export function given<S extends z.ZodType>(schema: S, fallback: z.input<S>, about: string): z.ZodPrefault<S> {
  const key = z.prefault(schema, fallback);
  KEY_NOTES.add(key, { about });
  return key;
}

type Shape = Readonly<Record<string, z.ZodType>>;
type DurationKey = Duration | z.ZodOptional<Duration> | z.ZodPrefault<Duration>;
type Frozen<T> = T extends readonly (infer Item)[] ? readonly Item[] : T;

/**
 * The type of a section in the Config. A key for a duration gets a name with the unit: `timeout: 10s` becomes
 * `timeoutMs: 10_000`.
 */
type SectionOf<S extends Shape> = {
  readonly [Key in keyof S & string as S[Key] extends DurationKey ? `${Key}Ms` : Key]: Frozen<
    z.output<S[Key]>
  >;
};
type Section<S extends Shape> = z.ZodCodec<z.ZodObject<S, z.core.$strict>, z.ZodCustom<SectionOf<S>>>;

type SectionOrOff<S extends Shape> = z.ZodCodec<
  z.ZodUnion<[typeof OFF, Section<S>]>,
  z.ZodCustom<SectionOf<S> | undefined>
>;

const OFF = oneOf(['off']);

/** The schema of a map that allows only the keys of `shape`. */
export function section<S extends Shape>(shape: S): Section<S> {
  const durations = Object.keys(shape).filter((key) => isDuration(unwrapKey(shape[key])));
  const withUnit = new Map(durations.map((key) => [key, `${key}Ms`]));
  const withoutUnit = new Map(durations.map((key) => [`${key}Ms`, key]));
  return z.codec(z.strictObject(shape), z.custom<SectionOf<S>>(), {
    // `renameKeys` renames the keys as the type SectionOf does, so the cast is safe
    decode: (value) => renameKeys(value, withUnit) as SectionOf<S>,
    encode: (value) => renameKeys(value, withoutUnit) as z.output<z.ZodObject<S, z.core.$strict>>,
  });
}

/** The schema of a section that the word `off` disables. A disabled section is `undefined` in the Config. */
export function sectionOrOff<S extends Shape>(schema: Section<S>): SectionOrOff<S> {
  return z.codec(z.union([OFF, schema]), z.custom<SectionOf<S> | undefined>(), {
    // any value other than `off` is a section, so the cast is safe
    decode: (value) => (value === 'off' ? undefined : (value as SectionOf<S>)),
    encode: (value) => (value ?? 'off') as z.output<SectionOrOff<S>['def']['in']>,
  });
}

/** Returns the schema of a key without the wrapper that `optional` or `given` adds. */
export function unwrapKey(schema: unknown): unknown {
  return schema instanceof z.ZodOptional || schema instanceof z.ZodPrefault ? schema.unwrap() : schema;
}

function renameKeys(value: object, names: ReadonlyMap<string, string>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [names.get(key) ?? key, inner]));
}
