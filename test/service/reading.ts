import { Secret } from '../../src/core/secret.ts';
import type { DecodedDraw, DecodeOptions } from '../../src/service/decode.ts';
import { decodeDraw } from '../../src/service/decode.ts';

/** How the tests read an answer unless they say otherwise: short-classic, JSON, every address welcome. */
export function reading(more: Partial<DecodeOptions> = {}): DecodeOptions {
  return {
    host: 'service.test',
    secrets: [new Secret('0123456789abcdef')],
    product: 'short-classic',
    format: 'json',
    refuses: () => undefined,
    ...more,
  };
}

/** Decodes a text, or a value as the JSON that it prints as. */
export function decoded(body: unknown, more: Partial<DecodeOptions> = {}): DecodedDraw {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return decodeDraw(Buffer.from(text), reading(more));
}
