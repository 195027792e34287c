/** How schema.ts writes a key down: a kind read from text, required or not, with a default, and what is said of it. */
import { z } from 'zod';
import type { Kind, KindNote } from './kinds.ts';

/** What is said of a key, beside its kind. */
export interface KeyNote {
  readonly about: string;
  /** In place of a default: what holds where the key is left out. */
  readonly otherwise?: string;
}

/** The note of every key, by the schema that stands at it. */
export const KEY_NOTES = z.registry<KeyNote>();
/** The kind of every scalar, by its codec. */
export const KINDS = z.registry<KindNote>();

/** A scalar: text in the file, what the kind makes of it inside. */
export function leaf<T>(kind: Kind<T>): z.ZodCodec<z.ZodString, z.ZodCustom<T, T>> {
  const codec = z.codec(z.string(), z.custom<T>(), {
    decode(given, context) {
      const reading = kind.read(given);
      if ('value' in reading) return reading.value;
      context.issues.push({ code: 'custom', message: reading.wrong, input: given });
      return z.NEVER;
    },
    encode: (value) => kind.write(value),
  });
  KINDS.add(codec, kind);
  return codec;
}

/** A key that has to be there. */
export function required<S extends z.ZodType>(schema: S, about: string): S {
  KEY_NOTES.add(schema, { about });
  return schema;
}

/** A key that may be left out; `otherwise` says what holds then. */
export function optional<S extends z.ZodType>(
  schema: S,
  about: string,
  otherwise?: string,
): z.ZodOptional<S> {
  const key = schema.optional();
  KEY_NOTES.add(key, otherwise === undefined ? { about } : { about, otherwise });
  return key;
}

/** A key that has a default, written as it would stand in YAML. */
export function given<S extends z.ZodType>(schema: S, fallback: z.input<S>, about: string): z.ZodPrefault<S> {
  const key = z.prefault(schema, fallback);
  KEY_NOTES.add(key, { about });
  return key;
}
