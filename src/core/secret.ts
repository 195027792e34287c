import { inspect } from 'node:util';

export const MASK = '[secret]';

export class Secret {
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  /** Only where the value is needed: to send, parse, hash or compare it. */
  reveal(): string {
    return this.#value;
  }

  toString(): string {
    return MASK;
  }

  toJSON(): string {
    return MASK;
  }

  [inspect.custom](): string {
    return MASK;
  }
}

export function secretsIn(value: unknown): Secret[] {
  if (value instanceof Secret) return [value];
  if (typeof value !== 'object' || value === null) return [];
  return Object.values(value).flatMap(secretsIn);
}

/** Shorter secrets are not masked, because they occur by chance in many texts. */
const MIN_MASKED_LENGTH = 4;

export function maskSecrets(text: string, secrets: readonly Secret[]): string {
  const values = secrets
    .map((secret) => secret.reveal())
    .filter((value) => value.length >= MIN_MASKED_LENGTH);
  if (values.length === 0) return text;
  // Masks all secrets in one pass, the longest first. If a secret starts with a shorter secret, masking the shorter one
  // first would leave the rest visible.
  const forms = values.flatMap((value) => [value, encodeURIComponent(value)]);
  const longestFirst = forms.sort((a, b) => b.length - a.length).map(escapeRegExp);
  return text.replace(new RegExp(longestFirst.join('|'), 'gi'), MASK);
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}

/** The user name and the password have 1 to 255 bytes each (RFC 1929). */
export interface Login {
  readonly username: string;
  readonly password: Secret;
}

/**
 * Compares plain objects, arrays, Maps, scalars and Secrets by value (`isDeepStrictEqual` treats any two Secrets as equal).
 * Any other object, for example a Set, equals only itself. A key with the value `undefined` differs from a missing key.
 */
export function isSame(one: unknown, other: unknown): boolean {
  if (one instanceof Secret && other instanceof Secret) return one.reveal() === other.reveal();
  if (one instanceof Map && other instanceof Map) {
    const isSameEntry = ([key, value]: [unknown, unknown]) => other.has(key) && isSame(other.get(key), value);
    return one.size === other.size && [...one].every(isSameEntry);
  }
  if (!isPlain(one) || !isPlain(other)) return Object.is(one, other);
  const keys = Object.keys(one);
  return (
    Array.isArray(one) === Array.isArray(other) &&
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && isSame(one[key], other[key]))
  );
}

function isPlain(value: unknown): value is Readonly<Record<string, unknown>> {
  if (typeof value !== 'object' || value === null) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null || Array.isArray(value);
}
