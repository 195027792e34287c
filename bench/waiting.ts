/**
 * Measures latencies of clients: of tunnels at a moderate rate, of the first answer after a start, and of tunnels
 * through a bad pool.
 */
import {
  type Bench,
  closePair,
  compare,
  MEMBERS,
  openPair,
  type Pair,
  PROXIES,
  tunnels,
  workingMembers,
} from './bench.ts';
import type { LoadResult } from './load.ts';
import { figuresOf, median, quantile } from './rounds.ts';
import type { MemberFault, World } from './world.ts';

/** About half of proxy-chain's maximum rate on one core. At a low rate, all proxies are equally fast. */
const PACED_PER_SECOND = 2_000;
const BAD_PER_SECOND = 100;

export async function measurePaced(bench: Bench): Promise<void> {
  const { client, world, quick, report } = bench;
  const pair = await openPair(bench, workingMembers(world, 'http'));
  const p99s: Record<keyof Pair, number[]> = { noria: [], 'proxy-chain': [] };
  // Warms up first, because the start is measured separately.
  for (const subject of Object.values(pair)) {
    await client.loadOrThrow(tunnels(bench, subject, { count: quick ? 3_000 : 15_000 }));
  }
  const load = { count: quick ? 2_000 : 6_000, concurrency: 512, rate: PACED_PER_SECOND };
  const scenario = `tunnel at ${PACED_PER_SECOND.toLocaleString('en')} a second`;
  const rounds = quick ? 1 : 7;
  await compare(bench, pair, { scenario: `${scenario}, p50`, unit: 'ms' }, rounds, async (subject, name) => {
    const result = await client.loadOrThrow(tunnels(bench, subject, load));
    p99s[name].push(p99(result));
    return quantile(result.latenciesMs, 0.5);
  });
  closePair(pair);
  const { medians, ratio } = figuresOf(p99s, PROXIES, rounds);
  report.add({ scenario: `${scenario}, p99`, unit: 'ms', ...medians, ratio, target: 0.5 });
}

/** Measures the time from the start of the process to the first byte through a tunnel, including the draw. */
export async function measureStart(bench: Bench): Promise<void> {
  const { children, client, world, quick, report } = bench;
  const options = { ...workingMembers(world, 'http'), usable: 1 };
  const tookMs: Record<keyof Pair, number[]> = { noria: [], 'proxy-chain': [] };
  for (let round = 0; round < (quick ? 2 : 5); round += 1) {
    for (const name of PROXIES) {
      const startedAt = performance.now();
      const subject = await children.subject(name, options);
      await client.loadOrThrow(tunnels(bench, subject, { count: 1, concurrency: 1 }));
      tookMs[name].push(performance.now() - startedAt);
      subject.child.kill();
    }
  }
  const noria = median(tookMs.noria);
  const proxyChain = median(tookMs['proxy-chain']);
  report.add({ scenario: 'start to first answer', unit: 'ms', noria, 'proxy-chain': proxyChain });
}

/**
 * Measures the success rate and the latency with a bad pool, first after a cold start and then later. Of 40 members, 8
 * refuse, 4 are silent, 4 answer 502 and 4 take 2 s.
 */
export async function measureBadPool(bench: Bench): Promise<void> {
  const { children, quick } = bench;
  const faults = [
    ...Array<MemberFault>(8).fill('refusing'),
    ...Array<MemberFault>(4).fill('silent'),
    ...Array<MemberFault>(4).fill('502'),
    ...Array<MemberFault>(4).fill('slow'),
  ];
  const world = await children.world({ members: MEMBERS, faults });
  const pair = await openPair(bench, { ...workingMembers(world, 'http'), usable: 1 });
  await measureSuccess(bench, pair, world, { phase: 'cold', count: quick ? 100 : 300 });
  await measureSuccess(bench, pair, world, { phase: 'later', count: quick ? 200 : 600 });
  closePair(pair);
}

async function measureSuccess(
  bench: Bench,
  pair: Pair,
  { echoPort: target }: World,
  { phase, count }: { readonly phase: string; readonly count: number },
): Promise<void> {
  const { client, quick, report } = bench;
  const load = { target, count, concurrency: 200, rate: BAD_PER_SECOND };
  const noria = await client.load(tunnels(bench, pair.noria, load));
  // Skipped in a quick run, because proxy-chain waits ten seconds for silent members.
  const proxyChain = quick ? undefined : await client.load(tunnels(bench, pair['proxy-chain'], load));
  const figures = (of: (result: LoadResult) => number) => ({
    noria: of(noria),
    ...(proxyChain !== undefined && { 'proxy-chain': of(proxyChain) }),
  });
  const successful = `bad pool, ${phase}: successful tunnels`;
  report.add({ scenario: successful, unit: '%', ...figures(successPercent), limit: { least: 97 } });
  const latency = `bad pool, ${phase}: p99 of the successful tunnels`;
  report.add({ scenario: latency, unit: 'ms', ...figures(p99) });
}

function successPercent({ done, failed }: LoadResult): number {
  return (100 * done) / (done + failed);
}

function p99({ latenciesMs }: LoadResult): number {
  return quantile(latenciesMs, 0.99);
}
