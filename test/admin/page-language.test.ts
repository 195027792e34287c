/** Both languages of the page have the same texts, and no text is outside the tables. */
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';

const FOLDER = new URL('../../src/admin/page/', import.meta.url);
const load = (name: string) => import(new URL(name, FOLDER).href);
const { EN } = await load('texts-en.js');
const { ZH } = await load('texts-zh.js');
const { chooseLanguage } = await load('language.js');
const html = readFileSync(new URL('index.html', FOLDER), 'utf8');

/** The keys of a table, with the kind of each value. */
function shapeOf(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return typeof value;
  if (Array.isArray(value)) return value.map(shapeOf);
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, shapeOf(inner)]));
}

test('page: both languages have the same texts', () => {
  expect(Object.keys(EN).length).toBeGreaterThan(20);
  expect(shapeOf(ZH)).toEqual(shapeOf(EN));
});

test.each([
  [null, ['zh-CN', 'en'], 'zh-CN'],
  [null, ['zh-Hans-SG'], 'zh-CN'],
  [null, ['de', 'zh', 'en'], 'zh-CN'],
  [null, ['en-GB', 'zh-CN'], 'en'],
  [null, ['de', 'fr'], 'en'],
  [null, [], 'en'],
  ['en', ['zh-CN'], 'en'],
  ['zh-CN', ['en'], 'zh-CN'],
  ['unknown', ['zh-CN'], 'en'],
])(
  'page: with %j chosen and the browser preferring %j, the language is %s',
  (chosen, preferred, language) => {
    expect(chooseLanguage(chosen, preferred)).toBe(language);
  },
);

test('page: every text of index.html equals the English text in the table', () => {
  const body = html
    .slice(html.indexOf('<body'))
    .replace(/<noscript>[\s\S]*?<\/noscript>|<!--[\s\S]*?-->|<code>[\s\S]*?<\/code>/g, '')
    .replace(/<(button)[^>]* data-language=[\s\S]*?<\/\1>/g, '') // each button is labelled in its own language
    .replace(/<p class="logo">[\s\S]*?<\/p>/, '');
  const texts = [...body.matchAll(/<[a-z][^>]*>([^<]*\p{L}[^<]*)</gu)];
  expect(texts.length).toBeGreaterThan(30);
  for (const [element, text = ''] of texts) {
    expect(text.trim()).toBe(EN.frame[/ data-text="(\w+)"/.exec(element)?.[1] ?? element]);
  }
  for (const [element, label = ''] of body.matchAll(/<[^>]* aria-label="([^"]*)"[^>]*>/g)) {
    expect(label).toBe(EN.frame[/ data-label="(\w+)"/.exec(element)?.[1] ?? element]);
  }
});

test('page: scripts take every sentence from the table of texts', () => {
  const scripts = readdirSync(FOLDER).filter((name) => name.endsWith('.js') && !name.startsWith('texts-'));
  expect(scripts.length).toBeGreaterThan(10);
  const found = scripts.flatMap((name) =>
    readFileSync(new URL(name, FOLDER), 'utf8')
      .replace(/\/\*[\s\S]*?\*\/|\/\/.*$/gm, '')
      .split('\n')
      .filter((line) => !/new TypeError\(|AXIS_FONT|querySelector/.test(line))
      .flatMap((line) => [...line.replace(/\$\{[^{}]*\}/g, '').matchAll(/'[^']*'|`[^`]*`/g)])
      .filter(([literal]) => /[A-Za-z]{2,},? [a-z]{2,}/.test(literal))
      .map(([literal]) => `${name}: ${literal}`),
  );
  expect(found).toEqual([]);
});
