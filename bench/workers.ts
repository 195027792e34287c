/**
 * Compares two workers with one process of noria: CPU time of all its processes per tunnel, and tunnels per second. Clients,
 * members and targets need cores too: on few cores, the rate only shows how all of them share the cores.
 */
import { type Bench, workingMembers } from './bench.ts';
import { cpuMs } from './children.ts';
import { measureInRounds, median } from './rounds.ts';

const US_PER_MS = 1_000;
const TUNNELS_BESIDE = 128;

export async function measureWorkers(bench: Bench): Promise<void> {
  const { children, world, report, quick } = bench;
  const options = workingMembers(world, 'http');
  const two = await children.subject('noria', { ...options, workers: 2 });
  const one = await children.subject('noria', options);
  const rates: Record<'one' | 'two', number[]> = { one: [], two: [] };
  const count = quick ? 1_200 : 3_000;
  const { medians, ratio } = await measureInRounds(
    { two, one },
    ['two', 'one'],
    quick ? 5 : 11,
    async (subject, name) => {
      const before = cpuMs(subject);
      const { port } = subject;
      const target = world.echoPort;
      const load = {
        kind: 'tunnels',
        via: 'http',
        port,
        target,
        count,
        concurrency: TUNNELS_BESIDE,
      } as const;
      rates[name].push(await children.tunnelsPerSecond(load));
      return (US_PER_MS * (cpuMs(subject) - before)) / count;
    },
  );
  for (const { child } of [one, two]) child.kill();
  const unit = 'CPU µs';
  report.add({ scenario: 'tunnel, one process, many clients', unit, noria: medians.one });
  report.add({ scenario: 'tunnel, two workers, all processes', unit, noria: medians.two });
  const limit = { most: 3 };
  report.add({ scenario: 'ratio of the two', unit: 'times', noria: ratio, limit });
  report.add({ scenario: 'tunnels a second, one process', unit: '1/s', noria: median(rates.one) });
  report.add({ scenario: 'tunnels a second, two workers', unit: '1/s', noria: median(rates.two) });
}
