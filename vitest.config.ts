import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // Real sockets and real processes: generous against a busy machine, never needed on an idle one.
    testTimeout: 20_000,
    hookTimeout: 20_000,
  },
});
