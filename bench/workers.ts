/**
 * Compares two workers with one process of noria: CPU time of all its processes per tunnel, and tunnels per second. Clients,
 * members and targets need cores too: on few cores, the rate only shows how all of them share the cores.
 *
 * A process with less load needs more CPU time for each tunnel, because it wakes more often for less work. So there are two
 * comparisons. In the first, two workers share the load of the one process, as fast as possible. In the second, each worker has as
 * many tunnels a second as the one process. Two separate norias, with half of the load of the two workers each, show what two
 * processes cost that exchange nothing.
 */
import { SECOND_MS } from '../src/core/duration.ts';
import { type Bench, tunnels, US_PER_MS, warmUp, workingMembers } from './bench.ts';
import { type Client, cpuMs, type Running } from './children.ts';
import type { LoadOf } from './load.ts';
import { measureInRounds, median } from './rounds.ts';

const CONCURRENT_TUNNELS = 128;
/** Tunnels a second of each process at equal load. Two processes, clients, members and targets need about one core for it. */
const STEADY_RATE = 800;

/** Each subject is a list of norias, which have its load in equal shares. */
type Subjects = Readonly<Record<'two' | 'one' | 'separate', readonly Running[]>>;

export async function measureWorkers(bench: Bench): Promise<void> {
  const { children, world, quick } = bench;
  const options = workingMembers(world, 'http');
  const [two, one, first, second] = [
    await children.subject('noria', { ...options, workers: 2 }),
    await children.subject('noria', options),
    await children.subject('noria', options),
    await children.subject('noria', options),
  ];
  const subjects: Subjects = { two: [two], one: [one], separate: [first, second] };
  // Each process needs the same number of tunnels, so two workers need twice as many.
  if (!quick) for (const subject of [two, two, one, first, second]) await warmUp(bench, subject);
  await measureFullLoad(bench, subjects);
  if (!quick) await measureEqualLoad(bench, subjects);
  for (const { child } of [two, one, first, second]) child.kill();
}

async function measureFullLoad(bench: Bench, subjects: Subjects): Promise<void> {
  const { children, client, report, quick } = bench;
  // One process of clients cannot use two workers fully.
  const clients = [
    [client, children.client()],
    [children.client(), children.client()],
  ];
  const rates: Record<keyof Subjects, number[]> = { one: [], two: [], separate: [] };
  const count = quick ? 1_200 : 3_000;
  const { medians, ratio } = await measureInRounds(
    subjects,
    ['two', 'one'],
    quick ? 3 : 11,
    async (norias, name) => {
      const before = cpuMsOfAll(norias);
      const share = { count: count / norias.length, concurrency: CONCURRENT_TUNNELS / norias.length };
      const each = norias.map((noria, at) =>
        tunnelsPerSecond(clients[at] ?? [], tunnels(bench, noria, share)),
      );
      rates[name].push(sum(await Promise.all(each)));
      return (US_PER_MS * (cpuMsOfAll(norias) - before)) / count;
    },
  );
  for (const { child } of clients.flat()) if (child !== client.child) child.kill();
  const unit = 'CPU µs';
  report.add({ scenario: 'tunnel, one process, many clients', unit, noria: medians.one });
  report.add({ scenario: 'tunnel, two workers, all processes', unit, noria: medians.two });
  report.add({ scenario: 'tunnel, two separate norias', unit, noria: medians.separate });
  const limit = { most: 2 };
  report.add({ scenario: 'ratio of two workers to one process', unit: 'times', noria: ratio, limit });
  const overhead = medians.two / medians.separate;
  report.add({ scenario: 'ratio of two workers to two norias', unit: 'times', noria: overhead });
  report.add({ scenario: 'tunnels a second, one process', unit: '1/s', noria: median(rates.one) });
  report.add({ scenario: 'tunnels a second, two workers', unit: '1/s', noria: median(rates.two) });
}

/** Each process has STEADY_RATE tunnels a second. */
async function measureEqualLoad(bench: Bench, subjects: Subjects): Promise<void> {
  const { children, client, report } = bench;
  const clients = [client, children.client()];
  const { medians, ratio } = await measureInRounds(subjects, ['two', 'one'], 9, async (norias, name) => {
    const before = cpuMsOfAll(norias);
    const count = STEADY_RATE * (name === 'one' ? 1 : 2);
    const share = count / norias.length;
    const load = { count: share, rate: share, concurrency: CONCURRENT_TUNNELS };
    await Promise.all(norias.map((noria, at) => clients[at]?.loadOrThrow(tunnels(bench, noria, load))));
    return (US_PER_MS * (cpuMsOfAll(norias) - before)) / count;
  });
  clients[1]?.child.kill();
  const unit = 'CPU µs';
  const each = `${STEADY_RATE} tunnels a second each`;
  report.add({ scenario: `tunnel, one process, ${each}`, unit, noria: medians.one });
  report.add({ scenario: `tunnel, two workers, ${each}`, unit, noria: medians.two });
  report.add({ scenario: `tunnel, two separate norias, ${each}`, unit, noria: medians.separate });
  const scenario = `ratio of two workers to one process, ${each}`;
  report.add({ scenario, unit: 'times', noria: ratio, limit: { most: 1.6 } });
}

/** Divides the load among the clients. Returns how many tunnels per second they open together. */
async function tunnelsPerSecond(clients: readonly Client[], load: LoadOf<'tunnels'>): Promise<number> {
  const { length } = clients;
  const count = Math.ceil(load.count / length);
  const share = { ...load, count, concurrency: Math.ceil(load.concurrency / length) };
  const startedAt = performance.now();
  await Promise.all(clients.map((client) => client.loadOrThrow(share)));
  return (length * count * SECOND_MS) / (performance.now() - startedAt);
}

function cpuMsOfAll(norias: readonly Running[]): number {
  return sum(norias.map(cpuMs));
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((all, one) => all + one, 0);
}
