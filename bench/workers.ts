/**
 * Compares two workers with one process of noria: CPU time of all its processes per tunnel, and tunnels per second. Clients,
 * members and targets need cores too: on few cores, the rate only shows how all of them share the cores.
 *
 * Two processes that share a load need more CPU time than one that has all of it, even if they exchange nothing: each wakes more
 * often for less work. So two separate norias, with half of the load each, show how much of the difference that is.
 */
import { type Bench, workingMembers } from './bench.ts';
import { Children, cpuMs, type Running } from './children.ts';
import { measureInRounds, median } from './rounds.ts';

const US_PER_MS = 1_000;
const TUNNELS_BESIDE = 128;

export async function measureWorkers({ children, world, report, quick }: Bench): Promise<void> {
  const options = workingMembers(world, 'http');
  const two = await children.subject('noria', { ...options, workers: 2 });
  const one = await children.subject('noria', options);
  const separate = await children.subject('noria', options);
  const otherHalf = await children.subject('noria', options);
  const moreChildren = new Children(); // each child runs one load at a time
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
  moreChildren.close();
  for (const { child } of [one, two, separate, otherHalf]) child.kill();
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
