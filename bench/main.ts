/**
 * `npm run bench`: compares noria with a plain proxy-chain in alternating rounds. The main figure is the CPU time of the
 * proxy's process, from /proc (Linux). Clients, members and targets run in separate processes. bench/README.md explains the
 * results.
 *
 *   npm run bench                   all scenarios, about nine minutes
 *   npm run bench -- --quick        small loads, about one minute; exits with 1 if a figure is beyond its limit
 */
import { platform } from 'node:os';
import { type Bench, MEMBERS } from './bench.ts';
import { Children } from './children.ts';
import { measureFleet } from './fleet.ts';
import { measureIdle, measurePicks } from './holding.ts';
import { measureLatency } from './latency.ts';
import { Report } from './report.ts';
import { measureThroughput } from './throughput.ts';
import { measureBadPool, measurePaced, measureStart } from './waiting.ts';
import { measureWorkers } from './workers.ts';

if (platform() !== 'linux') {
  console.error('the benchmark needs Linux: it reads CPU time from /proc');
  process.exit(1);
}

const children = new Children();
const report = new Report();
const quick = process.argv.includes('--quick');
try {
  const bench: Bench = {
    children,
    report,
    quick,
    world: await children.world({ members: MEMBERS, faults: [] }),
  };
  await measureThroughput(bench);
  await measureWorkers(bench);
  if (!quick) await measureFleet(bench);
  await measurePaced(bench);
  await measureIdle(bench);
  await measureStart(bench);
  await measureBadPool(bench);
  measureLatency(bench);
  measurePicks(bench);
} finally {
  children.close();
}
report.print();
console.log(`\nresults: ${report.save(quick)}`);
for (const { scenario, limit, noria, ratio = noria } of report.beyondLimit) {
  console.error(`beyond its limit: ${scenario}: ${ratio.toFixed(2)}, limit ${JSON.stringify(limit)}`);
  process.exitCode = 1;
}
