/** What a process that is a proxy and nothing else asks of the JavaScript engine. Not for a process that has other work too. */
import { setFlagsFromString } from 'node:v8';

/**
 * Call it before the first connection.
 *
 * V8 notices where most objects outlive a young collection, and from then on allocates such objects as old ones. It
 * decides so once and for all; a moment with many open tunnels is enough. Then every tunnel that ever was holds a
 * young collection's work up until the next full one, a tenth of all CPU time (docs/performance.md).
 */
export function tuneForShortLives(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
}
