/** The pages that exist in English and in simplified Chinese, and what a translation keeps of its original. */
import { readdirSync, readFileSync } from 'node:fs';
import { expect } from 'vitest';

export interface DocPage {
  readonly file: string;
  readonly text: string;
  /** Whether the page is a translation, in which words differ from those in the code. */
  readonly translated: boolean;
}

/** Returns the English page and its translation, for tests that hold for both. */
export function inBothLanguages(page: string): readonly DocPage[] {
  return [page, translationOf(page)].map((file, at) => ({
    file,
    text: readFileSync(file, 'utf8'),
    translated: at > 0,
  }));
}

/** English pages that have a translation. */
export const TRANSLATED_PAGES: readonly string[] = [
  'README.md',
  ...readdirSync('docs/zh-CN', { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];

export function translationOf(page: string): string {
  return page === 'README.md' ? 'README.zh-CN.md' : page.replace('docs/', 'docs/zh-CN/');
}

/**
 * Asserts the rows of a table. Rows of an English page must be equal; rows of a translation must have the same ids.
 * @param idCells - how many cells at the start of a row are the same in both languages.
 */
export function expectRows(
  page: DocPage,
  {
    actual,
    expected,
    idCells = 1,
  }: { actual: readonly string[]; expected: readonly string[]; idCells?: number },
): void {
  expect(expected.length, 'no rows to compare').toBeGreaterThan(0);
  if (!page.translated) {
    expect(actual).toEqual(expected);
    return;
  }
  const idOf = (row: string) => row.split(' | ').slice(0, idCells).join(' | ');
  expect(actual.map(idOf)).toEqual(expected.map(idOf));
}
