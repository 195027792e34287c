/** A password, key or token. Every way of printing it gives `[secret]`. */
import { inspect } from 'node:util';

export const MASK = '[secret]';

export class Secret {
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  /** The secret text. Call it only where the value is written to the wire. */
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

/** All secrets in plain data. */
export function secretsIn(value: unknown): Secret[] {
  if (value instanceof Secret) return [value];
  if (typeof value !== 'object' || value === null) return [];
  return Object.values(value).flatMap(secretsIn);
}

/** Shorter secrets are not masked, because that would mask too much of a text. */
const MIN_MASKED_LENGTH = 4;

/** Masks every occurrence of the secrets, plain and URL-encoded. Secrets with less than 4 characters are not masked. */
export function maskSecrets(text: string, secrets: readonly Secret[]): string {
  const values = secrets
    .map((secret) => secret.reveal())
    .filter((value) => value.length >= MIN_MASKED_LENGTH);
  if (values.length === 0) return text;
  // In one pass, longest first: if one secret starts with another, masking the shorter one would leave the rest visible.
  const forms = values.flatMap((value) => [value, encodeURIComponent(value)]);
  const longestFirst = forms.sort((a, b) => b.length - a.length).map(escapeRegExp);
  return text.replace(new RegExp(longestFirst.join('|'), 'g'), MASK);
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}
