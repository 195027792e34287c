import { defineConfig } from 'vitest/config';
import { LIMIT_MS } from '../../vitest.config.ts';

// Each file in a worker of its own, and imported by vitest: a module that Node keeps would not see the next mutant's tests.
export default defineConfig({
  test: {
    /** Patterns of test files, from `npm run mutants`. */
    include: process.env['NORIA_MUTANT_TESTS']?.split(' ') ?? [],
    exclude: process.env['NORIA_MUTANT_NO_TESTS']?.split(' ') ?? [],
    globalSetup: ['test/support/machine.ts'],
    setupFiles: ['test/support/properties.ts'],
    testTimeout: LIMIT_MS,
    hookTimeout: LIMIT_MS,
  },
});
