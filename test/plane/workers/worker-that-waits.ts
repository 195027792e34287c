/**
 * A worker for tests. The first process that runs it loads and exits. The second loads when the file `go` exists. The
 * others load immediately.
 */
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { RemoteMessage } from '../../../src/plane/workers/remote-calls.ts';

const marks = process.env['NORIA_TEST_MARKS'] ?? '';

function isFirst(mark: string): boolean {
  try {
    mkdirSync(join(marks, mark));
    return true;
  } catch {
    return false; // handled: another worker was the first
  }
}

process.on('message', (batch: readonly RemoteMessage[]) => {
  if (batch.some((message) => message.kind === 'call' && message.call === 'close')) process.exit(0);
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
