/**
 * What a fleet costs: CPU time of a tunnel, CPU time of the store, and how long replicas wait for each other. Needs a Valkey or Redis
 * server in the search path.
 */
import { type DemoStore, openDemoStore } from '../src/commands/demo-store.ts';
import { type Bench, workingMembers } from './bench.ts';
import { cpuMs, cpuMsOfPid } from './children.ts';
import { measureInRounds, quantile } from './rounds.ts';
import { warmUp } from './throughput.ts';

const US_PER_MS = 1_000;
const CONCURRENT_TUNNELS = 64;
const MEMBERS = 1_000;
const BUSY_PER_SECOND = 2_000;
const SECONDS = 3;
/** A busy machine delays some beats. */
const LEAST_BEATS = 0.8;

export async function measureFleet(bench: Bench): Promise<void> {
  const store = await openDemoStore();
  if (store === undefined) {
    console.error(
      '       the fleet is not measured: neither valkey-server nor redis-server is in the search path',
    );
    return;
  }
  try {
    for (const workers of [1, 2]) await measureTunnel(bench, store, workers);
    for (const replicas of [1, 10, 50]) await measureStore(bench, store, replicas);
  } finally {
    await store.close();
  }
}

async function measureTunnel(bench: Bench, { port }: DemoStore, workers: number): Promise<void> {
  const { children, world, report } = bench;
  const options = { ...workingMembers(world, 'http'), workers };
  const fleet = await children.subject('noria', { ...options, storePort: port });
  const alone = await children.subject('noria', options);
  const count = 1_500;
  const load = {
    kind: 'tunnels',
    via: 'http',
    target: world.echoPort,
    count,
    concurrency: CONCURRENT_TUNNELS,
  } as const;
  for (const subject of [fleet, alone]) await warmUp(bench, subject);
  const { medians, ratio } = await measureInRounds(
    { fleet, alone },
    ['fleet', 'alone'],
    9,
    async (subject) => {
      const before = cpuMs(subject);
      await children.loadOrThrow({ ...load, port: subject.port });
      return (US_PER_MS * (cpuMs(subject) - before)) / count;
    },
  );
  for (const { child } of [fleet, alone]) child.kill();
  const noria = workers === 1 ? 'noria' : `noria with ${workers} workers`;
  report.add({ scenario: `tunnel, ${noria} without a fleet`, unit: 'CPU µs', noria: medians.alone });
  report.add({ scenario: `tunnel, ${noria} in a fleet`, unit: 'CPU µs', noria: medians.fleet });
  report.add({
    scenario: `ratio of a ${noria} in a fleet to one without`,
    unit: 'times',
    noria: ratio,
    limit: { most: 1.5 },
  });
}

async function measureStore({ children, report }: Bench, store: DemoStore, count: number): Promise<void> {
  const replicas = children.fleet();
  await replicas.work({ kind: 'open', storePort: store.port, replicas: count, members: MEMBERS });
  const share = async (perSecond: number) => {
    await replicas.work({ kind: 'use', perSecond, seconds: 1 }); // the first beats are not counted
    const [cpuBefore, startedAt] = [cpuMsOfPid(store.pid), performance.now()];
    const { beats } = await replicas.work({ kind: 'use', perSecond, seconds: SECONDS });
    const expected = count * SECONDS;
    if (beats < LEAST_BEATS * expected)
      console.error(
        `       this machine is too busy: ${beats} of ${expected} beats, so the next figure is too low`,
      );
    return (100 * (cpuMsOfPid(store.pid) - cpuBefore)) / (performance.now() - startedAt);
  };
  const norias = count === 1 ? '1 noria' : `${count} norias`;
  const scenario = `store, ${norias}`;
  const unit = '% of a core';
  report.add({ scenario: `${scenario}, no clients`, unit, noria: await share(0) });
  report.add({
    scenario: `${scenario}, ${BUSY_PER_SECOND.toLocaleString('en')} tunnels a second in all`,
    unit,
    noria: await share(BUSY_PER_SECOND),
    limit: { most: 50 },
  });
  if (count > 1) {
    const { latenciesMs: draws } = await replicas.work({ kind: 'draw', count: 150 });
    const { latenciesMs: sessions } = await replicas.work({ kind: 'sessions', count: 300 });
    for (const [what, latenciesMs] of [
      [`draw until usable on ${norias}`, draws],
      [`first use of a session, ${norias}`, sessions],
    ] as const) {
      report.add({ scenario: `${what}, p50`, unit: 'ms', noria: quantile(latenciesMs, 0.5) });
      report.add({ scenario: `${what}, p99`, unit: 'ms', noria: quantile(latenciesMs, 0.99) });
    }
  }
  await replicas.work({ kind: 'close' });
  replicas.child.kill();
}
