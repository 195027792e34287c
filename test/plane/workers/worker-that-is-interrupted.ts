/**
 * A worker for tests. The first process that runs it receives SIGINT while it loads, as from a terminal. The others
 * obey.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

function isFirst(): boolean {
  try {
    mkdirSync(join(process.env['NORIA_TEST_MARKS'] ?? '', 'first'));
    return true;
  } catch {
    return false; // handled: another worker was the first
  }
}

if (isFirst()) process.kill(process.pid, 'SIGINT');
else await import('./worker-that-obeys.ts');
