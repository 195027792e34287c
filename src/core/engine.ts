/** JavaScript engine settings for a process that is only a proxy. A program that embeds noria must not use them. */
import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { systemClock } from './clock.ts';

/** More young memory than this saves no CPU time (docs/performance.md). Without this limit, V8 takes twice as much. */
const MAX_YOUNG_BYTES = 64 * 1024 * 1024;
/** How often the memory is checked. V8 doubles its young memory at most once in a few collections. */
const YOUNG_CHECK_MS = 250;

/**
 * Disables allocation-site pretenuring, and limits the memory of young objects. Call it before the first connection.
 *
 * If most objects of an allocation site survive young garbage collections, V8 allocates them in old space from then on, and
 * never reverts that. Many open tunnels at one moment are enough. Closed tunnels then stay in old space until the next full
 * collection and slow down every young one, which costs about a tenth of the CPU time (docs/performance.md).
 */
export function tuneForShortLives(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
  limitYoungMemory(false);
}

/**
 * Node reads the flag for the maximum only at its start. So this function disables V8's growth at the limit, and
 * enables it again after V8 has reduced the memory, as it does in quiet times.
 */
function limitYoungMemory(wasFull: boolean): void {
  const young = getHeapSpaceStatistics().find(({ space_name: name }) => name === 'new_space');
  const isFull = young !== undefined && young.space_size >= MAX_YOUNG_BYTES;
  if (isFull !== wasFull) setFlagsFromString(`--semi-space-growth-factor=${isFull ? 1 : 2}`);
  systemClock.after(YOUNG_CHECK_MS, () => limitYoungMemory(isFull)); // repeats until the process ends
}

/**
 * Collects the garbage of loading and compiling. V8 would keep these 20 MiB until memory is short, which never happens
 * in a noria with few clients. Blocks for about 25 ms, so call it once, at the start.
 */
export function collectGarbageOfStart(): void {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  if (typeof collect === 'function') collect();
}
