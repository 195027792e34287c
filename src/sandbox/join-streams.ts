/** Joins a member's client with the target. */
import type { Duplex, Transform } from 'node:stream';

/**
 * Carries bytes both ways until both directions have ended, each half-close passed on. Owns both streams: when one
 * closes before it has ended both ways, the other is destroyed.
 *
 * @param back - what the target's bytes go through on their way to the client.
 */
export function joinStreams(client: Duplex, target: Duplex, back?: Transform): void {
  tie(client, target);
  tie(target, client);
  client.pipe(target);
  (back === undefined ? target : target.pipe(back)).pipe(client);
}

function tie(one: Duplex, other: Duplex): void {
  const fall = () => {
    const isWhole = one.readableEnded && one.writableFinished && !one.errored;
    if (!isWhole) other.destroy();
  };
  if (one.destroyed) fall();
  else one.once('close', fall);
}
