/**
 * `npm run economy`: what pages cost. The same vendor, sites and jobs for noria and for what people would use instead.
 *
 *   npm run economy                                  all, about ten minutes
 *   npm run economy -- --jobs steady --subjects noria   some; the names are those of the table, separated by commas
 *   npm run economy -- --quick                       noria alone, about a minute; exits with 1 beyond a limit
 */
import { parseArgs } from 'node:util';
import { JOBS, type Job, type JobName, type JobResult, runJob } from './jobs.ts';
import { SUBJECTS, type SubjectName } from './subjects.ts';
import { openWorld } from './world.ts';

/** What noria's default may cost at most, checked by `--quick`. Everything else is a figure to compare. */
const LIMITS: readonly (readonly [job: JobName, what: string, holds: (result: JobResult) => boolean])[] = [
  ['slow', 'all pages ok', ({ ok, pages }) => ok === pages],
  ['slow', 'at most 6 IPs', ({ drawn }) => drawn <= 6],
  ['after idle', 'the page ok', ({ ok }) => ok === 1],
  // two at the start, two for the page
  ['after idle', 'at most 4 IPs', ({ drawn }) => drawn <= 4],
  ['cold start', 'no failure', ({ ok, pages }) => ok === pages],
  ['cold start', 'p99 at most 1.5 s', ({ p99Ms }) => p99Ms <= 1_500],
];

const TITLES = [
  'subject',
  'pages',
  'ok',
  'IPs',
  'pages/IP',
  'p50',
  'p99',
  'calls',
  'early',
  'met ban',
  'whole',
];

const { values } = parseArgs({
  options: {
    quick: { type: 'boolean', default: false },
    jobs: { type: 'string' },
    subjects: { type: 'string' },
    seed: { type: 'string', default: '1' },
    json: { type: 'boolean', default: false },
  },
});
const quick = values.quick;
const jobs = chosen(
  JOBS,
  values.jobs ?? (quick ? [...new Set(LIMITS.map(([job]) => job))].join() : undefined),
);
const subjects = chosen(SUBJECTS, values.subjects ?? (quick ? 'noria' : undefined));
const results: { readonly job: JobName; readonly subject: SubjectName; readonly result: JobResult }[] = [];

for (const job of jobs) {
  const { about, factor, vendor }: Job = JOBS[job];
  if (!values.json) console.log(`\n${job}: ${about}\n${rowOf(TITLES)}`);
  for (const subject of subjects) {
    const world = await openWorld({ factor, seed: Number(values.seed), vendor });
    try {
      const result = await runJob(JOBS[job], world, SUBJECTS[subject]);
      results.push({ job, subject, result });
      if (!values.json) console.log(rowOf([subject, ...figuresOf(result)]));
    } finally {
      await world.close();
    }
  }
}
if (values.json) console.log(JSON.stringify(results, undefined, 2));
const broken = LIMITS.flatMap(([job, what, holds]) =>
  results
    .filter((found) => found.job === job && found.subject === 'noria' && !holds(found.result))
    .map(() => `${job}: not ${what}`),
);
for (const text of broken) console.log(text);
process.exit(broken.length > 0 ? 1 : 0);

function figuresOf(result: JobResult): string[] {
  const { pages, ok, drawn, p50Ms, p99Ms, calls, earlyCalls, bannedVisits, whole, logins } = result;
  const logged = logins === 0 ? '-' : `${whole}/${logins}`;
  const perIp = drawn === 0 ? '-' : (ok / drawn).toFixed(1);
  const seconds = (ms: number) => `${(ms / 1_000).toFixed(1)} s`;
  const times = [seconds(p50Ms), seconds(p99Ms)];
  return [pages, ok, drawn, perIp, ...times, calls, earlyCalls, bannedVisits, logged].map(String);
}

function rowOf([first = '', ...cells]: readonly string[]): string {
  return `${first.padEnd(22)}${cells.map((cell) => cell.padStart(9)).join('')}`;
}

function chosen<Name extends string>(
  all: Readonly<Record<Name, unknown>>,
  names: string | undefined,
): Name[] {
  const known = Object.keys(all) as Name[];
  if (names === undefined) return known;
  return names.split(',').map((name) => {
    const found = known.find((one) => one === name.trim());
    if (found === undefined) throw new TypeError(`no ${name}; known: ${known.join(', ')}`);
    return found;
  });
}
