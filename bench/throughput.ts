/** Measures the CPU time of the proxy's process per tunnel, per byte and per request. */
import {
  type Bench,
  closePair,
  compare,
  measureLoad,
  openPair,
  type Pair,
  PROXIES,
  tunnels,
  warmUp,
  workingMembers,
} from './bench.ts';
import { cpuMs, cpuMsOfAllThreads, type Running } from './children.ts';
import { figuresOf, measureInRounds, quantile } from './rounds.ts';
import { type ForeignName, isInstalled } from './subject-foreign.ts';

const GIGABYTE = 1e9;
const US_PER_SECOND = 1e6;
const CONCURRENT_REQUESTS = 32;
const FOREIGN: readonly ForeignName[] = ['tinyproxy', 'squid'];
const TUNNEL_GOAL = { target: 0.55, limit: { most: 1.1 } } as const;

export async function measureThroughput(bench: Bench): Promise<void> {
  const { children, world } = bench;
  const pair = await openPair(bench, workingMembers(world, 'http'));
  const bare = await children.subject('bare', workingMembers(world, 'http'));
  await measureSetUp(bench, pair, bare);
  await measureBulk(bench, pair, bare);
  await measureMessages(bench, pair);
  if (!bench.quick) await measureForeign(bench, pair);
  bare.child.kill();
  closePair(pair);

  const socks = await openPair(bench, workingMembers(world, 'socks5'));
  const row = { scenario: 'tunnel, HTTP in, SOCKS5 member', unit: 'CPU µs', ...TUNNEL_GOAL };
  await compare(bench, socks, row, rounds(bench), (subject) => tunnelUs(bench, subject, 'http'));
  closePair(socks);
}

async function measureSetUp(bench: Bench, pair: Pair, bare: Running): Promise<void> {
  if (!bench.quick)
    for (const subject of [pair.noria, pair['proxy-chain'], bare]) await warmUp(bench, subject);
  for (const via of ['http', 'socks5'] as const) {
    const figures = await measureInRounds(
      { ...pair, bare },
      PROXIES,
      rounds(bench),
      // proxy-chain accepts no SOCKS5 clients, so SOCKS5 tunnels are compared with HTTP tunnels of proxy-chain.
      (subject, name) => tunnelUs(bench, subject, name === 'proxy-chain' ? 'http' : via),
    );
    const { medians, ratio } = figures;
    const scenario = `tunnel, ${via === 'http' ? 'HTTP' : 'SOCKS5'} in, HTTP member`;
    bench.report.add({ scenario, unit: 'CPU µs', ...medians, ratio, ...TUNNEL_GOAL });
  }
}

/** What the request records cost: noria with its ledger, and without anything that reads records. */
export async function measureLedger(bench: Bench): Promise<void> {
  const { children, world, quick, report } = bench;
  const options = workingMembers(world, 'http');
  const subjects = {
    recorded: await children.subject('noria', options),
    unrecorded: await children.subject('noria', { ...options, unrecorded: true }),
  };
  if (!quick) for (const subject of Object.values(subjects)) await warmUp(bench, subject);
  const { medians, ratio } = await measureInRounds(
    subjects,
    ['recorded', 'unrecorded'],
    quick ? 3 : 31,
    (subject) => tunnelUs(bench, subject, 'http'),
  );
  closePair(subjects);
  const goal = { target: 1.03, limit: { most: 1.35 } };
  report.add({ scenario: 'tunnel, recorded', unit: 'CPU µs', noria: medians.recorded, ratio, ...goal });
}

async function tunnelUs(bench: Bench, subject: Running, via: 'http' | 'socks5'): Promise<number> {
  const count = bench.quick ? 800 : 2_000;
  return (await measureLoad(bench, subject, tunnels(bench, subject, { via, count }))).cpuUs;
}

