/** docs/links.md and its translation: their examples are valid, the entries are read as they say, and the codes are those in the code. */
import { expect, test } from 'vitest';
import { parseConfig } from '../../src/config/load.ts';
import { CODES } from '../../src/service/codes.ts';
import { decode } from '../service/link/decode.ts';
import { inBothLanguages } from '../support/translations.ts';

const PAGES = inBothLanguages('docs/links.md');
const env = { OTHER_KEY: 'abcdef123456' };

test.each(PAGES)('$file: the configurations are valid', ({ text: page }) => {
  const examples = [...page.matchAll(/```yaml\n([\s\S]*?)```/g)].map(([, yaml = '']) => yaml);
  expect(examples.length).toBeGreaterThan(1);
  for (const yaml of examples) {
    const { sources, warnings } = parseConfig(yaml, 'noria.yaml', { env });
    expect(sources.map(({ product }) => product)).toEqual(['link']);
    expect(warnings).toEqual([]);
  }
});

test.each(PAGES)('$file: every entry in the table of texts is read', ({ text: page }) => {
  const rows = page.split('\n').filter((line) => /^\| `[^`]*192\.0\.2\.1/.test(line));
  expect(rows.length).toBeGreaterThan(5);
  for (const row of rows) {
    const cell = row.split(' | ')[0] ?? '';
    for (const [, text = ''] of cell.matchAll(/`([^`]+)`/g)) {
      expect(decode(text, {}, { wallAt: Date.UTC(2026, 10, 22, 2) }).entries, text).toMatchObject([
        { host: '192.0.2.1', port: 8000 },
      ]);
    }
  }
});

test.each(PAGES)('$file: it lists every code of a link', ({ text: page }) => {
  const table = page.slice(page.lastIndexOf('\n## '));
  for (const code of Object.keys(CODES.link)) {
    expect(table).toMatch(new RegExp(`\\| .*\\b${code}\\b.* \\|`));
  }
});
