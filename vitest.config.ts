import './scripts/check-node.cjs';
import { join, relative } from 'node:path';
import { defineConfig } from 'vitest/config';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/** Journeys that two worker processes could change: who serves, what is shared between them, how they end. */
const WITH_WORKERS = [
  'crash',
  'curl',
  'dying-member',
  'front-proxy',
  'own-address',
  'process',
  'proxy-pool',
  'refused-source',
  'reload',
  'rotation',
  'secrets',
];

/** A safety net for a machine that is busy with other work. No test measures time, and none takes this long. */
const LIMIT_MS = 300_000;

/** The folders and files of long tests. Most of their time, they wait for other processes. */
const LONG = /^test\/(journeys|chaos|plane\/workers|refill\/simulation|fleet|differential)\//;

/** Starts the longest tests first, so that the short ones fill the cores until the end. */
class LongestFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const rank = ({ project, moduleId }: TestSpecification) => {
      if (project.name === TWO_WORKERS) return 0;
      return LONG.test(relative(import.meta.dirname, moduleId)) ? 1 : 2;
    };
    return (await super.sort(files)).sort((a, b) => rank(a) - rank(b)); // stable
  }
}

const TWO_WORKERS = 'two workers';

export default defineConfig({
  test: {
    // Test files may share a process: each closes what it opens, and no module of noria keeps state.
    isolate: false,
    // More than there are cores: the journeys wait for other processes most of the time.
    maxWorkers: 8,
    sequence: { sequencer: LongestFirst },
    env: { NODE_COMPILE_CACHE: join(import.meta.dirname, 'node_modules/.cache/compile') },
    globalSetup: ['test/support/machine.ts'],
    reporters: ['default', './test/support/skipped-tests.ts'],
    setupFiles: ['test/support/properties.ts'],
    testTimeout: LIMIT_MS,
    hookTimeout: LIMIT_MS,
    projects: [
      { extends: true, test: { name: 'noria', include: ['test/**/*.test.ts'] } },
      {
        extends: true,
        test: {
          name: TWO_WORKERS,
          include: WITH_WORKERS.map((name) => `test/journeys/${name}.test.ts`),
          env: { NORIA_TEST_WORKERS: '2', NORIA_KILLS: '2' },
        },
      },
    ],
  },
});
