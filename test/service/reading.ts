import { Secret } from '../../src/core/secret.ts';
import { type DecodedDraw, type DecodeOptions, decodeDraw } from '../../src/service/decode.ts';

/** The default options: short-classic, JSON, no refused address. */
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

/** Decodes a text, or a value as JSON. */
export function decoded(body: unknown, more: Partial<DecodeOptions> = {}): DecodedDraw {
  const text = typeof body === 'string' ? body : JSON.stringify(body);
  return decodeDraw(Buffer.from(text), reading(more));
}
