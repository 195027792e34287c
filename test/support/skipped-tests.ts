/** After the tests: a vitest reporter that says which tests were skipped, and why. */
import { readFileSync } from 'node:fs';
import { relative } from 'node:path';
import type { Reporter, TestCase, TestModule, Vitest } from 'vitest/node';
import { NOT_HERE } from './tools.ts';

/** Prints how many tests of each file were skipped, and which of the missing programs the file or the tests name. */
export default class SkippedTests implements Reporter {
  #isFiltered = false;

  onInit({ config }: Vitest): void {
    this.#isFiltered = config.testNamePattern !== undefined; // such a run skips tests for no reason of the machine
  }

  onTestRunEnd(modules: readonly TestModule[]): void {
    const lines = modules.flatMap((module) => {
      const skipped = [...module.children.allTests('skipped')];
      if (skipped.length === 0) return [];
      const reasons = new Set(skipped.flatMap((test) => reasonsOf(test, module)));
      const why = [...reasons].join(', ') || 'no reason found';
      return [`  ${String(skipped.length).padStart(4)}  ${relative('.', module.moduleId)}: ${why}`];
    });
    if (lines.length === 0 || this.#isFiltered) return;
    const count = lines.reduce((sum, line) => sum + Number.parseInt(line, 10), 0);
    console.log(`\n${count} tests are skipped:\n${lines.join('\n')}`);
  }
}

/** What names a program in a test's file, if not the program's name. */
const ALIASES: Readonly<Record<string, RegExp>> = {
  'redis-server': /NO_STORE|HAS_STORE|redis-server/,
  chromium: /CHROMIUM|chromium/,
  libfaketime: /FAKE_CLOCK/,
};

function reasonsOf(test: TestCase, { moduleId }: TestModule): string[] {
  const result = test.result();
  if (result.state === 'skipped' && result.note !== undefined) return [result.note];
  const file = readFileSync(moduleId, 'utf8');
  const notHere = (process.env[NOT_HERE] ?? '').split(', ').filter(Boolean);
  const named = notHere.filter((name) => test.fullName.includes(name.replace('Python ', '')));
  if (named.length > 0) return named;
  const inFile = notHere.filter((name) =>
    (ALIASES[name] ?? new RegExp(`['"]${name.replace('Python ', '')}['"]`)).test(file),
  );
  return inFile.length > 0 ? inFile : ['this machine does not allow it'];
}
