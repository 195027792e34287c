import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

/** Journeys that two worker processes could change: who serves, what is shared between them, how they end. */
const WITH_WORKERS = [
  'crash',
  'curl',
  'dying-member',
  'fleet',
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
const LIMIT_MS = 120_000;

export default defineConfig({
  test: {
    // Test files may share a process: each closes what it opens, and no module of noria keeps state.
    isolate: false,
    // More than there are cores: the journeys wait for other processes most of the time.
    maxWorkers: 4,
    env: { NODE_COMPILE_CACHE: join(import.meta.dirname, 'node_modules/.cache/compile') },
    setupFiles: ['test/support/properties.ts'],
    testTimeout: LIMIT_MS,
    hookTimeout: LIMIT_MS,
    projects: [
      { extends: true, test: { name: 'noria', include: ['test/**/*.test.ts'] } },
      {
        extends: true,
        test: {
          name: 'two workers',
          include: WITH_WORKERS.map((name) => `test/journeys/${name}.test.ts`),
          env: { NORIA_TEST_WORKERS: '2', NORIA_KILLS: '3' },
        },
      },
    ],
  },
});
