import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../src/config/load.ts';
import { SANDBOX_OPERATIONS, textForCode } from '../../src/sandbox/operations.ts';
import { AREAS_REFUSALS } from '../../src/sandbox/service.ts';
import { CODES, type CodeVerdict, meaningOf } from '../../src/service/codes.ts';
import { ENTRY_FIELDS } from '../../src/service/fields.ts';
import {
  type DrawOperation,
  FORMATS,
  OPERATIONS,
  type OperationNumber,
  type OperationParam,
  PRODUCTS,
  type Product,
} from '../../src/service/operations.ts';
import { type DocPage, expectRows, inBothLanguages } from '../support/translations.ts';

const HEADINGS = {
  'docs/service.md': {
    operations: '## The operations',
    entry: '### Fields of an entry',
    codes: '### Codes of the extraction operations',
    listCodes: '### Codes of operations 9 and 10',
    fields: 'Fields: ',
    records: (list: string) => `Records of \`${list}\`: `,
  },
  'docs/zh-CN/service.md': {
    operations: '## 接口',
    entry: '### 记录的字段',
    codes: '### 提取接口的返回码',
    listCodes: '### 接口 9 和 10 的返回码',
    fields: '字段：',
    records: (list: string) => `\`${list}\` 的记录：`,
  },
};

const PAGES = inBothLanguages('docs/service.md').map((page) => ({
  ...page,
  headings: HEADINGS[page.translated ? 'docs/zh-CN/service.md' : 'docs/service.md'],
}));

/** The rows of the first table after a heading, without its head. */
function tableAfter({ text }: DocPage, heading: string): string[] {
  const start = text.indexOf(`\n${heading}\n`);
  expect(start, `no heading "${heading}"`).toBeGreaterThan(-1);
  const lines = text.slice(start + 1).split('\n');
  const first = lines.findIndex((line) => line.startsWith('|'));
  const rest = lines.slice(first);
  const end = rest.findIndex((line) => !line.startsWith('|'));
  return rest.slice(2, end < 0 ? undefined : end);
}

const row = (...cells: readonly (string | number)[]) => `| ${cells.join(' | ')} |`;
const seconds = (ms: number) => `${ms / 1_000} s`;
const minutes = (ms: number) => `${ms / 60_000} min`;

function protocolCell({ protocol: speaks }: DrawOperation): string {
  if (speaks === 'by-pro') return '`pro`: 1 http, 2 socks5';
  return speaks === 'by-entry' ? 'named by each entry' : speaks;
}

function lifetimeCell({ defaultLifetime: { byTimespan, atLeastMs } }: DrawOperation): string {
  if (!byTimespan) return seconds(atLeastMs);
  return atLeastMs === 0 ? '`timespan` minutes' : `\`timespan\` minutes, at least ${seconds(atLeastMs)}`;
}

function operationRow(product: Product): string {
  const operation = OPERATIONS[product];
  const { number, path, identity, selector, minIntervalMs, defaultIntervalMs } = operation;
  const host = operation.server === 'base' ? '' : 'http://{extract_host}:8080';
  const types = FORMATS.map((format) => `${selector[format]} ${format}`).join(', ');
  return row(
    number,
    `\`${product}\``,
    `\`${host}${path}\``,
    `\`${identity.name}\``,
    `\`${selector.name}\`: ${types}`,
    `${seconds(defaultIntervalMs)}, at least ${seconds(minIntervalMs)}`,
    protocolCell(operation),
    lifetimeCell(operation),
  );
}

function valuesCell(param: OperationParam): string {
  switch (param.kind) {
    case 'whole':
      return `${param.from} to ${param.to}`;
    case 'choice':
      return Object.entries(param.values)
        .map(([value, meaning]) => `${value}: ${meaning}`)
        .join('; ');
    case 'keywords':
      return 'list, or text with commas';
    case 'label':
      return 'text';
  }
}

function paramRows(params: Readonly<Record<string, OperationParam>>): string[] {
  return Object.entries(params).map(([name, param]) =>
    row(`\`${name}\``, valuesCell(param), param.default ?? '', param.about),
  );
}

function countRow({ count }: DrawOperation): string {
  const most = count.max === undefined ? "the instance's single-pull limit" : String(count.max);
  return row(
    '`count`',
    `1 to ${most}`,
    `the missing members, at most ${count.defaultMax}`,
    'the maximum number of members for one call',
  );
}

function verdictCell(verdict: CodeVerdict): string {
  switch (verdict.kind) {
    case 'ok':
      return 'continues';
    case 'empty':
      return 'continues at the pace';
    case 'slow-down':
      return 'lengthens the interval';
    case 'silence':
      return `\`paused\`: no call for ${seconds(verdict.ms)}`;
    case 'pause':
      return `\`paused\`: retries every ${seconds(verdict.retryEveryMs)}`;
    case 'quota': {
      const { retryFromMs, retryToMs, atMidnight } = verdict;
      const doubling = retryFromMs === retryToMs ? '' : `, doubling to ${minutes(retryToMs)}`;
      const midnight = atMidnight ? ", and when the service's day begins" : '';
      return `\`paused\`: retries after ${minutes(retryFromMs)}${doubling}${midnight}`;
    }
    case 'halt':
      return verdict.retryEveryMs === undefined
        ? '`halted`'
        : `\`halted\`: retries every ${minutes(verdict.retryEveryMs)}`;
    case 'back-off':
      return `\`backoff\`: retries after ${seconds(verdict.retryFromMs)}, doubling to ${minutes(verdict.retryToMs)}`;
  }
}

