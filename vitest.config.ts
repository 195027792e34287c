import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // No file relies on a fresh process: what a test opens it closes, and nothing of ours keeps state in a module.
    isolate: false,
    // More than there are cores: the journeys wait for processes and timers most of the time.
    maxWorkers: 4,
    // Real processes on a machine that may stall for a moment: once more there, never while one works on a test.
    retry: process.env['CI'] === 'true' ? 1 : 0,
    // Real sockets and real processes: generous against a busy machine, never needed on an idle one.
    testTimeout: 20_000,
    hookTimeout: 20_000,
  },
});
