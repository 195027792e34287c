import { defineConfig } from 'vitest/config';

/**
 * Journeys that say nothing of the processes that serve clients: the package (which runs with two by itself), the embedded
 * demo, the dashboard, drawing, and what systemd is told (a socket it hands over is in test/workers).
 */
const NOT_OF_WORKERS = ['package', 'package-image', 'demo', 'story', 'dashboard', 'products', 'systemd'];

export default defineConfig({
  test: {
    // No file relies on a fresh process: what a test opens it closes, and nothing of ours keeps state in a module.
    isolate: false,
    // More than there are cores: the journeys wait for processes and timers most of the time.
    maxWorkers: 4,
    // Real processes on a machine that may stall for a moment: once more there, never while one works on a test.
    retry: process.env['CI'] === 'true' ? 1 : 0,
    // Real sockets and real processes: generous against a busy machine, never needed on an idle one.
    testTimeout: 20_000,
    hookTimeout: 20_000,
    projects: [
      { extends: true, test: { name: 'noria', include: ['test/**/*.test.ts'] } },
      {
        extends: true,
        test: {
          name: 'two workers',
          include: ['test/journeys/*.test.ts'],
          exclude: NOT_OF_WORKERS.map((name) => `test/journeys/${name}.test.ts`),
          env: { NORIA_TEST_WORKERS: '2', NORIA_KILLS: '3' },
        },
      },
    ],
  },
});