const NUMBERS: readonly OperationNumber[] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];

/** The text of a cell for a verdict: the reaction to a call with this code. */
function commandCell({ kind }: CodeVerdict): string {
  if (kind === 'ok') return 'prints the list';
  return kind === 'empty' ? 'prints an empty list' : 'prints the error, exit code 1';
}

/** One row for each code and meaning, with the operations that give it this meaning. */
function codeRows(
  operations: readonly OperationNumber[],
  doneCell: (verdict: CodeVerdict) => string = verdictCell,
): string[] {
  const codes = new Set(operations.flatMap((operation) => Object.keys(CODES[operation])));
  return [...codes].sort().flatMap((code) => {
    const listing = operations.filter((operation) => Object.hasOwn(CODES[operation], code));
    const meanings = new Map<string, OperationNumber[]>();
    for (const operation of listing) {
      const { summary, verdict, advice, limitsConnections } = meaningOf(operation, code);
      const halves = limitsConnections
        ? '; noria halves the number of tunnels through members of the source'
        : '';
      const rest = `${summary} | ${doneCell(verdict)}${halves} | ${advice === '' ? '–' : advice}`;
      meanings.set(rest, [...(meanings.get(rest) ?? []), operation]);
    }
    return [...meanings].map(([rest, numbers]) => row(code, numbers.join(', '), rest));
  });
}

describe.each(PAGES)('$file', (page) => {
  const { text, headings } = page;

  test('the table of operations is the one in the code', () => {
    const expected = [
      ...PRODUCTS.map(operationRow),
      ...(['areas', 'instances'] as const).map((name) => {
        const { number, path, identity } = OPERATIONS[name];
        return row(
          number,
          `\`noria ${name}\``,
          `\`${path}\``,
          `\`${identity.name}\``,
          'JSON only',
          '',
          '',
          '',
        );
      }),
    ];
    expectRows(page, { actual: tableAfter(page, headings.operations), expected, idCells: 4 });
  });

  test.each(PRODUCTS)('the parameters and fields of %s are those in the code', (product) => {
    const operation = OPERATIONS[product];
    const heading = `### ${operation.number}. ${product}`;
    const expected = [...paramRows(operation.params), countRow(operation)];
    expectRows(page, { actual: tableAfter(page, heading), expected });
    const section = text.slice(text.indexOf(`\n${heading}\n`)).split('\n###')[1] ?? '';
    const tags = operation.fields.map((field) => `\`{${field}}\``).join(' ');
    expect(section).toContain(`\n${headings.fields}${tags}\n`);
  });

  test.each(PRODUCTS)('the example of %s is a valid configuration', (product) => {
    const { number } = OPERATIONS[product];
    const section = text.slice(text.indexOf(`\n### ${number}. ${product}\n`));
    const example = /```yaml\n([\s\S]*?)```/.exec(section)?.[1] ?? '';
    const yaml = `service: { baseUrl: 'http://extract.example.com' }\nsources:\n${example}`;
    const variables = [...example.matchAll(/\$\{(\w+)\}/g)].map(([, name]) => [name, '12345678']);
    const [source] = parseConfig(yaml, 'example.yaml', { env: Object.fromEntries(variables) }).sources;
    expect(source?.product).toBe(product);
    expect(source?.key?.reveal()).toBe('83aa400af464c76d');
  });

  test('the lists of operations 9 and 10 have the parameters and fields in the code', () => {
    for (const name of ['areas', 'instances'] as const) {
      const { number, params, fields, listField: list } = OPERATIONS[name];
      const heading = `### ${number}. noria ${name}`;
      expectRows(page, { actual: tableAfter(page, heading), expected: paramRows(params) });
      const section = text.slice(text.indexOf(`\n${heading}\n`));
      const names = Object.keys(fields).map((field) => `\`${field}\``);
      expect(section).toContain(`\n${headings.records(list)}${names.join(' ')}\n`);
    }
  });

  test('it lists every field of an entry with its meaning', () => {
    const expected = Object.entries(ENTRY_FIELDS).map(([name, { about }]) => row(`\`${name}\``, about));
    expectRows(page, { actual: tableAfter(page, headings.entry), expected });
  });

  test('it lists every code of the extraction operations with the reaction', () => {
    const actual = tableAfter(page, headings.codes);
    expectRows(page, { actual, expected: codeRows(NUMBERS.slice(0, 8)), idCells: 2 });
  });

  test('it lists every code of operations 9 and 10', () => {
    const expected = codeRows(NUMBERS.slice(8), commandCell);
    expectRows(page, { actual: tableAfter(page, headings.listCodes), expected, idCells: 2 });
  });
});

test('docs/service.md: the reaction to an unlisted code is as described', () => {
  expect(PAGES[0]?.text).toContain(`the source is in\n${verdictCell(meaningOf(1, '99999').verdict)}.`);
});

test('docs/zh-CN/service.md: lists the messages that the sandbox sends, with their codes', () => {
  const [, page] = PAGES;
  const rows = new Map((page?.text ?? '').split('\n').map((line) => [line.split(' | ')[0], line]));
  const refusals = [...SANDBOX_OPERATIONS.map((operation) => operation.refusals), AREAS_REFUSALS];
  for (const codes of refusals) {
    for (const code of Object.values(codes))
      expect(rows.get(`| ${textForCode(codes, code)}`), code).toContain(code);
  }
});
