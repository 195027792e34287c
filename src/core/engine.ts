/**
 * JavaScript engine settings for a process that runs only the proxy. A program that embeds noria must not use them.
 */
import { executionAsyncResource } from 'node:async_hooks';
import { getHeapSpaceStatistics, type HeapSpaceInfo, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { systemClock } from './clock.ts';

/** A larger young generation saves no more CPU time (docs/performance.md). V8 alone lets it grow to twice this size. */
const MAX_YOUNG_BYTES = 64 * 1024 * 1024;
/**
 * V8 counts buffers, and objects of the old generation, and by default allows about 8 MiB for a heap as small as noria's.
 * The buffers of tunnels reach 8 MiB before a young collection frees them, so V8 would often run a full collection.
 */
const FULL_COLLECTION_BYTES = 32 * 1024 * 1024;
/** V8 doubles the young generation only after several collections, so more frequent checks are not needed. */
const HEAP_CHECK_MS = 250;

const flags = new Map<string, number>();
const tickObjects: object[] = [];

/**
 * Disables allocation-site pretenuring, limits the size of the young generation, delays full collections, and keeps
 * process.nextTick() fast. Call it before the first connection.
 *
 * With pretenuring, V8 watches where the code allocates objects. If most objects from one place in the code survive
 * young collections, V8 allocates all further objects of this place in old space, and never returns to the young
 * generation. Many simultaneously open tunnels are enough to cause this. From then on, closed tunnels stay in old space
 * until the next full collection, and slow down every young collection. The loss is about a tenth of the CPU time
 * (docs/performance.md).
 */
export function tuneForShortLives(): void {
  setFlagsFromString('--no-allocation-site-pretenuring');
  checkHeap();
  keepTickObject();
}

/**
 * Keeps in memory one of the objects in which Node queues the callbacks of process.nextTick(). If a full collection
 * finds none of these objects, V8 no longer optimizes the code that creates them. From then on, process.nextTick()
 * takes five times as long, and a tunnel takes about a twentieth more CPU time (docs/performance.md).
 */
function keepTickObject(): void {
  process.nextTick(() => tickObjects.push(executionAsyncResource()));
}

function checkHeap(): void {
  const spaces = getHeapSpaceStatistics();
  limitYoungMemory(spaces);
  delayFullCollections(spaces);
  systemClock.after(HEAP_CHECK_MS, checkHeap);
}

/**
 * Stops the growth of the young generation while it has MAX_YOUNG_BYTES or more. V8 makes it smaller when there are few
 * allocations; then it may grow again. The V8 flag for the maximum size has no effect after Node has started.
 */
function limitYoungMemory(spaces: readonly HeapSpaceInfo[]): void {
  const young = spaces.find(({ space_name: name }) => name === 'new_space');
  const isFull = young !== undefined && young.space_size >= MAX_YOUNG_BYTES;
  setFlag('semi-space-growth-factor', isFull ? 1 : 2);
}

/** The flag takes the amount as a percentage of the old generation. Rounded to 0, V8 chooses the amount itself. */
function delayFullCollections(spaces: readonly HeapSpaceInfo[]): void {
  const old = spaces.filter(({ space_name: name }) => !name.startsWith('new_') && name !== 'read_only_space');
  const oldBytes = old.reduce((sum, { space_used_size: bytes }) => sum + bytes, 0);
  setFlag('heap-growing-percent', Math.round((10 * FULL_COLLECTION_BYTES) / oldBytes) * 10);
}

function setFlag(name: string, value: number): void {
  if (flags.get(name) === value) return;
  flags.set(name, value);
  setFlagsFromString(`--${name}=${value}`);
}

/**
 * Collects the garbage of loading and compiling the code, and gives the empty memory back: about 40 MiB, which V8 would keep
 * forever in a noria with few clients. Blocks the process for about 50 ms, so call this function only once, at the start.
 */
export function collectGarbageOfStart(): void {
  setFlagsFromString('--expose-gc');
  const collect: unknown = runInNewContext('gc');
  // a regular collection keeps the pages of the young generation, 8 to 20 MiB
  if (typeof collect === 'function') collect({ type: 'major', execution: 'sync', flavor: 'last-resort' });
}
