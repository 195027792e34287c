/** Measures the CPU time of the proxy's process per tunnel, per byte and per request. */
import { type Bench, closePair, compare, openPair, type Pair, workingMembers } from './bench.ts';
import { cpuMs, cpuMsOfAllThreads, type Running } from './children.ts';
import type { Load } from './load.ts';
import { figuresOf, measureInRounds, quantile } from './rounds.ts';
import { type ForeignName, isInstalled } from './subject-foreign.ts';

const US_PER_MS = 1_000;
const GIGABYTE = 1e9;
const CONCURRENT_TUNNELS = 64;
/** With the warm rounds, this makes 24,000 tunnels: the compiler of the largest subject works for about 20,000. */
const WARM_TUNNELS = 16_000;
const CONCURRENT_REQUESTS = 32;
const FOREIGN: readonly ForeignName[] = ['tinyproxy', 'squid'];

export async function measureThroughput(bench: Bench): Promise<void> {
  const { children, world } = bench;
  const pair = await openPair(bench, workingMembers(world, 'http'));
  const bare = await children.subject('bare', workingMembers(world, 'http'));
  await measureSetUp(bench, pair, bare);
  await measureBulk(bench, pair, bare);
  await measureMessages(bench, pair);
  await measureForeign(bench, pair);
  bare.child.kill();
  closePair(pair);

  const socks = await openPair(bench, workingMembers(world, 'socks5'));
  const about = {
    scenario: 'tunnel, HTTP in, SOCKS5 member',
    unit: 'CPU µs',
    target: 0.55,
    limit: { most: 1.1 },
  };
  await compare(bench, socks, about, rounds(bench), (subject) => tunnelUs(bench, subject, 'http'));
  closePair(socks);
}

async function measureSetUp(bench: Bench, pair: Pair, bare: Running): Promise<void> {
  if (!bench.quick)
    for (const subject of [pair.noria, pair['proxy-chain'], bare]) await warmUp(bench, subject);
  const unit = 'CPU µs';
  const goal = { target: 0.55, limit: { most: 1.1 } };
  for (const via of ['http', 'socks5'] as const) {
    const { medians, ratio } = await measureInRounds(
      { ...pair, bare },
      ['noria', 'proxy-chain'],
      rounds(bench),
      // proxy-chain accepts no SOCKS5 clients, so SOCKS5 tunnels are compared with HTTP tunnels of proxy-chain.
      (subject, name) => tunnelUs(bench, subject, name === 'proxy-chain' ? 'http' : via),
    );
    const scenario = `tunnel, ${via === 'http' ? 'HTTP' : 'SOCKS5'} in, HTTP member`;
    bench.report.add({ scenario, unit, ...medians, ratio, ...goal });
  }
}

/** Opens tunnels until the compiler has finished with the code of the subject. */
export async function warmUp({ children, world }: Bench, { port }: Running): Promise<void> {
  const [count, concurrency] = [WARM_TUNNELS, CONCURRENT_TUNNELS];
  await children.loadOrThrow({
    kind: 'tunnels',
    via: 'http',
    port,
    target: world.echoPort,
    count,
    concurrency,
  });
}

async function measureBulk(bench: Bench, pair: Pair, bare: Running): Promise<void> {
  const bytes = bench.quick ? 100e6 : 250e6;
  const { medians, ratio } = await measureInRounds(
    { ...pair, bare },
    ['noria', 'proxy-chain'],
    rounds(bench),
    async (subject) => {
      const perByte = await cpuPer(bench, subject, {
        kind: 'bulk',
        port: subject.port,
        target: bench.world.bulkPort,
        bytes,
      });
      return (perByte * GIGABYTE) / US_PER_MS;
    },
  );
  const goal = { target: 0.6, limit: { most: 0.95 } };
  bench.report.add({ scenario: 'bulk download', unit: 'CPU s per GB', ...medians, ratio, ...goal });
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
  await compare(
    bench,
    pair,
    { scenario: 'absolute-form GET, kept connections', unit: 'CPU µs', ...goal },
    rounds(bench),
    async (subject) => US_PER_MS * (await cpuPer(bench, subject, { ...gets, port: subject.port })),
  );
}

/** Measures requests of this size, which the target echoes, in open tunnels: the CPU time and the 99th percentile of the latency. */
async function measureEchoes(bench: Bench, pair: Pair, bytes: number, size: string): Promise<void> {
  const { world, quick, children, report } = bench;
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
    const before = cpuMs(subject);
    const { done, latenciesMs } = await children.loadOrThrow({ ...echoes, port: subject.port });
    p99s[name].push(quantile(latenciesMs, 0.99));
    return (US_PER_MS * (cpuMs(subject) - before)) / done;
  });
  const { medians, ratio } = figuresOf(p99s, ['noria', 'proxy-chain'], rounds(bench));
  report.add({ scenario: `${scenario}, p99`, unit: 'ms', ...medians, ratio, target: 1 });
}

/** Also compares noria with proxies written in C. tinyproxy keeps no connections, so it opens one for each request. */
async function measureForeign(bench: Bench, pair: Pair): Promise<void> {
  const { children, world, report } = bench;
  const subjects: Partial<Record<keyof Pair | ForeignName, Running>> = { ...pair };
  const installed = FOREIGN.filter(isInstalled);
  for (const name of installed) subjects[name] = await children.subject(name, workingMembers(world, 'http'));
  const count = 1_000;
  const { medians, ratio } = await measureInRounds(
    subjects as Record<keyof Pair | ForeignName, Running>,
    ['noria', 'proxy-chain'],
    rounds(bench),
    async (subject, name) => {
      const { port } = subject;
      const target = world.httpPort;
      const load = {
        kind: 'requests',
        port,
        target,
        targets: 1,
        count,
        concurrency: CONCURRENT_REQUESTS,
      } as const;
      const read = name === 'tinyproxy' ? cpuMsOfAllThreads : cpuMs; // tinyproxy has a thread for each request
      return US_PER_MS * (await cpuPer(bench, subject, load, read));
    },
  );
  for (const name of installed) subjects[name]?.child.kill();
  report.add({ scenario: 'absolute-form GET, a connection each', unit: 'CPU µs', ...medians, ratio });
}

function rounds({ quick }: Bench): number {
  return quick ? 5 : 15;
}

async function tunnelUs(bench: Bench, subject: Running, via: 'http' | 'socks5'): Promise<number> {
  const count = bench.quick ? 800 : 2_000;
  const { port } = subject;
  const target = bench.world.echoPort;
  const load: Load = { kind: 'tunnels', via, port, target, count, concurrency: CONCURRENT_TUNNELS };
  return US_PER_MS * (await cpuPer(bench, subject, load));
}

/** Returns the subject's CPU time in ms per completed tunnel, byte or request of a load. */
async function cpuPer({ children }: Bench, subject: Running, load: Load, read = cpuMs): Promise<number> {
  const before = read(subject);
  const { done } = await children.loadOrThrow(load);
  return (read(subject) - before) / done;
}
