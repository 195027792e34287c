/**
 * `npm run foreign`: runs the test suites of other projects with noria where they expect a proxy, and compares the passed tests
 * with the floor of each suite. README.md in this folder explains it.
 *
 *   npm run foreign                       all suites
 *   npm run foreign -- PySocks urllib3    these suites
 */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { hasCommand } from '../support/tools.ts';
import { prepare } from './fetch.ts';
import type { Suite, SuiteResult, TestResult } from './suite.ts';
import { SUITES } from './suites.ts';

/** Runs a command as root in a network namespace that has only loopback. */
const ISOLATED = [
  'unshare',
  '--net',
  '--map-root-user',
  'sh',
  '-c',
  'ip link set lo up && exec "$@"',
  'sh',
] as const;
const KEPT_OUTPUT_BYTES = 50_000_000;

const named = process.argv.slice(2);
const unknown = named.filter((name) => !SUITES.some((suite) => suite.name === name));
if (unknown.length > 0) {
  console.error(`unknown suites: ${unknown.join(', ')}; known: ${SUITES.map(({ name }) => name).join(', ')}`);
  process.exit(2);
}
const missing = ['unshare', 'ip', 'python3', 'tar'].filter((command) => !hasCommand(command));
if (missing.length > 0) {
  console.error(
    `not installed: ${missing.join(', ')}; on Debian: apt-get install util-linux iproute2 python3-venv tar`,
  );
  process.exit(2);
}

const rows = SUITES.filter(({ name }) => named.length === 0 || named.includes(name)).map(runAndCompare);
console.log(`\n${['suite', 'version', 'passed/run', 'floor', ''].map(toColumn).join('').trimEnd()}`);
for (const { cells } of rows) console.log(cells.map(toColumn).join('').trimEnd());
if (rows.some(({ ok }) => !ok)) process.exitCode = 1;

interface Row {
  readonly cells: readonly string[];
  readonly ok: boolean;
}

function runAndCompare(suite: Suite): Row {
  const { name, floor, known = [], servedAtLeast } = suite;
  const row = (counts: string, remark: string, ok: boolean): Row => ({
    cells: [name, versionOf(suite), counts, String(floor), remark],
    ok,
  });
  let prepared: ReturnType<typeof prepare>;
  try {
    prepared = prepare(suite);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    console.log(`could not fetch ${name}: ${reason}; skipped`);
    return row('-', 'skipped', false);
  }
  console.log(`running ${name}`);
  const result = runIsolated(suite, prepared);
  if (result === undefined) return row('-', 'did not run', false);

  const { tests, served, output } = result;
  const of = (outcome: TestResult['outcome']) => tests.filter((test) => test.outcome === outcome);
  const [passed, failed] = [of('passed'), of('failed')];
  for (const { name: test, message } of failed) {
    const reason = known.find(({ tests }) => tests.test(test))?.reason;
    console.log(`  failed: ${test}: ${reason ?? `NEW: ${lastLine(message)}`}`);
  }
  if (tests.length === 0) console.log(output);
  const counts = `${passed.length}/${passed.length + failed.length}`;
  if (passed.length < floor) return row(counts, 'below the floor', false);
  if (served < servedAtLeast)
    return row(counts, `only ${served} of ${servedAtLeast} connections went through noria`, false);
  return row(counts, `${served} connections`, true);
}

function runIsolated(
  suite: Suite,
  { folder, python, modules }: ReturnType<typeof prepare>,
): SuiteResult | undefined {
  const program = [
    process.execPath,
    join(import.meta.dirname, 'run-suite.ts'),
    suite.name,
    folder,
    python,
    modules,
  ];
  const [command, ...args] = [...ISOLATED, ...program];
  const { stdout, status } = spawnSync(command, args, {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
    maxBuffer: KEPT_OUTPUT_BYTES,
  });
  return status === 0 ? JSON.parse(stdout) : undefined;
}

function versionOf({ source }: Suite): string {
  if (source.registry !== 'go') return source.version;
  return spawnSync('go', ['env', 'GOVERSION'], { encoding: 'utf8' }).stdout?.trim() ?? '';
}

function lastLine(text: string): string {
  return text.trim().split('\n').at(-1) ?? '';
}

function toColumn(cell: string): string {
  return cell.padEnd(16);
}
