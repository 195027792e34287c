/**
 * Measures latencies of clients: of tunnels at a moderate rate, of the first answer after a start, and of tunnels
 * through a bad pool.
 */
import { type Bench, closePair, compare, MEMBERS, openPair, type Pair, workingMembers } from './bench.ts';
import type { Running } from './children.ts';
import type { Load, LoadResult } from './load.ts';
import { figuresOf, median, quantile } from './rounds.ts';
import type { MemberFault } from './world.ts';

/** About half of proxy-chain's maximum rate on one core. At a low rate, all proxies are equally fast. */
const PACED_PER_SECOND = 2_000;
const BAD_PER_SECOND = 100;
const PROXIES = ['noria', 'proxy-chain'] as const;

export async function measurePaced(bench: Bench): Promise<void> {
  const { children, world, quick, report } = bench;
  const pair = await openPair(bench, workingMembers(world, 'http'));
  const p99s: Record<keyof Pair, number[]> = { noria: [], 'proxy-chain': [] };
  const load = {
    kind: 'tunnels',
    via: 'http',
    target: world.echoPort,
    count: quick ? 2_000 : 6_000,
    concurrency: 512,
  } as const;
  // Warms up first, because the start is measured separately.
  for (const { port } of Object.values(pair)) {
    await children.loadOrThrow({ ...load, port, count: quick ? 3_000 : 15_000, concurrency: 64 });
  }
  const about = { scenario: `tunnel at ${PACED_PER_SECOND.toLocaleString('en')} a second, p50`, unit: 'ms' };
  const rounds = quick ? 1 : 7;
  await compare(bench, pair, about, rounds, async ({ port }, name) => {
    const { latenciesMs } = await children.loadOrThrow({
      ...load,
      port,
      rate: PACED_PER_SECOND,
    } satisfies Load);
    p99s[name].push(quantile(latenciesMs, 0.99));
    return quantile(latenciesMs, 0.5);
  });
  closePair(pair);
  const { medians, ratio } = figuresOf(p99s, PROXIES, rounds);
  report.add({
    scenario: `tunnel at ${PACED_PER_SECOND.toLocaleString('en')} a second, p99`,
    unit: 'ms',
    ...medians,
    ratio,
    target: 0.5,
  });
}

/** Measures the time from the start of the process to the first byte through a tunnel, including the draw. */
export async function measureStart(bench: Bench): Promise<void> {
  const { children, world, quick, report } = bench;
  const options = { ...workingMembers(world, 'http'), usable: 1 };
  const tookMs: Record<keyof Pair, number[]> = { noria: [], 'proxy-chain': [] };
  for (let round = 0; round < (quick ? 2 : 5); round += 1) {
    for (const name of PROXIES) {
      const startedAt = performance.now();
      const { child, port } = await children.subject(name, options);
      await children.loadOrThrow({
        kind: 'tunnels',
        via: 'http',
        port,
        target: world.echoPort,
        count: 1,
        concurrency: 1,
      });
      tookMs[name].push(performance.now() - startedAt);
      child.kill();
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
  for (const [phase, count] of [
    ['cold', 300],
    ['later', 600],
  ] as const) {
    const load = {
      kind: 'tunnels',
      via: 'http',
      target: world.echoPort,
      concurrency: 200,
      rate: BAD_PER_SECOND,
    } as const;
    const one = (subject: Running) =>
      children.load({ ...load, port: subject.port, count: quick ? count / 3 : count });
    const noria = await one(pair.noria);
    // Skipped in a quick run, because proxy-chain waits ten seconds for silent members.
    const proxyChain = await (quick ? undefined : one(pair['proxy-chain']));
    const scenario = `bad pool, ${phase}`;
    bench.report.add({
      scenario: `${scenario}: successful tunnels`,
      unit: '%',
      noria: successPercent(noria),
      ...(proxyChain === undefined ? {} : { 'proxy-chain': successPercent(proxyChain) }),
      limit: { least: 97 },
    });
    bench.report.add({
      scenario: `${scenario}: p99 of the successful tunnels`,
      unit: 'ms',
      noria: quantile(noria.latenciesMs, 0.99),
      ...(proxyChain === undefined ? {} : { 'proxy-chain': quantile(proxyChain.latenciesMs, 0.99) }),
    });
  }
  closePair(pair);
}

function successPercent({ done, failed }: LoadResult): number {
  return (100 * done) / (done + failed);
}
