/** A worker without a data plane. It crashes or ignores `close` when a test says so through `reset-refusals`. */
import type { ToWorker } from '../../../src/plane/workers/messages.ts';

let stays = false;

process.on('message', (batch: readonly ToWorker[]) => {
  for (const message of batch) {
    if (message.kind === 'reset-refusals' && message.source === 'stay') stays = true;
    if (message.kind === 'reset-refusals' && message.source === 'crash') crash();
    if (message.kind === 'close' && !stays) process.exit(0);
  }
});
process.send?.([{ kind: 'loaded' }]);

function crash(): void {
  process.send?.([{ kind: 'crashed', stack: 'Error: told to crash' }], () => process.exit(1));
}
