/**
 * `npm run bench`: noria beside a bare proxy-chain in one run, in turn. The primary figure is CPU time of the proxy's own
 * process (Linux: /proc); load, members and targets have processes of their own. bench/README.md says how to read it.
 *
 *   npm run bench                   every scenario, less than five minutes
 *   npm run bench -- --quick        small loads, less than one; exit 1 when a figure is far from what it usually is
 */
import { platform } from 'node:os';
import { type Bench, MEMBERS } from './bench.ts';
import { Children } from './children.ts';
import { measureIdle, measurePicks } from './holding.ts';
import { Report } from './report.ts';
import { measureThroughput } from './throughput.ts';
import { measureBadPool, measurePaced, measureStart } from './waiting.ts';
import { measureWorkers } from './workers.ts';

if (platform() !== 'linux') {
  console.error('the bench reads CPU time from /proc: it needs Linux');
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
    world: await children.world({ members: MEMBERS, troubles: [] }),
  };
  await measureThroughput(bench);
  await measureWorkers(bench);
  await measurePaced(bench);
  await measureIdle(bench);
  await measureStart(bench);
  await measureBadPool(bench);
  measurePicks(bench);
} finally {
  children.close();
}
report.print();
console.log(`\nwritten to ${report.save(quick)}`);
for (const { scenario, limit, noria, ratio = noria } of report.broken) {
  console.error(`far from usual: ${scenario}: ${ratio.toFixed(2)}, limit ${JSON.stringify(limit)}`);
  process.exitCode = 1;
}
