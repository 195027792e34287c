/** JavaScript engine settings for a process that is only a proxy. Not for a program that embeds noria. */
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

/**
 * Disables allocation-site pretenuring. Call it before the first connection.
 *
 * If most objects of an allocation site survive young garbage collections, V8 allocates them in old space from then on, and
 * never reverts that. Many open tunnels at one moment are enough. Closed tunnels then stay in old space until the next full
 * collection and slow down every young one, which costs about a tenth of the CPU time (docs/performance.md).
 */
export function tuneForShortLives(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
}

/**
 * Collects what loading and compiling left behind. V8 would keep these 20 MiB until something needs memory, which is never the
 * case in a noria with few clients. Blocks for some 25 ms, so call it once, at the start.
 */
export function collectGarbageOfStart(): void {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  if (typeof collect === 'function') collect();
}
