/** A worker that does nothing: it crashes when told to, and closes when told to, unless it was told to stay. */
import type { ToWorker } from '../../../src/plane/workers/messages.ts';

let stays = false;

process.on('message', (batch: readonly ToWorker[]) => {
  for (const message of batch) {
    if (message.kind === 'forgive' && message.source === 'stay') stays = true;
    if (message.kind === 'forgive' && message.source === 'crash') crash();
    if (message.kind === 'close' && !stays) process.exit(0);
  }
});
process.send?.([{ kind: 'loaded' }]);

function crash(): void {
  process.send?.([{ kind: 'crashed', stack: 'Error: told to crash' }], () => process.exit(1));
}
