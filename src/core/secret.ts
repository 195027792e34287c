/** A password, key or token. `toString`, `toJSON` and `util.inspect` return `[secret]`. */
import { inspect } from 'node:util';

export const MASK = '[secret]';

export class Secret {
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  /** Returns the value of the secret. Call it only where the value is needed: to send, parse, hash or compare it. */
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

/** At any depth. */
export function secretsIn(value: unknown): Secret[] {
  if (value instanceof Secret) return [value];
  if (typeof value !== 'object' || value === null) return [];
  return Object.values(value).flatMap(secretsIn);
}

/** Shorter secrets are not masked, because they occur by chance in many texts. */
const MIN_MASKED_LENGTH = 4;

/** Masks every occurrence of the secrets, plain or URL-encoded, in upper and lower case. */
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
