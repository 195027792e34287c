/** A worker without a data plane. It crashes or ignores `close` when a test says so through `resetRefusals`. */
import { decodeFromIpc } from '../../../src/plane/workers/ipc-encoding.ts';
import type { RemoteMessage } from '../../../src/plane/workers/remote-calls.ts';

let stays = false;

process.on('message', (batch: readonly RemoteMessage[]) => {
  for (const message of batch) {
    if (message.kind !== 'call' || !('encoded' in message.args)) continue;
    const [order] = decodeFromIpc<string[]>(message.args);
    if (order === 'stay') stays = true;
    if (order === 'crash') crash();
    if (message.call === 'close' && !stays) process.exit(0);
  }
});
process.send?.([{ kind: 'loaded' }]);

function crash(): void {
  process.send?.([{ kind: 'crashed', stack: 'Error: told to crash' }], () => process.exit(1));
}
