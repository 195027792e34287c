/** A worker without a data plane. It crashes or ignores `close` when a test says so through `resetRefusals`. */
import { decodeFromIpc } from '../../../src/plane/workers/ipc-encoding.ts';
import type { ToWorker } from '../../../src/plane/workers/messages.ts';

let stays = false;

process.on('message', (batch: readonly ToWorker[]) => {
  for (const message of batch) {
    const [order] = message.kind === 'call' ? decodeFromIpc<string[]>(message.args) : [];
    if (order === 'stay') stays = true;
    if (order === 'crash') crash();
    if (message.kind === 'close' && !stays) process.exit(0);
  }
});
process.send?.([{ kind: 'loaded' }]);

function crash(): void {
  process.send?.([{ kind: 'crashed', stack: 'Error: told to crash' }], () => process.exit(1));
}
