/**
 * Deep equality of plain data, for example of two configurations. `isDeepStrictEqual` of `node:util` does not work
 * here, because it treats any two Secrets as equal.
 */
import { Secret } from './secret.ts';

/**
 * Compares plain objects, arrays, Maps, scalars and Secrets by value. Any other object, for example a Set, equals
 * only itself. A key with the value `undefined` differs from a missing key.
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
