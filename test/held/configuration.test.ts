/** docs/configuration.md, its translation and config.example.yaml have every key of the schema, with its default, range and meaning. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { isMap, isScalar, isSeq, parseDocument } from 'yaml';
import { FIELDS, type Field } from '../../src/config/fields.ts';
import { parseConfig } from '../../src/config/load.ts';
import { formatDuration } from '../../src/core/duration.ts';
import { OPERATIONS, PRODUCTS } from '../../src/service/operations.ts';
import { expectRows, inBothLanguages } from '../support/translations.ts';

const PAGES = inBothLanguages('docs/configuration.md');
const example = readFileSync('config.example.yaml', 'utf8');
const env = { CITY_PASSWORD: 'hunter2hunter2' };

/** A default as written in the docs and the example. */
function written(fallback: unknown): string {
  return Array.isArray(fallback) ? `[${fallback.join(', ')}]` : String(fallback);
}

/** The row of a key in the docs. */
function rowOf(field: Field): string {
  const { path, required, fallback, otherwise, type, shape, about } = field;
  const isPlain = fallback !== undefined && (typeof fallback === 'string' || Array.isArray(fallback));
  const byDefault = required ? 'required' : isPlain ? `\`${written(fallback)}\`` : (otherwise ?? '–');
  const each = shape === 'list' ? `a list, each entry ${type?.expected}` : (type?.expected ?? '–');
  const value = { map: 'a map', maps: 'a list of maps', names: 'a map', choice: `${each}, or a map` };
  return `| \`${path}\` | ${byDefault} | ${shape === 'scalar' || shape === 'list' ? each : value[shape]} | ${about} |`;
}

test.each(PAGES)('$file: every key has a row with default, value and meaning', (page) => {
  const { text } = page;
  const lines = text.slice(text.indexOf('\n## `service`'), text.lastIndexOf('\n## ')).split('\n');
  const firstCells = lines.map((line) => /^\| `([^`]+)` \|/.exec(line)?.[1] ?? '');
  const products: readonly string[] = PRODUCTS;
  const rows = lines.filter(
    (_, index) => firstCells[index] !== '' && !products.includes(firstCells[index] ?? ''),
  );
  const inTables = FIELDS.filter(({ path, shape }) => path.includes('.') || shape === 'scalar');
  expect(inTables.length, 'found no keys to compare').toBeGreaterThan(50);
  expectRows(page, { actual: rows, expected: inTables.map(rowOf) });
});

test.each(PAGES)('$file: every section has a heading and its meaning', ({ text: page, translated }) => {
  const sections = FIELDS.filter(({ path, shape }) => !path.includes('.') && shape !== 'scalar');
  expect(sections.length).toBeGreaterThan(10);
  for (const { path, about } of sections) {
    const text = page.split(`\n## \`${path}\`\n`)[1];
    expect(text, path).toBeDefined();
    if (!translated) expect(text?.toLowerCase(), path).toContain(about.toLowerCase());
  }
});

test.each(PAGES)('$file: the example loads, and its typos produce the errors shown', ({ text: page }) => {
  const [, small = ''] = /```yaml\n([\s\S]*?)```/.exec(page) ?? [];
  const [, shown = ''] = /```text\n([\s\S]*?)\n```/.exec(page) ?? [];
  expect(parseConfig(small, 'noria.yaml', { env }).sources).toHaveLength(1);
  const typos = `${small.replace('short-classic', 'short-clasic')}pool:\n  szie: 30\n`;
  expect(() => parseConfig(typos, 'noria.yaml', { env })).toThrow(
    expect.objectContaining({ message: shown }),
  );
});

test.each(PAGES)('$file: every product has a row with path, instance, protocol and pace', (page) => {
  const speaks = { 'by-pro': 'by `pro`: 1 http, 2 socks5', 'by-entry': "by each entry's `protocol`" };
  const expected = PRODUCTS.map((product) => {
    const { path, identity, protocol: how, minIntervalMs, defaultIntervalMs } = OPERATIONS[product];
    const protocol = how === 'by-pro' || how === 'by-entry' ? speaks[how] : how;
    const row = [
      `\`${product}\``,
      `\`${path}\``,
      `\`${identity.name}\``,
      protocol,
      `${formatDuration(defaultIntervalMs)}, at least ${formatDuration(minIntervalMs)}`,
    ];
    return `| ${row.join(' | ')} |`;
  });
  const actual = page.text.split('\n').filter((line) => /^\| `[\w-]+` \| `\//.test(line));
  expectRows(page, { actual, expected, idCells: 3 });
});

test('config.example.yaml: loads, with the values of a minimal file', () => {
  const shown = parseConfig(example, 'noria.yaml', { env });
  const short = parseConfig(
    `service: { baseUrl: https://extract.example.com }
sources: [{ name: city, product: short-classic, instance: "202611210001", password: ${env.CITY_PASSWORD} }]`,
    'noria.yaml',
    { env },
  );
  expect(JSON.parse(JSON.stringify({ ...shown, warnings: [] }))).toEqual(
    JSON.parse(JSON.stringify({ ...short, warnings: [] })),
  );
});

test('config.example.yaml: has every key of the schema, and no other, below its line of meaning', () => {
  const keys = keysOf(example);
  expect([...new Set(keys.map(({ path }) => path))]).toEqual(FIELDS.map(({ path }) => path));
  const lines = example.split('\n');
  for (const { path, about } of FIELDS) {
    const first = keys.find((key) => key.path === path);
    expect(lines[(first?.line ?? 0) - 2]?.trim(), path).toBe(`# ${about}`);
  }
});

test('config.example.yaml: every key with a default shows it', () => {
  const keys = keysOf(example);
  const withDefault = FIELDS.filter(({ fallback }) => typeof fallback === 'string');
  expect(withDefault.length).toBeGreaterThan(30);
  for (const { path, fallback } of withDefault) {
    expect(keys.find((key) => key.path === path)?.text, path).toBe(written(fallback));
  }
});

interface ExampleKey {
  readonly path: string;
  readonly line: number;
  readonly text: string | undefined;
}

/** Every key of the example, including those commented out as `#key`, whose `#` is removed. */
function keysOf(text: string): ExampleKey[] {
  const bared = text.replace(/^( *)#(?=(?:- )?\w+:)/gm, '$1');
  const document = parseDocument(bared, { schema: 'failsafe', uniqueKeys: false });
  expect(document.errors).toEqual([]);
  return collect(document.contents, '');

  function collect(node: unknown, path: string): ExampleKey[] {
    if (isSeq(node)) return node.items.flatMap((item) => (isMap(item) ? collect(item, `${path}[]`) : []));
    if (!isMap(node)) return [];
    return node.items.flatMap(({ key, value }) => {
      if (!isScalar(key)) return [];
      const full = path === '' ? String(key.value) : `${path}.${key.value}`;
      const line = bared.slice(0, key.range?.[0]).split('\n').length;
      const own = { path: full, line, text: isScalar(value) ? String(value.value) : undefined };
      return /\.(?:params|headers)$/.test(full) ? [own] : [own, ...collect(value, full)];
    });
  }
}
