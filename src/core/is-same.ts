/** Deep equality of plain data, for example of two configurations. `node:util` cannot do it: it calls any two Secrets equal. */
import { Secret } from './secret.ts';

/** Compares maps, lists and scalars by value, and Secrets by what they hold. A key with the value `undefined` counts as a key. */
export function isSame(one: unknown, other: unknown): boolean {
  if (one instanceof Secret || other instanceof Secret) {
    return one instanceof Secret && other instanceof Secret && one.reveal() === other.reveal();
  }
  if (!isObject(one) || !isObject(other)) return Object.is(one, other);
  const keys = Object.keys(one);
  return (
    Array.isArray(one) === Array.isArray(other) &&
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && isSame(one[key], other[key]))
  );
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}
