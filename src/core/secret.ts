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

/** `text` with every occurrence of the given secrets masked. Values shorter than 4 characters are left: masking them would garble all. */
export function maskSecrets(text: string, secrets: readonly Secret[]): string {
  let masked = text;
  for (const secret of secrets) {
    const value = secret.reveal();
    if (value.length < 4) continue;
    for (const form of new Set([value, encodeURIComponent(value)])) masked = masked.replaceAll(form, MASK);
  }
  return masked;
}
