/**
 * Dials for a client that waits for its answer, and may send more or leave meanwhile.
 *
 * Between the client's request and the answer it is read from all the same: only reading shows that it has left.
 */
import type { Socket } from 'node:net';
import type { DialRequest, DialResult } from '../dialer/dial.ts';
import type { ConnectionContext } from './connection.ts';

/** What a client may send ahead of the answer; beyond it the client is paused. */
const MAX_EARLY_BYTES = 64 * 1024;

/**
 * Dials, and calls `done` once, in the tick in which its own listeners come off the client: no byte can be missed by
 * a taker that adds its own at once. `early` is what the client has sent so far.
 *
 * The dial is cancelled when the client closes, or ends without having sent anything: then, and when it left just as
 * a way stood, the result is `client-gone`, and no way is left open.
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
  let gone = false;

  const onData = (chunk: Buffer): void => {
    chunks.push(chunk);
    earlyBytes += chunk.length;
    if (earlyBytes >= MAX_EARLY_BYTES) client.pause();
  };
  const leave = (): void => {
    gone = true;
    dialing.cancel();
  };
  const onEnd = (): void => {
    if (earlyBytes === 0) leave();
  };

  const dialing = context.options.dialer.dial(request);
  client.on('data', onData).on('end', onEnd).on('close', leave);
  client.resume();
  if (client.destroyed || (client.readableEnded && earlyBytes === 0)) leave();

  void dialing.result.then((result) => {
    client.off('data', onData).off('end', onEnd).off('close', leave);
    try {
      done(gone ? abandon(result) : result, chunks.length > 1 ? Buffer.concat(chunks) : chunks[0]);
    } catch (error) {
      context.broke(error);
    }
  });
}

function abandon(result: DialResult): DialResult {
  if (!result.ok && result.failure.code === 'client-gone') return result;
  const attempts = result.ok ? result.way.attempts : result.failure.attempts;
  if (result.ok) {
    result.way.socket.destroy();
    result.way.end({ cut: false });
  }
  return { ok: false, failure: { code: 'client-gone', reason: 'The client left.', attempts } };
}
