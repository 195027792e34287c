/**
 * Compares two workers with one process of noria: CPU time of all its processes per tunnel, and tunnels per second. Clients,
 * members and targets need cores too: on few cores, the rate only shows how all of them share the cores.
 *
 * A process with less load needs more CPU time for each tunnel, because it wakes more often for less work. So there are two
 * comparisons. In the first, two workers share the load of the one process, as fast as possible. In the second, each worker has as
 * many tunnels a second as the one process. Two separate norias, with half of the load of the two workers each, show what two
 * processes cost that exchange nothing.
 */
import { type Bench, workingMembers } from './bench.ts';
import { Children, cpuMs, type Running } from './children.ts';
import { measureInRounds, median } from './rounds.ts';
import { warmUp } from './throughput.ts';

const US_PER_MS = 1_000;
const TUNNELS_BESIDE = 128;
/** Tunnels a second of each process at equal load. Two processes, clients, members and targets need about one core for it. */
const STEADY_RATE = 800;

interface Norias {
  readonly two: Running;
  readonly one: Running;
  /** Two norias, measured as one subject. */
  readonly separate: Running;
  readonly otherHalf: Running;
  /** For the load of `otherHalf`, because each child runs one load at a time. */
  readonly moreChildren: Children;
}

export async function measureWorkers(bench: Bench): Promise<void> {
  const { children, world, quick } = bench;
  const options = workingMembers(world, 'http');
  const norias: Norias = {
    two: await children.subject('noria', { ...options, workers: 2 }),
    one: await children.subject('noria', options),
    separate: await children.subject('noria', options),
    otherHalf: await children.subject('noria', options),
    moreChildren: new Children(),
  };
  const { two, one, separate, otherHalf, moreChildren } = norias;
  // Each process needs the same number of tunnels, so two workers need twice as many.
  if (!quick) for (const subject of [two, two, one, separate, otherHalf]) await warmUp(bench, subject);
  await measureFullLoad(bench, norias);
  if (!quick) await measureEqualLoad(bench, norias);
  moreChildren.close();
  for (const { child } of [one, two, separate, otherHalf]) child.kill();
}

async function measureFullLoad({ children, world, report, quick }: Bench, norias: Norias): Promise<void> {
  const { two, one, separate, otherHalf, moreChildren } = norias;
  const rates: Record<'one' | 'two' | 'separate', number[]> = { one: [], two: [], separate: [] };
  const count = quick ? 1_200 : 3_000;
  const load = (by: Children, { port }: Running, share: number) =>
    by.tunnelsPerSecond({
      kind: 'tunnels',
      via: 'http',
      port,
      target: world.echoPort,
      count: count * share,
      concurrency: TUNNELS_BESIDE * share,
    });
  const { medians, ratio } = await measureInRounds(
    { two, one, separate },
    ['two', 'one'],
    quick ? 5 : 11,
    async (subject, name) => {
      const isHalf = name === 'separate';
      const cpu = () => cpuMs(subject) + (isHalf ? cpuMs(otherHalf) : 0);
      const before = cpu();
      const [rate, otherRate] = await Promise.all(
        isHalf
          ? [load(children, subject, 0.5), load(moreChildren, otherHalf, 0.5)]
          : [load(children, subject, 1), 0],
      );
      rates[name].push(rate + otherRate);
      return (US_PER_MS * (cpu() - before)) / count;
    },
  );
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
async function measureEqualLoad({ children, world, report }: Bench, norias: Norias): Promise<void> {
  const { two, one, separate, otherHalf, moreChildren } = norias;
  const load = (by: Children, { port }: Running, processes: number) =>
    by.loadOrThrow({
      kind: 'tunnels',
      via: 'http',
      port,
      target: world.echoPort,
      count: STEADY_RATE * processes,
      concurrency: TUNNELS_BESIDE,
      rate: STEADY_RATE * processes,
    });
  const { medians, ratio } = await measureInRounds(
    { two, one, separate },
    ['two', 'one'],
    9,
    async (subject, name) => {
      const processes = name === 'one' ? 1 : 2;
      const cpu = () => cpuMs(subject) + (name === 'separate' ? cpuMs(otherHalf) : 0);
      const before = cpu();
      if (name === 'separate')
        await Promise.all([load(children, subject, 1), load(moreChildren, otherHalf, 1)]);
      else await load(children, subject, processes);
      return (US_PER_MS * (cpu() - before)) / (STEADY_RATE * processes);
    },
  );
  const unit = 'CPU µs';
  const each = `${STEADY_RATE} tunnels a second each`;
  report.add({ scenario: `tunnel, one process, ${each}`, unit, noria: medians.one });
  report.add({ scenario: `tunnel, two workers, ${each}`, unit, noria: medians.two });
  report.add({ scenario: `tunnel, two separate norias, ${each}`, unit, noria: medians.separate });
  const scenario = `ratio of two workers to one process, ${each}`;
  report.add({ scenario, unit: 'times', noria: ratio, limit: { most: 1.6 } });
}
