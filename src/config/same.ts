/** Whether two parts of configurations say the same, secrets included: a reload leaves alone what did not change. */
import { Secret } from '../core/secret.ts';

/** Compares two sources, listeners or sections through and through. Secrets are compared by value and shown to nobody. */
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
