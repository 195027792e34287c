/** Measures the memory of idle tunnels. */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { type Bench, type Pair, tunnels, workingMembers } from './bench.ts';
import { memoryKib } from './children.ts';

/** The file descriptors of a process besides those of its tunnels: listeners, recently closed sockets and Node's own. */
const OTHER_DESCRIPTORS = 400;
/** In the process of a proxy, and in the process of the members. */
const DESCRIPTORS_PER_TUNNEL = 2;
/** These tunnels are opened and closed first, so that memory that a proxy allocates only once is not counted. */
const WARM_TUNNELS = 2_000;
const KIB_PER_MIB = 1_024;

export async function measureIdle(bench: Bench): Promise<void> {
  const { children, quick, report } = bench;
  // The target runs in a separate process, because the process of the members would run out of descriptors.
  const { echoPort } = await children.world({ members: 1, faults: [] });
  const most = Math.floor((mostDescriptors() - OTHER_DESCRIPTORS) / DESCRIPTORS_PER_TUNNEL);
  const counts = quick ? ([500, 2_500] as const) : ([2_000, Math.min(10_000, most)] as const);
  const noria = await memoryWithTunnels(bench, 'noria', echoPort, counts);
  const proxyChain = await memoryWithTunnels(bench, 'proxy-chain', echoPort, counts);
  for (const [at, count] of counts.entries()) {
    report.add({
      scenario: `resident memory, ${count.toLocaleString('en')} idle tunnels`,
      unit: 'MiB',
      noria: (noria[at] ?? 0) / KIB_PER_MIB,
      'proxy-chain': (proxyChain[at] ?? 0) / KIB_PER_MIB,
    });
  }
  // The difference between two numbers of tunnels, because the first tunnels use memory that the process already has.
  const [few, many] = counts;
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

/** Returns the memory of a new proxy in KiB with each of these numbers of idle tunnels, after garbage collection. */
async function memoryWithTunnels(
  bench: Bench,
  name: keyof Pair,
  target: number,
  counts: readonly number[],
): Promise<number[]> {
  const { children, client, world } = bench;
  const subject = await children.subject(name, workingMembers(world, 'http'));
  const { child, port } = subject;
  await client.loadOrThrow(tunnels(bench, subject, { target, count: WARM_TUNNELS }));
  const kib: number[] = [];
  let held = 0;
  for (const count of counts) {
    await client.loadOrThrow({ kind: 'hold', port, target, count: count - held });
    held = count;
    kib.push(await memoryKib(subject));
  }
  await client.load({ kind: 'release' });
  // The process of the members does not have enough descriptors for the tunnels of two proxies.
  child.kill();
  await once(child, 'exit');
  return kib;
}

function mostDescriptors(): number {
  const limit = /^Max open files\s+(\d+|unlimited)/m.exec(readFileSync('/proc/self/limits', 'utf8'))?.[1];
  return limit === undefined || limit === 'unlimited' ? Number.POSITIVE_INFINITY : Number(limit);
}
