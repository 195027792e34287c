import { defineConfig } from 'vitest/config';
<<<<<<< Updated upstream
import { LIMIT_MS } from '../../vitest.config.ts';
=======
import { LONG } from '../../vitest.config.ts';

/** The folders of `npm run mutants`. */
const folders = process.env['NORIA_MUTATED']?.split(',') ?? [];
>>>>>>> Stashed changes

// Each file in a worker of its own, and imported by vitest: a module that Node keeps would not see the next mutant's tests.
export default defineConfig({
  test: {
    /** Patterns of test files, from `npm run mutants`. */
    include: process.env['NORIA_MUTANT_TESTS']?.split(' ') ?? [],
    exclude: process.env['NORIA_MUTANT_NO_TESTS']?.split(' ') ?? [],
    globalSetup: ['test/support/machine.ts'],
    setupFiles: ['test/support/properties.ts'],
    testTimeout: 6_000,
    hookTimeout: 6_000,
  },
});
