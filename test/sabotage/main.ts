/**
 * `npm run sabotage`: breaks noria in small ways, one after the other, in a copy of the checkout. The tests that the table names must
 * fail. Prints which test noticed; exits with 1 if none did.
 *
 *   npm run sabotage                     the whole table
 *   npm run sabotage -- leak bans        the rows whose names contain one of these texts
 *   npm run sabotage -- --quick          the rows that `.ci/run` plays
 *   npm run sabotage -- --parallel 1     one row at a time; default: 2
 *   npm run sabotage -- --no-control     does not run the named tests on the unchanged copy first
 *   npm run sabotage -- --list           prints the names
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { parseArgs } from 'node:util';
import { applied, SABOTAGES, type Sabotage } from './table.ts';

/** How long a test may take: many sabotages make a test wait for what never comes. */
const TEST_LIMIT_MS = 30_000;
/** What a copy does not need. */
const LEFT = new Set(['.git', '.venv', 'dist', 'node_modules', '.noria']);

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: 'boolean', default: false },
    list: { type: 'boolean', default: false },
    'no-control': { type: 'boolean', default: false },
    parallel: { type: 'string', default: '2' },
  },
});

/** The tests that failed, by name; `trouble`: why there is no result. */
interface Played {
  readonly failed: readonly string[];
  readonly trouble: string | undefined;
}

const rows = SABOTAGES.filter(
  ({ name, quick }) =>
    (!values.quick || quick === true) &&
    (positionals.length === 0 || positionals.some((text) => name.includes(text))),
);
if (values.list) for (const { name } of rows) console.log(name);
else process.exitCode = await playAll();

async function playAll(): Promise<number> {
  const root = mkdtempSync(join(tmpdir(), 'noria-sabotage-'));
  try {
    const copies = Array.from({ length: Number(values.parallel) }, (_, index) =>
      copyCheckout(join(root, String(index))),
    );
    const [first = ''] = copies;
    if (!values['no-control']) {
      const files = [...new Set(rows.map(({ noticedBy }) => noticedBy).filter((by) => by !== 'chaos'))];
      const { failed, trouble } = await runTests(first, files, []);
      for (const name of failed) console.log(`fails without a sabotage: ${name}`);
      if (trouble !== undefined) console.log(`without a sabotage: ${trouble}`);
      if (failed.length > 0 || trouble !== undefined) return 1;
    }
    const waiting = [...rows];
    let noticed = 0;
    const playNext = async (copy: string): Promise<void> => {
      for (let row = waiting.shift(); row !== undefined; row = waiting.shift()) {
        if (await play(row, copy)) noticed += 1;
      }
    };
    await Promise.all(copies.map(playNext));
    console.log(`${noticed} of ${rows.length} sabotages noticed`);
    return noticed === rows.length && rows.length > 0 ? 0 : 1;
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

/** Applies one row to a copy, runs what must notice it, and restores the copy. @returns whether it was noticed. */
async function play(row: Sabotage, copy: string): Promise<boolean> {
  const path = join(copy, row.file);
  const text = readFileSync(path, 'utf8');
  const startedMs = performance.now();
  writeFileSync(path, applied(row, text));
  const { failed, trouble } = await (row.noticedBy === 'chaos'
    ? runChaos(copy)
    : runTests(copy, [row.noticedBy], ['--bail=1'])
  ).finally(() => writeFileSync(path, text));
  const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
  const [by] = failed;
  const verdict = by === undefined ? 'NOT NOTICED' : 'noticed';
  console.log(`${verdict}  ${row.name}  (${seconds} s)  ${by ?? trouble ?? row.noticedBy}`);
  return by !== undefined;
}

async function runTests(copy: string, files: readonly string[], options: readonly string[]): Promise<Played> {
  const report = join(copy, 'sabotage.json');
  rmSync(report, { force: true });
  const output = await run(copy, [
    'node_modules/vitest/vitest.mjs',
    'run',
    ...['--project', 'noria', '--project', 'long'],
    ...['--reporter=json', `--outputFile=${report}`, '--maxWorkers=2', `--testTimeout=${TEST_LIMIT_MS}`],
    ...options,
    ...files,
  ]);
  if (!existsSync(report)) return { failed: [], trouble: output };
  const { testResults }: TestReport = JSON.parse(readFileSync(report, 'utf8'));
  const all = testResults.flatMap(({ assertionResults }) => assertionResults);
  const failed = all.filter(({ status }) => status === 'failed').map(({ fullName }) => fullName);
  const broken = testResults.find(
    ({ status, assertionResults }) => status === 'failed' && assertionResults.length === 0,
  );
  return {
    failed,
    trouble: all.length === 0 || broken !== undefined ? (broken?.message ?? output) : undefined,
  };
}

interface TestReport {
  readonly testResults: readonly {
    readonly status: string;
    readonly message?: string;
    readonly assertionResults: readonly { readonly fullName: string; readonly status: string }[];
  }[];
}

/** Half a minute of chaos with one noria. Each broken invariant counts as a failed test. */
async function runChaos(copy: string): Promise<Played> {
  const output = await run(copy, [
    'test/chaos/main.ts',
    '--minutes',
    '0.5',
    '--only',
    'one process',
    '--seed',
    '1',
  ]);
  const [, broken = ''] = output.split('Broken invariants:');
  const failed = [...broken.matchAll(/^- (.*)$/gm)].map(([, text = '']) => `chaos: ${text}`);
  return { failed, trouble: failed.length === 0 ? output.slice(-500) : undefined };
}

/** Runs a program of this Node in a copy. @returns the end of what it printed. */
async function run(copy: string, args: readonly string[]): Promise<string> {
  const child = spawn(process.execPath, args, { cwd: copy, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (chunk: string) => (output = (output + chunk).slice(-100_000)));
  await once(child, 'close');
  return output;
}
