/**
 * The types of scalar values. Each type reads, checks, describes and prints its values.
 *
 * Each type reads the text of a scalar, never a number of YAML (see document.ts). So an instance id of 18 digits keeps
 * all its digits, and a value from the environment is read like a value from the file. secret-scalars.ts and
 * network-scalars.ts have more types.
 */
import { z } from 'zod';
import { DAY_MS, formatDuration, parseDuration } from '../core/duration.ts';
import { nearest } from '../core/nearest.ts';
import { isZone } from '../service/link/lifetime.ts';

/** The keywords of JSON Schema that scalars use. */
export interface ScalarJsonSchema {
  readonly type?: string | readonly string[];
  readonly enum?: readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly pattern?: string;
  readonly anyOf?: readonly ScalarJsonSchema[];
}

/**
 * The result of reading a scalar. `wrong`: why the text is invalid, such as `is not a duration`; the caller puts the
 * value or the key before it. `wrong` never quotes the value, which may be a secret.
 */
export type Reading<T> = { readonly value: T } | { readonly wrong: string };

export interface ScalarType<T> {
  /** Describes a valid value. Messages and the docs show it after "expected". */
  readonly expected: string;
  /** A valid value, as written in YAML. Absent if `expected` is clear without an example. */
  readonly example?: string;
  readonly json: ScalarJsonSchema;
  /**
   * When messages may quote the value. `valid`: only if the value is valid. An invalid value may be a password that the
   * operator put at the wrong key.
   */
  readonly quoted: 'always' | 'valid' | 'never';
  read(text: string): Reading<T>;
  write(value: T): string;
}

/** The zod schema of a scalar, which is a text in the file and a `T` in the Config. */
export type Scalar<T> = z.ZodCodec<z.ZodString, z.ZodCustom<T, T>> & { readonly scalarType: ScalarType<T> };
export type Duration = Scalar<number> & { readonly unit: 'ms' };

const DURATION_PATTERN = '^(0|[0-9]+(ms|s|m|h))$';
const MAX_TEXT_BYTES = 255;

export function scalar<T>(scalarType: ScalarType<T>): Scalar<T> {
  const codec = z.codec(z.string(), z.custom<T>(), {
    decode(text, context) {
      const reading = scalarType.read(text);
      if ('value' in reading) return reading.value;
      context.issues.push({ code: 'custom', message: reading.wrong, input: text });
      return z.NEVER;
    },
    encode: (value) => scalarType.write(value),
  });
  return Object.assign(codec, { scalarType });
}

export function isScalar(schema: unknown): schema is Scalar<unknown> {
  return schema instanceof z.ZodCodec && 'scalarType' in schema;
}

export function isDuration(schema: unknown): schema is Duration {
  return isScalar(schema) && 'unit' in schema;
}

export function whole(from: number, to: number): Scalar<number> {
  return scalar({
    expected: `a whole number from ${from} to ${to}`,
    json: { type: 'integer', minimum: from, maximum: to },
    quoted: 'always',
    read(text) {
      if (!/^[+-]?\d{1,15}$/.test(text)) return { wrong: 'is not a whole number' };
      return inRange(Number(text), { from, to }, String);
    },
    write: String,
  });
}

export function duration(fromMs: number, toMs = DAY_MS): Duration {
  const type: ScalarType<number> = {
    expected: `a duration from ${formatDuration(fromMs)} to ${formatDuration(toMs)}`,
    example: '10s',
    json: { type: 'string', pattern: DURATION_PATTERN },
    quoted: 'always',
    read(text) {
      const ms = parseDuration(text);
      if (ms !== undefined) return inRange(ms, { from: fromMs, to: toMs }, formatDuration);
      return { wrong: /^\d+$/.test(text) ? 'has no unit' : 'is not a duration' };
    },
    write: formatDuration,
  };
  return Object.assign(scalar(type), { unit: 'ms' } as const);
}

function inRange(
  value: number,
  { from, to }: { readonly from: number; readonly to: number },
  write: (value: number) => string,
): Reading<number> {
  if (value < from) return { wrong: `is less than ${write(from)}` };
  if (value > to) return { wrong: `is more than ${write(to)}` };
  return { value };
}

export function flag(): Scalar<boolean> {
  return scalar({
    expected: 'true or false',
    json: { type: 'boolean' },
    quoted: 'always',
    read: (text) =>
      text === 'true' || text === 'false' ? { value: text === 'true' } : { wrong: 'is not a boolean' },
    write: String,
  });
}

export function oneOf<const Word extends string>(words: readonly Word[]): Scalar<Word> {
  return scalar({
    expected: words.length === 1 ? `${words[0]}` : `one of ${words.join(', ')}`,
    json: { enum: words },
    quoted: 'always',
    read(text) {
      const value = words.find((word) => word === text);
      if (value !== undefined) return { value };
      const meant = nearest(text, words);
      return { wrong: `is not a known value${meant === undefined ? '' : ` (did you mean ${meant}?)`}` };
    },
    write: (word) => word,
  });
}

/** Returns a type that accepts one of `words`, or any value of the given type: for example `auto` or a duration. */
export function wordOr<const Word extends string, T>(
  words: readonly Word[],
  { scalarType: type }: Scalar<T>,
): Scalar<Word | T> {
  const isWord = (value: Word | T): value is Word => words.some((word) => word === value);
  return scalar<Word | T>({
    ...type,
    expected: `${words.join(', ')} or ${type.expected}`,
    json: { anyOf: [{ enum: words }, type.json] },
    read(text) {
      const word = words.find((each) => each === text);
      return word === undefined ? type.read(text) : { value: word };
    },
    write: (value) => (isWord(value) ? value : type.write(value)),
  });
}

export interface TextRules {
  readonly expected: string;
  readonly example: string;
  /** The whole text must match this pattern. */
  readonly pattern?: RegExp;
  /**
   * What is wrong with a text that does not match the pattern, such as `is not a host`. The caller puts the value or
   * the key before it.
   */
  readonly wrong?: string;
  readonly maxBytes?: number;
  /** If true, messages quote only valid values. */
  readonly private?: boolean;
  /** If true, line breaks and tabs are allowed. */
  readonly controls?: boolean;
}

/** A text of at least one character, without control characters. */
export function text(rules: TextRules): Scalar<string> {
  return scalar({
    expected: rules.expected,
    example: rules.example,
    // the JSON Schema also accepts integers, because YAML editors read unquoted digits as a number
    json: {
      type: ['string', 'integer'],
      ...(rules.pattern === undefined ? {} : { pattern: rules.pattern.source }),
    },
    quoted: rules.private === true ? 'valid' : 'always',
    read: (given) => {
      const wrong = wrongText(given, rules);
      return wrong === undefined ? { value: given } : { wrong };
    },
    write: (value) => value,
  });
}

function wrongText(given: string, rules: TextRules): string | undefined {
  const { pattern, wrong, controls, maxBytes = MAX_TEXT_BYTES } = rules;
  if (given === '') return 'is empty';
  if (controls !== true && /\p{Cc}/u.test(given)) return 'contains a line break or another control character';
  if (Buffer.byteLength(given) > maxBytes) return `is longer than ${maxBytes} bytes`;
  if (pattern === undefined || pattern.test(given)) return undefined;
  return wrong ?? 'contains a character that is not allowed';
}

export function zone(): Scalar<string> {
  return scalar({
    expected: 'an offset from UTC such as +08:00, or Z',
    example: '"+08:00"',
    json: { type: 'string' },
    quoted: 'always',
    read: (given) => (isZone(given) ? { value: given } : { wrong: 'is not a zone' }),
    write: (value) => value,
  });
}
