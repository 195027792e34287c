/**
 * A value that must not be shown: passwords, keys, tokens.
 *
 * Every way of printing it gives `[secret]`; `reveal()` is called only where it is written to the wire.
 */
import { inspect } from 'node:util';

export const MASK = '[secret]';

export class Secret {
  readonly #value: string;

  constructor(value: string) {
    this.#value = value;
  }

  /** The value itself, for the wire. */
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

/** Masking a shorter one would garble every text that is masked. */
const MIN_MASKED_LENGTH = 4;

/** `text` with every occurrence of the given secrets masked, plain and URL-encoded. Values of less than 4 characters are left. */
export function maskSecrets(text: string, secrets: readonly Secret[]): string {
  const values = secrets
    .map((secret) => secret.reveal())
    .filter((value) => value.length >= MIN_MASKED_LENGTH);
  if (values.length === 0) return text;
  // In one pass and the longest first: of two secrets that begin alike, the longer one's end must not be left standing.
  const forms = values.flatMap((value) => [value, encodeURIComponent(value)]);
  const longestFirst = forms.sort((a, b) => b.length - a.length).map(escapeRegExp);
  return text.replace(new RegExp(longestFirst.join('|'), 'g'), MASK);
}

function escapeRegExp(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&');
}
