/** Waiting for the end of a socket or server that has been told to end. */
import type { EventEmitter } from 'node:events';

/** Resolves when it has closed, with or without an error before (`events.once` would reject then). */
export function closed(ending: EventEmitter): Promise<void> {
  return new Promise((resolve) => ending.once('close', () => resolve()));
}
