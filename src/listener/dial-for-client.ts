/**
 * Dials for a client that waits for its answer, and may send more or leave meanwhile.
 *
 * Between the client's request and the answer it is read from all the same: only reading shows that it has left.
 */
import type { Socket } from 'node:net';
import type { Dialing, DialRequest, DialResult } from '../dialer/dial.ts';
import type { ConnectionContext } from './client-connection.ts';

/** What a client may send ahead of the answer; beyond it the client is paused. */
const MAX_EARLY_BYTES = 64 * 1024;

/**
 * Dials, and calls `done` once, in the tick in which its own listeners come off the client: no byte can be missed by
 * a taker that adds its own at once. `early` is what the client has sent so far.
 *
 * The dial is cancelled when the client closes, or ends without having sent anything: the result is `client-gone`.
 */
export function dialForClient(
  client: Socket,
  first: Buffer | undefined,
  context: ConnectionContext,
  request: DialRequest,
  done: (result: DialResult, early: Buffer | undefined) => void,
): void {
  const chunks: Buffer[] = first === undefined || first.length === 0 ? [] : [first];
  let earlyBytes = first?.length ?? 0;

  const onData = (chunk: Buffer): void => {
    chunks.push(chunk);
    earlyBytes += chunk.length;
    if (earlyBytes >= MAX_EARLY_BYTES) client.pause();
  };
  // None when the dial could not even begin, and its caller closes the client for that.
  let dialing: Dialing | undefined;
  const leave = (): void => dialing?.cancel();
  const onEnd = (): void => {
    if (earlyBytes === 0) leave();
  };

  client.on('data', onData).on('end', onEnd).on('close', leave);
  client.resume();
  dialing = context.options.dialer.dial(request, (result) => {
    client.off('data', onData).off('end', onEnd).off('close', leave);
    try {
      done(result, chunks.length > 1 ? Buffer.concat(chunks) : chunks[0]);
    } catch (error) {
      context.broke(error);
    }
  });
  if (client.destroyed || (client.readableEnded && earlyBytes === 0)) leave();
}
