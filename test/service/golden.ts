import { readFileSync } from 'node:fs';
import type { DrawAnswer } from '../../src/service/answer.ts';
import type { ListRecord } from '../../src/service/decode.ts';
import type { Format, ListName, Product } from '../../src/service/operations.ts';

interface Line {
  readonly line: number;
  readonly says: string;
}

/** A hand-written answer, the lines of the specification that it follows, and the expected result. */
export interface GoldenDraw {
  readonly file: string;
  readonly operation: number;
  readonly product: Product;
  readonly format: Format;
  readonly textLayout?: string;
  readonly specification: readonly Line[];
  readonly expected: Pick<DrawAnswer, 'code' | 'entries' | 'quota'>;
}

export interface GoldenList {
  readonly file: string;
  readonly operation: number;
  readonly list: ListName;
  readonly specification: readonly Line[];
  readonly expected: { readonly code: string; readonly records: readonly ListRecord[] };
}

const FOLDER = new URL('../fixtures/service/golden/', import.meta.url);

export const GOLDEN: { readonly draws: readonly GoldenDraw[]; readonly lists: readonly GoldenList[] } =
  JSON.parse(readFileSync(new URL('index.json', FOLDER), 'utf8'));

/** The bytes of a hand-written answer. */
export function goldenBody(file: string): Buffer {
  return readFileSync(new URL(file, FOLDER));
}
