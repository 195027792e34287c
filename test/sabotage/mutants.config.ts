import { defineConfig } from 'vitest/config';
import { LIMIT_MS, LONG } from '../../vitest.config.ts';

/** The folders of `npm run mutants`. */
const folders = process.env['NORIA_MUTATED']?.split(',') ?? [];

// Each file in a worker of its own, and imported by vitest: a module that Node keeps would not see the next mutant's tests.
export default defineConfig({
  test: {
    include: folders.map((folder) => `test/${folder}/**/*.test.ts`),
    exclude: LONG,
    globalSetup: ['test/support/machine.ts'],
    setupFiles: ['test/support/properties.ts'],
    testTimeout: LIMIT_MS,
    hookTimeout: LIMIT_MS,
  },
});
