/** What a client waits for: a tunnel at an easy pace, the first answer after a start, a tunnel from a bad pool. */
import { type Bench, closePair, compare, goodMembers, MEMBERS, openPair, type Pair } from './bench.ts';
import type { Running } from './children.ts';
import type { Load, LoadResult } from './load.ts';
import { at, median } from './rounds.ts';
import type { Trouble } from './world.ts';

/** About half of what proxy-chain can do on one core: at a pace that leaves a proxy idle, all are alike. */
const PACED_PER_SECOND = 2_000;
const BAD_PER_SECOND = 100;
const PROXIES = ['noria', 'proxy-chain'] as const;

export async function measurePaced(bench: Bench): Promise<void> {
  const { children, world, quick, report } = bench;
  const pair = await openPair(bench, goodMembers(world, 'http'));
  const p99s: Record<keyof Pair, number[]> = { noria: [], 'proxy-chain': [] };
  const load = {
    kind: 'tunnels',
    via: 'http',
    target: world.echoPort,
    count: quick ? 2_000 : 6_000,
    beside: 512,
  } as const;
  // What compiling costs at first is another matter: see the start.
  for (const { port } of Object.values(pair)) {
    await children.flawless({ ...load, port, count: quick ? 3_000 : 15_000, beside: 64 });
  }
  const about = { scenario: `tunnel at ${PACED_PER_SECOND.toLocaleString('en')} a second, p50`, unit: 'ms' };
  const rounds = quick ? 1 : 7;
  await compare(bench, pair, about, rounds, async ({ port }, name) => {
    const { latenciesMs } = await children.flawless({ ...load, port, rate: PACED_PER_SECOND } satisfies Load);
    p99s[name].push(at(latenciesMs, 0.99));
    return at(latenciesMs, 0.5);
  });
  closePair(pair);
  const counted = (name: keyof Pair) => p99s[name].slice(-rounds);
  const ratio = median(
    counted('noria').map((p99, round) => p99 / (counted('proxy-chain')[round] ?? Number.NaN)),
  );
  report.add({
    scenario: `tunnel at ${PACED_PER_SECOND.toLocaleString('en')} a second, p99`,
    unit: 'ms',
    noria: median(counted('noria')),
    'proxy-chain': median(counted('proxy-chain')),
    ratio,
    target: 0.5,
  });
}

/** From the start of the process to the first byte through a tunnel, the draw from the service included. */
export async function measureStart(bench: Bench): Promise<void> {
  const { children, world, quick, report } = bench;
  const options = { ...goodMembers(world, 'http'), usable: 1 };
  const tookMs: Record<keyof Pair, number[]> = { noria: [], 'proxy-chain': [] };
  for (let round = 0; round < (quick ? 2 : 5); round += 1) {
    for (const name of PROXIES) {
      const startedAt = performance.now();
      const { child, port } = await children.subject(name, options);
      await children.flawless({
        kind: 'tunnels',
        via: 'http',
        port,
        target: world.echoPort,
        count: 1,
        beside: 1,
      });
      tookMs[name].push(performance.now() - startedAt);
      child.kill();
    }
  }
  const noria = median(tookMs.noria);
  const proxyChain = median(tookMs['proxy-chain']);
  report.add({ scenario: 'start to first answer', unit: 'ms', noria, 'proxy-chain': proxyChain });
}

/** 8 of 40 refuse, 4 are silent, 4 answer 502, 4 are slow by 2 s: how many tunnels come about, from a cold start and later. */
export async function measureBadPool(bench: Bench): Promise<void> {
  const { children, quick } = bench;
  const troubles = [
    ...Array<Trouble>(8).fill('refusing'),
    ...Array<Trouble>(4).fill('silent'),
    ...Array<Trouble>(4).fill('502'),
    ...Array<Trouble>(4).fill('slow'),
  ];
  const world = await children.world({ members: MEMBERS, troubles });
  const pair = await openPair(bench, { ...goodMembers(world, 'http'), usable: 1 });
  for (const [phase, count] of [
    ['cold', 300],
    ['later', 600],
  ] as const) {
    const load = {
      kind: 'tunnels',
      via: 'http',
      target: world.echoPort,
      beside: 200,
      rate: BAD_PER_SECOND,
    } as const;
    const one = (subject: Running) =>
      children.load({ ...load, port: subject.port, count: quick ? count / 3 : count });
    const noria = await one(pair.noria);
    const told = await (quick ? undefined : one(pair['proxy-chain'])); // it has ten seconds of silence to wait out
    const scenario = `bad pool, ${phase}`;
    bench.report.add({
      scenario: `${scenario}: successful tunnels`,
      unit: '%',
      noria: share(noria),
      ...(told === undefined ? {} : { 'proxy-chain': share(told) }),
      limit: { least: 97 },
    });
    bench.report.add({
      scenario: `${scenario}: p99 of those`,
      unit: 'ms',
      noria: at(noria.latenciesMs, 0.99),
      ...(told === undefined ? {} : { 'proxy-chain': at(told.latenciesMs, 0.99) }),
    });
  }
  closePair(pair);
}

function share({ done, failed }: LoadResult): number {
  return (100 * done) / (done + failed);
}
