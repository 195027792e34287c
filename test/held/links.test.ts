/** docs/links.md: its examples are valid, its entries are read as it says, and its codes are those in the code. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parseConfig } from '../../src/config/load.ts';
import { CODES } from '../../src/service/codes.ts';
import { decode } from '../service/link/decode.ts';

const page = readFileSync('docs/links.md', 'utf8');
const env = { OTHER_KEY: 'abcdef123456' };

test('docs/links.md: the configurations are valid', () => {
  const examples = [...page.matchAll(/```yaml\n([\s\S]*?)```/g)].map(([, yaml = '']) => yaml);
  expect(examples.length).toBeGreaterThan(1);
  for (const yaml of examples) {
    const { sources, warnings } = parseConfig(yaml, 'noria.yaml', { env });
    expect(sources.map(({ product }) => product)).toEqual(['link']);
    expect(warnings).toEqual([]);
  }
});

test('docs/links.md: every entry in the table of texts is read', () => {
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

test('docs/links.md: it lists every code of a link', () => {
  const table = page.slice(page.indexOf('\n## Codes'));
  for (const code of Object.keys(CODES.link)) {
    expect(table).toMatch(new RegExp(`\\| .*\\b${code}\\b.* \\|`));
  }
});
