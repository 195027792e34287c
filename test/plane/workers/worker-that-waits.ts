/** The first of them loads and dies; the second loads when there is a mark for it to go; the others load at once. */
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { ToWorker } from '../../../src/plane/workers/messages.ts';

const marks = process.env['NORIA_TEST_MARKS'] ?? '';

function isFirst(mark: string): boolean {
  try {
    mkdirSync(join(marks, mark));
    return true;
  } catch {
    return false; // handled: another one was
  }
}

process.on('message', (batch: readonly ToWorker[]) => {
  if (batch.some(({ kind }) => kind === 'close')) process.exit(0);
});

function load(then = () => {}): void {
  process.send?.([{ kind: 'loaded' }], then);
}

if (isFirst('first')) load(() => process.exit(4));
else if (isFirst('second')) {
  const looking = setInterval(() => {
    if (!existsSync(join(marks, 'go'))) return;
    clearInterval(looking);
    load();
  }, 5);
} else load();
