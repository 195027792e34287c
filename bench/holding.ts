/** Measures the memory of idle tunnels, and the cost of a pick in pools of different sizes. */
import { readFileSync } from 'node:fs';
import { type Bench, closePair, openPair, workingMembers } from './bench.ts';
import { memoryKib, type Running } from './children.ts';
import { measurePick } from './pick.ts';

/**
 * The file descriptors of a subject besides those of its tunnels: listeners, recently closed sockets and Node's own.
 */
const OTHER_DESCRIPTORS = 400;
const DESCRIPTORS_PER_TUNNEL = 2;
/** These tunnels are opened and closed first, so that memory that a proxy allocates only once is not counted. */
const WARM_TUNNELS = 2_000;
const KIB_PER_MIB = 1_024;

export async function measureIdle(bench: Bench): Promise<void> {
  const { children, world, quick, report } = bench;
  // The target runs in a separate process, because the process of the members would run out of descriptors.
  const { echoPort } = await children.world({ members: 1, faults: [] });
  const most = Math.floor((mostDescriptors() - OTHER_DESCRIPTORS) / DESCRIPTORS_PER_TUNNEL);
  const [few, many] = quick ? [500, 2_500] : [2_000, Math.min(10_000, most)];
  const pair = await openPair(bench, workingMembers(world, 'http'));
  const noria = await memoryWithTunnels(bench, pair.noria, echoPort, [few, many]);
  const proxyChain = await memoryWithTunnels(bench, pair['proxy-chain'], echoPort, [few, many]);
  closePair(pair);
  for (const [at, count] of [few, many].entries()) {
    report.add({
      scenario: `resident memory, ${count.toLocaleString('en')} idle tunnels`,
      unit: 'MiB',
      noria: (noria[at] ?? 0) / KIB_PER_MIB,
      'proxy-chain': (proxyChain[at] ?? 0) / KIB_PER_MIB,
    });
  }
  // The difference between two numbers of tunnels, because the first tunnels use memory that the process already has.
  const each = ([before = 0, after = 0]: readonly number[]) => (after - before) / (many - few);
  report.add({
    scenario: 'each further idle tunnel',
    unit: 'KiB',
    noria: each(noria),
    'proxy-chain': each(proxyChain),
    ratio: each(noria) / each(proxyChain),
    target: 0.8,
    limit: { most: 1 },
  });
}

/** Returns the subject's memory in KiB with each of these numbers of idle tunnels, after garbage collection. */
async function memoryWithTunnels(
  { children }: Bench,
  subject: Running,
  target: number,
  counts: readonly number[],
): Promise<number[]> {
  const { port } = subject;
  await children.loadOrThrow({
    kind: 'tunnels',
    via: 'http',
    port,
    target,
    count: WARM_TUNNELS,
    concurrency: 64,
  });
  const kib: number[] = [];
  let held = 0;
  for (const count of counts) {
    await children.loadOrThrow({ kind: 'hold', port, target, count: count - held });
    held = count;
    kib.push(await memoryKib(subject));
  }
  await children.load({ kind: 'release' });
  return kib;
}

function mostDescriptors(): number {
  const limit = /^Max open files\s+(\d+|unlimited)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
  return limit === undefined || limit === 'unlimited' ? Number.POSITIVE_INFINITY : Number(limit);
}

export function measurePicks({ report }: Bench): void {
  for (const size of [10, 1_000, 100_000]) {
    const us = measurePick(size) / 1_000;
    const scenario = `pick and release, ${size.toLocaleString('en')} members`;
    report.add({ scenario, unit: 'µs', noria: us, limit: { most: 25 } });
  }
}
