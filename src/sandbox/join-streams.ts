import type { Duplex, Transform } from 'node:stream';

/**
 * Relays bytes in both directions between a member's client and the target, and passes on half-closes. Owns both
 * streams: when one stream closes before both of its directions have ended, the other stream is destroyed.
 *
 * @param back - transforms the target's bytes on their way to the client.
 */
export function joinStreams(client: Duplex, target: Duplex, back?: Transform): void {
  destroyWith(client, target);
  destroyWith(target, client);
  client.pipe(target);
  (back === undefined ? target : target.pipe(back)).pipe(client);
}

function destroyWith(one: Duplex, other: Duplex): void {
  const onClose = () => {
    const hasEnded = one.readableEnded && one.writableFinished && !one.errored;
    if (!hasEnded) other.destroy();
  };
  if (one.destroyed) onClose();
  else one.once('close', onClose);
}
