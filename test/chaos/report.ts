/** Prints the report of a run as Markdown. */
import { readFileSync, writeFileSync } from 'node:fs';
import { SKIPPED_FAULTS } from './faults/host.ts';
import { LEAST_JUDGED } from './judge.ts';
import type { RunResult } from './play.ts';

export interface Report {
  readonly seed: number;
  readonly totalMs: number;
  readonly results: readonly RunResult[];
}

const BEGIN = '<!-- chaos: begin -->';
const END = '<!-- chaos: end -->';

export function reportOf({ seed, totalMs, results }: Report): string {
  const head = `Seed ${seed}, ${Math.round(totalMs / 1_000)} s in all, Node ${process.versions.node}.`;
  const skipped = SKIPPED_FAULTS.length === 0 ? [] : [`Skipped: ${SKIPPED_FAULTS.join('; ')}.`];
  return [head, ...results.map(sectionOf), '### Faults', tableOf(results), ...skipped].join('\n\n');
}

/** Replaces the text between the two marks of a page. @throws Error if the page cannot be read or has no marks. */
export function insertReport(path: string, text: string): void {
  const { before, after } = splitPage(path);
  writeFileSync(path, `${before}\n\n${text}\n\n${after}`);
}

/**
 * Returns the parts of a page before and after its report. @throws Error if the page cannot be read or has no marks.
 */
export function splitPage(path: string): { readonly before: string; readonly after: string } {
  const page = readFileSync(path, 'utf8');
  const [begin, end] = [page.indexOf(BEGIN), page.indexOf(END)];
  if (begin < 0 || end < begin) {
    throw new Error(`${path} has no place for the report: add the lines "${BEGIN}" and "${END}"`);
  }
  return { before: page.slice(0, begin + BEGIN.length), after: page.slice(end) };
}

function sectionOf(result: RunResult): string {
  const { name, exchanges, bySuccess, promised, failures, calls, lives, violations } = result;
  const share = promised === 0 ? 100 : (100 * (promised - failures.length)) / promised;
  const mib = (bytes: number) => Math.round(bytes / 2 ** 20);
  const prints = lives.map((life) => {
    if (life === undefined) return 'dead';
    const { first, last } = life;
    return `${mib(first.rssBytes)} → ${mib(last.rssBytes)} MiB, ${first.descriptors} → ${last.descriptors} descriptors`;
  });
  return [
    `### ${name}`,
    '',
    `Of ${exchanges} exchanges, ${bySuccess} succeeded. Of the ${promised} exchanges that had to succeed, ${share.toFixed(2)} % did${promised < LEAST_JUDGED ? ' (too few to judge)' : ''}. noria called the service ${calls} times. Memory and descriptors: ${prints.join('; ')}.`,
    '',
    ...(failures.length === 0 ? [] : ['Failed outside `broken` faults:', '', ...failures.map(item), '']),
    violations.length === 0
      ? 'No invariant was broken.'
      : ['Broken invariants:', '', ...violations.map(item)].join('\n'),
  ].join('\n');
}

/** One row for each fault, with one cell for each run. */
function tableOf(results: readonly RunResult[]): string {
  const promises = new Map(
    results.flatMap(({ faults }) => faults.map(({ name, promise }) => [name, promise])),
  );
  const rows = [...promises]
    .sort(([name, promise], other) => promise.localeCompare(other[1]) || name.localeCompare(other[0]))
    .map(([name, promise]) => {
      const cells = results.map(({ faults }) => cellOf(faults.find((fault) => fault.name === name)));
      return `| ${[name, promise, ...cells].join(' | ')} |`;
    });
  const names = results.map(({ name }) => name);
  return [
    `| ${['fault', 'promise', ...names].join(' | ')} |`,
    `|---|---|${'---|'.repeat(names.length)}`,
    ...rows,
  ].join('\n');
}

function cellOf(fault: RunResult['faults'][number] | undefined): string {
  if (fault === undefined) return '–';
  const { affected, exchanges, recoveryMs } = fault;
  const last = recoveryMs === 0 ? '' : `, the last one ${(recoveryMs / 1_000).toFixed(1)} s after the fault`;
  return `${affected} of ${exchanges} failed${last}`;
}

function item(text: string): string {
  return `- ${text}`;
}
