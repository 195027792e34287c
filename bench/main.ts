/**
 * `npm run bench`: compares noria with a plain proxy-chain in alternating rounds. The main figure is the CPU time of the
 * proxy's process, from /proc (Linux). Clients, members and targets run in separate processes. bench/README.md explains the
 * results.
 *
 *   npm run bench                   all scenarios, about ten minutes
 *   npm run bench -- --quick        small loads, two minutes, what has a limit; exits with 1 if a figure is beyond it
 */
import { platform } from 'node:os';
import { type Bench, MEMBERS } from './bench.ts';
import { Children } from './children.ts';
import { measureStore, measureTunnelInFleet } from './fleet.ts';
import { measureIdle } from './idle.ts';
import { measureLatency } from './latency.ts';
import { measurePicks } from './pick.ts';
import { Report } from './report.ts';
import { measureLedger, measureThroughput } from './throughput.ts';
import { measureBadPool, measurePaced, measureStart } from './waiting.ts';
import { measureWorkers } from './workers.ts';

type Measure = (bench: Bench) => void | Promise<void>;

const quick = process.argv.includes('--quick');

/** The printed tables and the scenarios that fill them. docs/performance.md shows the first five. */
const TABLES: Readonly<Record<string, readonly Measure[]>> = {
  ...(!quick && { Latency: [measureLatency] }),
  Cost: [measureThroughput],
  'Constant rate and bad pool': quick ? [measureBadPool] : [measurePaced, measureBadPool],
  Capacity: [measureIdle],
  Fleet: [measureStore],
  'A tunnel in a fleet': [measureTunnelInFleet],
  Workers: [measureWorkers],
  Ledger: [measureLedger],
  'Start and pick': [measureStart, measurePicks],
};

if (platform() !== 'linux') {
  console.error('the benchmark needs Linux: it reads CPU time from /proc');
  process.exit(1);
}

const children = new Children();
const report = new Report();
try {
  const bench: Bench = {
    children,
    client: children.client(),
    report,
    quick,
    world: await children.world({ members: MEMBERS, faults: [] }),
  };
  for (const [title, measures] of Object.entries(TABLES)) {
    report.startTable(title);
    for (const measure of measures) await measure(bench);
  }
} finally {
  children.close();
}
report.print();
console.log(`results: ${report.save(quick)}`);
for (const { scenario, limit, noria, ratio = noria } of report.beyondLimit) {
  console.error(`beyond its limit: ${scenario}: ${ratio.toFixed(2)}, limit ${JSON.stringify(limit)}`);
  process.exitCode = 1;
}
