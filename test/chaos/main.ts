/**
 * `npm run chaos`: a whole noria, and a fleet, under every fault at once, while clients check every byte that they get.
 *
 *   npm run chaos                                  10 minutes
 *   npm run chaos -- --minutes 480 --seed 7        a night, with the schedule of seed 7
 *   npm run chaos -- --quick                       90 seconds
 *   npm run chaos -- --only 'one process'          one of the stages
 *   npm run chaos -- --report docs/reliability.md  writes the table of the run into the page
 *
 * Exits with 1 if an invariant was broken. The seed repeats the schedule, not the timing of the machine.
 */
import { parseArgs } from 'node:util';
import { NO_STORE } from '../support/store-server.ts';
import { SKIPPED_FAULTS } from './faults/host.ts';
import { playRun, type RunResult } from './play.ts';
import { insertReport, reportOf, splitPage } from './report.ts';

const { values } = parseArgs({
  options: {
    minutes: { type: 'string', default: '10' },
    seed: { type: 'string' },
    quick: { type: 'boolean', default: false },
    only: { type: 'string' },
    report: { type: 'string' },
  },
});

const seed = Number(values.seed ?? Date.now() % 1_000_000);
const totalMs = values.quick ? 90_000 : Number(values.minutes) * 60_000;
const runs = [
  { name: 'one process', norias: 1, workers: 1 },
  { name: 'two workers', norias: 1, workers: 2 },
  ...(NO_STORE ? [] : [{ name: 'a fleet of three', norias: 3, workers: 1 }]),
  ...(NO_STORE || values.quick
    ? []
    : [{ name: 'a fleet of two, with two workers each', norias: 2, workers: 2 }]),
].filter(({ name }) => values.only === undefined || name === values.only);

if (values.report !== undefined) splitPage(values.report); // fails now if the path is wrong, not after the run
for (const fault of SKIPPED_FAULTS) console.log(`skipped: ${fault}`);
if (NO_STORE) console.log('no fleet: redis-server or valkey-server is not installed');
console.log(`seed ${seed}, ${totalMs / 1_000} s`);
const results: RunResult[] = [];
for (const run of runs) {
  results.push(await playRun({ ...run, seed, durationMs: totalMs / runs.length }));
}
const text = reportOf({ seed, totalMs, results });
console.log(text);
if (values.report !== undefined) insertReport(values.report, text);
if (results.some(({ violations }) => violations.length > 0)) process.exitCode = 1;
