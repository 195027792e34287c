/** The results of the benchmark: its rows in tables, the printed Markdown, the saved file, and the rows beyond their limit. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { arch, cpus, loadavg } from 'node:os';
import { fileURLToPath } from 'node:url';
import { SECOND_MS } from '../src/core/duration.ts';

/** The figures of one scenario. A proxy that the scenario does not measure has no figure. */
export interface Row {
  readonly scenario: string;
  readonly unit: string;
  readonly noria: number;
  readonly 'proxy-chain'?: number;
  /** Two joined sockets and nothing else: the minimum cost in Node. */
  readonly bare?: number;
  /** Only where tinyproxy is installed. */
  readonly tinyproxy?: number;
  readonly squid?: number;
  /** noria's figure divided by that of proxy-chain, or of a noria without what the row measures. */
  readonly ratio?: number;
  /** The maximum that the ratio should have. */
  readonly target?: number;
  /**
   * Beyond this limit, something is broken. It is far from the usual value and applies to the ratio, or to noria's
   * figure if there is no ratio.
   */
  readonly limit?: { readonly most: number } | { readonly least: number };
  /** The line of the printed table, by default the scenario. A cell shows the figures of all rows with this line: `p50 / p99`. */
  readonly line?: string;
  /** The column of the printed table for noria's figure. The row's other figures are not printed then. */
  readonly column?: string;
}

interface Table {
  readonly title: string;
  readonly rows: Row[];
}

const PROXIES = ['noria', 'proxy-chain', 'bare', 'tinyproxy', 'squid'] as const;

export class Report {
  readonly #tables: Table[] = [];
  readonly #startedAt = performance.now();

  /** The rows that follow belong to this table. */
  startTable(title: string): void {
    this.#tables.push({ title, rows: [] });
  }

  add(row: Row): void {
    const table = this.#tables.at(-1);
    if (table === undefined) throw new TypeError(`no table for ${row.scenario}`);
    table.rows.push(row);
    const seconds = Math.round((performance.now() - this.#startedAt) / SECOND_MS);
    console.error(`${String(seconds).padStart(4)} s  ${row.scenario}: ${format(row.ratio ?? row.noria)}`);
  }

  get beyondLimit(): readonly Row[] {
    return this.#tables
      .flatMap(({ rows }) => rows)
      .filter(({ noria, ratio = noria, limit }) => {
        if (limit === undefined) return false;
        return 'most' in limit ? !(ratio <= limit.most) : !(ratio >= limit.least);
      });
  }

  /** Prints the tables in the form that docs/performance.md has. */
  print(): void {
    for (const { title, rows } of this.#tables) {
      if (rows.length > 0) console.log(`### ${title}\n\n${markdownOf(rows)}\n`);
    }
  }

  /** @returns the path of the file. */
  save(quick: boolean): string {
    const date = new Date().toISOString();
    const [cpu] = cpus();
    const machine = { arch: arch(), cpus: cpus().length, model: cpu?.model, load: loadavg()[0] };
    const rows = this.#tables.flatMap(({ title, rows }) => rows.map((row) => ({ table: title, ...row })));
    const result = { date, commit: commit(), node: process.version, quick, machine, rows };
    mkdirSync(new URL('results/', import.meta.url), { recursive: true });
    const file = fileURLToPath(new URL(`results/${date.replaceAll(':', '-')}.json`, import.meta.url));
    writeFileSync(file, `${JSON.stringify(result, undefined, 2)}\n`);
    return file;
  }
}

/** Prints only the columns that have figures. */
function markdownOf(rows: readonly Row[]): string {
  const lines = new Map<string, Map<string, string>>();
  for (const row of rows) {
    const name = row.line ?? row.scenario;
    const cells = lines.get(name) ?? new Map([['unit', row.unit]]);
    lines.set(name, cells);
    for (const [column, text] of cellsOf(row)) {
      const before = cells.get(column);
      cells.set(column, before === undefined ? text : `${before} / ${text}`);
    }
  }
  const own = rows.flatMap(({ column }) => column ?? []);
  const columns = [...new Set(['unit', ...PROXIES, ...own, 'ratio', 'target'])].filter((column) =>
    [...lines.values()].some((cells) => cells.has(column)),
  );
  const body = [...lines].map(([name, cells]) =>
    lineOf([name, ...columns.map((column) => cells.get(column) ?? '')]),
  );
  return [`| ${lineOf(columns)}`, `|---${'|---'.repeat(columns.length)}|`, ...body].join('\n');
}

function lineOf(cells: readonly string[]): string {
  return `| ${cells.join(' | ')} |`;
}

function cellsOf(row: Row): [column: string, text: string][] {
  if (row.column !== undefined) return [[row.column, format(row.noria)]];
  const cells: [string, string][] = [];
  for (const column of [...PROXIES, 'ratio'] as const) {
    const figure = row[column];
    if (figure !== undefined) cells.push([column, format(figure)]);
  }
  if (row.target !== undefined) cells.push(['target', `≤ ${format(row.target)}`]);
  return cells;
}

/** With three digits, or all digits before the point. */
function format(figure: number): string {
  if (figure >= 100) return figure.toFixed(0);
  return figure.toFixed(figure >= 10 ? 1 : 2);
}

function commit(): string {
  try {
    return execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
  } catch {
    return 'unknown'; // handled: this folder is not a Git checkout
  }
}
