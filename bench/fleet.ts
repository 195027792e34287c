/**
 * What a fleet costs: CPU time of a tunnel, CPU time of the store, and how long replicas wait for each other. Needs a Valkey or Redis
 * server in the search path.
 */
import { type DemoStore, openDemoStore } from '../src/commands/demo.ts';
import { type Bench, measureLoad, tunnels, warmUp, workingMembers } from './bench.ts';
import { cpuMsOfPid } from './children.ts';
import type { Row } from './report.ts';
import { measureInRounds, quantile } from './rounds.ts';

const MEMBERS = 1_000;
const BUSY_PER_SECOND = 2_000;
const SECONDS = 3;
/** A busy machine delays some beats. */
const LEAST_BEATS = 0.8;

export function measureTunnelInFleet(bench: Bench): Promise<void> {
  return withStore(bench, async (store) => {
    for (const workers of [1, 2]) await measureTunnel(bench, store, workers);
  });
}

export function measureStore(bench: Bench): Promise<void> {
  return withStore(bench, async (store) => {
    for (const replicas of [1, 10, 50]) await measureReplicas(bench, store, replicas);
  });
}

async function withStore({ quick }: Bench, measure: (store: DemoStore) => Promise<void>): Promise<void> {
  if (quick) return;
  const store = await openDemoStore();
  if (store === undefined) {
    console.error(
      '       the fleet is not measured: neither valkey-server nor redis-server is in the search path',
    );
    return;
  }
  try {
    await measure(store);
  } finally {
    await store.close();
  }
}

async function measureTunnel(bench: Bench, { port }: DemoStore, workers: number): Promise<void> {
  const { children, world, report } = bench;
  const options = { ...workingMembers(world, 'http'), workers };
  const fleet = await children.subject('noria', { ...options, storePort: port });
  const alone = await children.subject('noria', options);
  for (const subject of [fleet, alone]) await warmUp(bench, subject);
  const { medians, ratio } = await measureInRounds(
    { fleet, alone },
    ['fleet', 'alone'],
    9,
    async (subject) => (await measureLoad(bench, subject, tunnels(bench, subject, { count: 1_500 }))).cpuUs,
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

async function measureReplicas({ children, report }: Bench, store: DemoStore, count: number): Promise<void> {
  const replicas = children.fleet();
  await replicas.work({
    ...{ kind: 'open', storePort: store.port, fleet: `bench-${count}` },
    ...{ replicas: count, members: MEMBERS },
  });
  const percentOfCore = async (perSecond: number) => {
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
  const column = count === 1 ? '1 noria' : `${count} norias`;
  const add = (line: string, row: Omit<Row, 'scenario' | 'line' | 'column'>) =>
    report.add({ scenario: `${line}, ${column}`, line, column, ...row });
  const unit = '% of a core';
  add('CPU of the store without clients', { unit, noria: await percentOfCore(0) });
  const busy = `${BUSY_PER_SECOND.toLocaleString('en')} tunnels a second (sum of all norias)`;
  const noria = await percentOfCore(BUSY_PER_SECOND);
  add(`CPU of the store with ${busy}`, { unit, noria, limit: { most: 50 } });
  if (count > 1) {
    const { latenciesMs: draws } = await replicas.work({ kind: 'draw', count: 150 });
    const { latenciesMs: sessions } = await replicas.work({ kind: 'sessions', count: 300 });
    for (const [what, latenciesMs] of [
      ['from the end of a draw until all norias can use its members', draws],
      ['first use of a session on a noria', sessions],
    ] as const) {
      const row = { line: `${what}, p50 / p99`, column, unit: 'ms' };
      report.add({ ...row, scenario: `${what}, ${column}: p50`, noria: quantile(latenciesMs, 0.5) });
      report.add({ ...row, scenario: `${what}, ${column}: p99`, noria: quantile(latenciesMs, 0.99) });
    }
  }
  await replicas.work({ kind: 'close' });
  replicas.child.kill();
}
