/**
 * `npm run mutants -- SOURCE…`: Stryker makes the usual small changes to the named files and folders of `src/`, and runs the tests of
 * `npm test` in their folders that reach the changed line. Prints each mutant that no test notices, and the scores. A mutant takes about
 * a second, so it is not part of `.ci/run`; `--sample 10` takes one passage of ten lines in ten.
 */
import { globSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { Stryker } from '@stryker-mutator/core';

const PASSAGE = 10;

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { sample: { type: 'string', default: '1' }, parallel: { type: 'string', default: '2' } },
});
const files = positionals.flatMap((path) =>
  statSync(path).isFile() ? [path] : globSync(join(path, '**/*.ts')).sort(),
);
process.env['NORIA_MUTATED'] = [...new Set(files.map((file) => file.split('/')[1]))].join();
// Outside of the checkout, where tests and tools would find it.
const tempDirName = mkdtempSync(join(tmpdir(), 'noria-mutants-'));
try {
  await new Stryker({
    mutate: files.flatMap((file) => passagesOf(file, Number(values.sample))),
    mutator: {
      // Texts, and the keys that types demand.
      excludedMutations: ['StringLiteral', 'ObjectLiteral', 'ArrayDeclaration', 'Regex', 'OptionalChaining'],
    },
    testRunner: 'vitest',
    vitest: { configFile: 'test/sabotage/mutants.config.ts', related: false },
    coverageAnalysis: 'perTest',
    concurrency: Number(values.parallel),
    // Far above what the unchanged code takes, so that a busy machine kills no mutant.
    timeoutMS: 10_000,
    reporters: ['clear-text'],
    clearTextReporter: { allowColor: false, logTests: false, reportTests: false },
    tempDirName,
    cleanTempDir: 'always',
    // Stryker would rewrite it with an interface that this TypeScript no longer has; types do not matter here.
    tsconfigFile: 'none',
    allowConsoleColors: false,
  }).runMutationTest();
} finally {
  rmSync(tempDirName, { recursive: true, force: true });
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
