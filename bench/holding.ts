/** What idle tunnels hold in memory, and what a pick costs in pools of different sizes. */
import { readFileSync } from 'node:fs';
import { type Bench, closePair, goodMembers, openPair } from './bench.ts';
import { type Running, weighKib } from './children.ts';
import { measurePick } from './pick.ts';

/** Beside its tunnels, a subject has its members' sockets of a moment ago, its listeners and the engine's own. */
const DESCRIPTORS_TO_SPARE = 400;
const DESCRIPTORS_PER_TUNNEL = 2;
/** Opened and closed first, so that what a proxy allocates once is not laid to the tunnels. */
const WARM_TUNNELS = 2_000;
const KIB_PER_MIB = 1_024;

export async function measureIdle(bench: Bench): Promise<void> {
  const { children, world, quick, report } = bench;
  // The target has a process of its own, or the members' would run out of descriptors first.
  const { echoPort } = await children.world({ members: 1, troubles: [] });
  const most = Math.floor((mostDescriptors() - DESCRIPTORS_TO_SPARE) / DESCRIPTORS_PER_TUNNEL);
  const [few, many] = quick ? [500, 2_500] : [2_000, Math.min(10_000, most)];
  const pair = await openPair(bench, goodMembers(world, 'http'));
  const noria = await weighTunnels(bench, pair.noria, echoPort, [few, many]);
  const proxyChain = await weighTunnels(bench, pair['proxy-chain'], echoPort, [few, many]);
  closePair(pair);
  for (const [at, count] of [few, many].entries()) {
    report.add({
      scenario: `resident memory, ${count.toLocaleString('en')} idle tunnels`,
      unit: 'MiB',
      noria: (noria[at] ?? 0) / KIB_PER_MIB,
      'proxy-chain': (proxyChain[at] ?? 0) / KIB_PER_MIB,
    });
  }
  // Between the two counts, not from none: memory that is free by then has been filled.
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

/** KiB that the subject holds with each of these numbers of idle tunnels, garbage apart. */
async function weighTunnels(
  { children }: Bench,
  subject: Running,
  target: number,
  counts: readonly number[],
): Promise<number[]> {
  const { port } = subject;
  await children.flawless({ kind: 'tunnels', via: 'http', port, target, count: WARM_TUNNELS, beside: 64 });
  const weights: number[] = [];
  let held = 0;
  for (const count of counts) {
    await children.flawless({ kind: 'hold', port, target, count: count - held });
    held = count;
    weights.push(await weighKib(subject));
  }
  await children.load({ kind: 'release' });
  return weights;
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
