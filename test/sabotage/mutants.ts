/**
 * `npm run mutants -- SOURCE… [--also FOLDER,…]`: Stryker makes the usual small changes to the named files and folders of `src/`, and runs
 * the tests of `npm test` in their folders that reach the changed line; on what these miss, all tests in the other named folders of
 * `test/`. Prints each mutant that no test notices, and the scores, which leave out equivalent.ts. A mutant takes about a second, so it
 * is not part of `.ci/run`; `--sample 10` takes one passage of ten lines in ten.
 */
import { globSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { parseArgs } from 'node:util';
import { Stryker } from '@stryker-mutator/core';
import { LONG } from '../../vitest.config.ts';
import { EQUIVALENT } from './equivalent.ts';

type Mutant = Awaited<ReturnType<Stryker['runMutationTest']>>[number];

const PASSAGE = 10;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    also: { type: 'string', default: '' },
    sample: { type: 'string', default: '1' },
    parallel: { type: 'string', default: '2' },
  },
});
const files = positionals.flatMap((path) =>
  statSync(path).isFile() ? [path] : globSync(join(path, '**/*.ts')).sort(),
);
const folders = [...new Set(files.map((file) => file.split('/')[1]))];
const testsIn = (all: readonly (string | undefined)[]) => all.map((folder) => `test/${folder}/**/*.test.ts`);
const tried = await tryEach(
  files.flatMap((file) => passagesOf(file, Number(values.sample))),
  testsIn(folders),
  LONG,
);
const counted = tried.filter((mutant) => !isEquivalent(mutant));
const missed = new Map(
  counted.filter((mutant) => !isNoticed(mutant)).map((mutant) => [keyOf(mutant), mutant]),
);
if (values.also !== '' && missed.size > 0) {
  const again = await tryEach([...missed.values()].map(placeOf), testsIn(values.also.split(',')), []);
  for (const mutant of again) if (isNoticed(mutant)) missed.delete(keyOf(mutant));
}
for (const mutant of missed.values()) {
  const { line, column } = mutant.location.start;
  const { line: text, from } = textOf(mutant);
  console.log(`${fileOf(mutant)}:${line}:${column}: ${text.trim()}\n  - ${from}\n  + ${mutant.replacement}`);
}
for (const file of [...files, undefined]) {
  const isHere = (mutant: Mutant) => file === undefined || fileOf(mutant) === file;
  const all = counted.filter(isHere).length;
  const left = [...missed.values()].filter(isHere).length;
  const equivalent = tried.filter((mutant) => isHere(mutant) && isEquivalent(mutant)).length;
  if (all === 0) continue;
  const score = (((all - left) / all) * 100).toFixed(1).padStart(5);
  console.log(
    `${score} %  ${all - left} of ${all}  ${file ?? 'all'}${equivalent ? ` (${equivalent} equivalent)` : ''}`,
  );
}

async function tryEach(mutate: string[], tests: string[], except: string[]): Promise<Mutant[]> {
  process.env['NORIA_MUTANT_TESTS'] = tests.join(' ');
  process.env['NORIA_MUTANT_NO_TESTS'] = except.join(' ');
  // Outside of the checkout, where tests and tools would find it.
  const tempDirName = mkdtempSync(join(tmpdir(), 'noria-mutants-'));
  try {
    const mutants = await new Stryker({
      mutate,
      mutator: {
        // Texts, and the keys that types demand.
        excludedMutations: [
          'StringLiteral',
          'ObjectLiteral',
          'ArrayDeclaration',
          'Regex',
          'OptionalChaining',
        ],
      },
      testRunner: 'vitest',
      vitest: { configFile: 'test/sabotage/mutants.config.ts', related: false },
      coverageAnalysis: 'perTest',
      concurrency: Number(values.parallel),
      // Stryker adds what the unchanged code took, and the start of its process.
      timeoutMS: 3_000,
      dryRunTimeoutMinutes: 30,
      reporters: ['progress-append-only'],
      tempDirName,
      cleanTempDir: 'always',
      // Stryker would rewrite it with an interface that this TypeScript no longer has; types do not matter here.
      tsconfigFile: 'none',
      allowConsoleColors: false,
    }).runMutationTest();
    return mutants.filter(({ status }) => status !== 'Ignored' && status !== 'RuntimeError');
  } finally {
    rmSync(tempDirName, { recursive: true, force: true });
  }
}

/** The file, or each `every`-th passage of it, as Stryker writes them. */
function passagesOf(file: string, every: number): string[] {
  if (every === 1) return [file];
  const lines = readFileSync(file, 'utf8').split('\n').length;
  const passages = [];
  for (let line = 1; line <= lines; line += PASSAGE * every)
    passages.push(`${file}:${line}-${line + PASSAGE - 1}`);
  return passages;
}

/** As Stryker wants it: lines begin at 1, columns at 0. In a result, both begin at 1. */
function placeOf(mutant: Mutant): string {
  const { start, end } = mutant.location;
  return `${fileOf(mutant)}:${start.line}:${start.column - 1}-${end.line}:${end.column - 1}`;
}

function keyOf(mutant: Mutant): string {
  return `${placeOf(mutant)} ${mutant.replacement}`;
}

function fileOf(mutant: Mutant): string {
  return relative('.', mutant.fileName);
}

/** The line where it begins, and the text that it replaces. */
function textOf(mutant: Mutant): { line: string; from: string } {
  const { start, end } = mutant.location;
  const lines = readFileSync(mutant.fileName, 'utf8').split('\n');
  const replaced = lines.slice(start.line - 1, end.line);
  const last = replaced.length - 1;
  replaced[last] = replaced[last]?.slice(0, end.column - 1) ?? '';
  replaced[0] = replaced[0]?.slice(start.column - 1) ?? '';
  return { line: lines[start.line - 1] ?? '', from: replaced.join('\n') };
}

function isNoticed(mutant: Mutant): boolean {
  return mutant.status !== 'Survived' && mutant.status !== 'NoCoverage';
}

function isEquivalent(mutant: Mutant): boolean {
  const text = textOf(mutant);
  return EQUIVALENT.some(
    ([file, line, from, to]) =>
      file === fileOf(mutant) && text.line.includes(line) && from === text.from && to === mutant.replacement,
  );
}
