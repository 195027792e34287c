/** The results of the benchmark: its rows, the printed table, the saved file, and the rows beyond their limit. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { arch, cpus, loadavg } from 'node:os';
import { fileURLToPath } from 'node:url';

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
  /** noria's figure divided by that of proxy-chain. */
  readonly ratio?: number;
  /** The maximum that the ratio should have. */
  readonly target?: number;
  /**
   * Beyond this limit, something is broken. It is far from the usual value and applies to the ratio, or to noria's
   * figure if there is no ratio.
   */
  readonly limit?: { readonly most: number } | { readonly least: number };
}

const PROXIES = ['noria', 'proxy-chain', 'bare', 'tinyproxy', 'squid'] as const;

export class Report {
  readonly rows: Row[] = [];
  readonly #startedAt = performance.now();

  add(row: Row): void {
    this.rows.push(row);
    const seconds = Math.round((performance.now() - this.#startedAt) / 1_000);
    console.error(`${String(seconds).padStart(4)} s  ${row.scenario}: ${format(row.ratio ?? row.noria)}`);
  }

  get beyondLimit(): readonly Row[] {
    return this.rows.filter(({ noria, ratio = noria, limit }) => {
      if (limit === undefined) return false;
      return 'most' in limit ? !(ratio <= limit.most) : !(ratio >= limit.least);
    });
  }

  print(): void {
    const proxies = PROXIES.filter((name) => this.rows.some((row) => row[name] !== undefined));
    const cells = this.rows.map((row) => [
      row.scenario,
      row.unit,
      ...proxies.map((name) => format(row[name])),
      format(row.ratio),
      row.target === undefined ? '' : `≤ ${format(row.target)}`,
    ]);
    const table = [['', 'unit', ...proxies, 'ratio', 'target'], ...cells];
    const widths =
      table[0]?.map((_, column) => Math.max(...table.map((row) => row[column]?.length ?? 0))) ?? [];
    for (const row of table) {
      const padded = row.map((cell, column) => {
        const width = widths[column] ?? 0;
        return column < 2 ? cell.padEnd(width) : cell.padStart(width);
      });
      console.log(padded.join('  ').trimEnd());
    }
  }

  /** @returns the path of the file. */
  save(quick: boolean): string {
    const date = new Date().toISOString();
    const [cpu] = cpus();
    const machine = { arch: arch(), cpus: cpus().length, model: cpu?.model, load: loadavg()[0] };
    const result = { date, commit: commit(), node: process.version, quick, machine, rows: this.rows };
    mkdirSync(new URL('results/', import.meta.url), { recursive: true });
    const file = fileURLToPath(new URL(`results/${date.replaceAll(':', '-')}.json`, import.meta.url));
    writeFileSync(file, `${JSON.stringify(result, undefined, 2)}\n`);
    return file;
  }
}

function format(value: number | undefined): string {
  if (value === undefined) return '';
  return value >= 100 ? value.toFixed(0) : value.toFixed(2);
}

function commit(): string {
  try {
    return execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
  } catch {
    return 'unknown'; // handled: this folder is not a Git checkout
  }
}
