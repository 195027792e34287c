/** Copies of the checkout, in which programs break noria and run its tests. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { findNotHere } from '../support/machine.ts';
import { NOT_HERE } from '../support/tools.ts';

/** Many sabotages make a test wait for what never comes. */
const LIMIT_MS = 30_000;
/** What a copy does not need. */
const LEFT = new Set(['.git', '.venv', 'dist', 'node_modules', '.noria']);

/**
 * The tests that failed, by name; `trouble`: why there is no result. A test that was only ended by its limit says nothing about what
 * is wrong, so it is in `timedOut` instead.
 */
export interface Played {
  readonly failed: readonly string[];
  readonly timedOut: readonly string[];
  readonly trouble: string | undefined;
}

/** What vitest says of a test or hook that it ended. */
const TIMED_OUT = /^(?:Error: )?(?:Test|Hook) timed out in /;

/** Makes copies, gives each to `use`, and removes them when all have ended. */
export async function withCopies(
  count: number,
  use: (copies: readonly string[]) => Promise<number>,
): Promise<number> {
  const root = mkdtempSync(join(tmpdir(), 'noria-sabotage-'));
  // So the tests neither look again nor build noria first, which takes longer than most of them: norias start from source.
  process.env[NOT_HERE] = await findNotHere();
  process.env['NORIA_TEST_LENGTH'] = 'full';
  try {
    return await use(Array.from({ length: count }, (_, index) => copyCheckout(join(root, String(index)))));
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

function copyCheckout(copy: string): string {
  const source = process.cwd();
  cpSync(source, copy, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (path) => dirname(path) !== source || !LEFT.has(relative(source, path)),
  });
  symlinkSync(join(source, 'node_modules'), join(copy, 'node_modules'));
  return copy;
}

export async function runTests(
  copy: string,
  files: readonly string[],
  options: readonly string[],
): Promise<Played> {
  const report = join(copy, 'sabotage.json');
  rmSync(report, { force: true });
  const args = [
    'node_modules/vitest/vitest.mjs',
    'run',
    ...['--reporter=json', `--outputFile=${report}`, '--maxWorkers=2', `--testTimeout=${LIMIT_MS}`],
    ...options,
    ...files,
  ];
  const output = await run(copy, args);
  if (!existsSync(report)) return { failed: [], timedOut: [], trouble: output };
  const { testResults }: TestReport = JSON.parse(readFileSync(report, 'utf8'));
  const all = testResults.flatMap(({ assertionResults }) => assertionResults);
  const failures = all.filter(({ status }) => status === 'failed');
  const saysWhy = ({ failureMessages }: AssertionResult) =>
    failureMessages.some((text) => !TIMED_OUT.test(text));
  const broken = testResults.find(
    ({ status, assertionResults }) => status === 'failed' && assertionResults.length === 0,
  );
  return {
    failed: failures.filter(saysWhy).map(({ fullName }) => fullName),
    timedOut: failures.filter((failure) => !saysWhy(failure)).map(({ fullName }) => fullName),
    trouble: all.length === 0 || broken !== undefined ? (broken?.message ?? output) : undefined,
  };
}

interface AssertionResult {
  readonly fullName: string;
  readonly status: string;
  readonly failureMessages: readonly string[];
}

interface TestReport {
  readonly testResults: readonly {
    readonly status: string;
    readonly message?: string;
    readonly assertionResults: readonly AssertionResult[];
  }[];
}

/** Runs a program of this Node in a copy. @returns the end of what it printed. */
export async function run(copy: string, args: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, args, { cwd: copy, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (chunk: string) => (output = (output + chunk).slice(-100_000)));
  await once(child, 'close');
  return output;
}