async function measureBulk(bench: Bench, pair: Pair, bare: Running): Promise<void> {
  const { world, quick, report } = bench;
  const load = { kind: 'bulk', target: world.bulkPort, bytes: quick ? 100e6 : 250e6 } as const;
  const { medians, ratio } = await measureInRounds(
    { ...pair, bare },
    PROXIES,
    rounds(bench),
    async (subject) => {
      const { cpuUs } = await measureLoad(bench, subject, { ...load, port: subject.port });
      return (cpuUs * GIGABYTE) / US_PER_SECOND;
    },
  );
  // On a machine whose clients read slower than noria writes, pieces get small, and both proxies cost the same.
  const goal = { target: 0.6, limit: { most: 1.25 } };
  report.add({ scenario: 'bulk download', unit: 'CPU s per GB', ...medians, ratio, ...goal });
}

async function measureMessages(bench: Bench, pair: Pair): Promise<void> {
  const { world, quick } = bench;
  await measureEchoes(bench, pair, 1, 'one byte');
  await measureEchoes(bench, pair, 1_024, '1 KiB');
  const gets = {
    kind: 'gets',
    target: world.httpPort,
    count: quick ? 2_000 : 5_000,
    concurrency: CONCURRENT_REQUESTS,
  } as const;
  const goal = { target: 0.8, limit: { most: 0.95 } };
  const row = { scenario: 'absolute-form GET, kept connections', unit: 'CPU µs', ...goal };
  await compare(bench, pair, row, rounds(bench), async (subject) => {
    return (await measureLoad(bench, subject, { ...gets, port: subject.port })).cpuUs;
  });
}

/**
 * Measures requests of this size, which the target echoes, in open tunnels: the CPU time and the 99th percentile of the
 * latency.
 */
async function measureEchoes(bench: Bench, pair: Pair, bytes: number, size: string): Promise<void> {
  const { world, quick, report } = bench;
  const echoes = {
    kind: 'echoes',
    target: world.echoPort,
    bytes,
    count: quick ? 6_000 : 15_000,
    concurrency: CONCURRENT_REQUESTS,
  } as const;
  const scenario = `${size} echoed in a tunnel`;
  const p99s: Record<keyof Pair, number[]> = { noria: [], 'proxy-chain': [] };
  const goal = { target: 1, limit: { most: 1.4 } };
  await compare(bench, pair, { scenario, unit: 'CPU µs', ...goal }, rounds(bench), async (subject, name) => {
    const { cpuUs, latenciesMs } = await measureLoad(bench, subject, { ...echoes, port: subject.port });
    p99s[name].push(quantile(latenciesMs, 0.99));
    return cpuUs;
  });
  const { medians, ratio } = figuresOf(p99s, PROXIES, rounds(bench));
  report.add({ scenario: `${scenario}, p99`, unit: 'ms', ...medians, ratio, target: 1 });
}

/** Also compares noria with proxies written in C. tinyproxy keeps no connections, so it opens one for each request. */
async function measureForeign(bench: Bench, pair: Pair): Promise<void> {
  const { children, world, report } = bench;
  const subjects: Partial<Record<keyof Pair | ForeignName, Running>> = { ...pair };
  const installed = FOREIGN.filter(isInstalled);
  for (const name of installed) subjects[name] = await children.subject(name, workingMembers(world, 'http'));
  const requests = {
    kind: 'requests',
    target: world.httpPort,
    targets: 1,
    count: 1_000,
    concurrency: CONCURRENT_REQUESTS,
  } as const;
  const { medians, ratio } = await measureInRounds(
    subjects as Record<keyof Pair | ForeignName, Running>,
    PROXIES,
    rounds(bench),
    async (subject, name) => {
      const read = name === 'tinyproxy' ? cpuMsOfAllThreads : cpuMs; // tinyproxy has a thread for each request
      return (await measureLoad(bench, subject, { ...requests, port: subject.port }, read)).cpuUs;
    },
  );
  for (const name of installed) subjects[name]?.child.kill();
  report.add({ scenario: 'absolute-form GET, a connection each', unit: 'CPU µs', ...medians, ratio });
}

function rounds({ quick }: Bench): number {
  return quick ? 3 : 15;
}
