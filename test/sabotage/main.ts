/**
 * `npm run sabotage`: breaks noria in small ways, one after the other, in a copy of the checkout. The tests that the table names must
 * fail by themselves: a test that only its limit ended has not noticed. Prints which test noticed; exits with 1 if none did.
 *
 *   npm run sabotage                     the whole table
 *   npm run sabotage -- leak bans        the rows whose names contain one of these texts
 *   npm run sabotage -- --quick          the rows that `.ci/run` plays
 *   npm run sabotage -- --parallel 1     one row at a time; default: 2
 *   npm run sabotage -- --no-control     does not run the named tests on the unchanged copy first
 *   npm run sabotage -- --list           prints the names
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { type Played, run, runTests, withCopies } from './copies.ts';
import { applied, SABOTAGES, type Sabotage } from './table.ts';

const PROJECTS = ['--project=noria', '--project=long'];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    quick: { type: 'boolean', default: false },
    list: { type: 'boolean', default: false },
    'no-control': { type: 'boolean', default: false },
    parallel: { type: 'string', default: '2' },
  },
});

const rows = SABOTAGES.filter(
  ({ name, quick }) =>
    (!values.quick || quick === true) &&
    (positionals.length === 0 || positionals.some((text) => name.includes(text))),
);
if (values.list) for (const { name } of rows) console.log(name);
else process.exitCode = await playAll();

function playAll(): Promise<number> {
  return withCopies(Number(values.parallel), async (copies) => {
    const [first = ''] = copies;
    if (!values['no-control']) {
      const files = [...new Set(rows.map(({ noticedBy }) => noticedBy).filter((by) => by !== 'chaos'))];
      const { failed, timedOut, trouble } = await runTests(first, files, PROJECTS);
      const all = [...failed, ...timedOut];
      for (const name of all) console.log(`fails without a sabotage: ${name}`);
      if (trouble !== undefined) console.log(`without a sabotage: ${trouble}`);
      if (all.length > 0 || trouble !== undefined) return 1;
    }
    const waiting = [...rows];
    let noticed = 0;
    const playNext = async (copy: string): Promise<void> => {
      for (let row = waiting.shift(); row !== undefined; row = waiting.shift()) {
        if (await play(row, copy)) noticed += 1;
      }
    };
    await Promise.all(copies.map(playNext));
    console.log(`${noticed} of ${rows.length} sabotages noticed`);
    return noticed === rows.length && rows.length > 0 ? 0 : 1;
  });
}

/** Applies one row to a copy, runs what must notice it, and restores the copy. @returns whether it was noticed. */
async function play(row: Sabotage, copy: string): Promise<boolean> {
  const path = join(copy, row.file);
  const text = readFileSync(path, 'utf8');
  const startedMs = performance.now();
  writeFileSync(path, applied(row, text));
  const { failed, timedOut, trouble } = await (row.noticedBy === 'chaos'
    ? runChaos(copy)
    : runTests(copy, [row.noticedBy], [...PROJECTS, '--bail=1'])
  ).finally(() => writeFileSync(path, text));
  const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
  const [by] = failed;
  const [ended] = timedOut;
  const verdict = by !== undefined ? 'noticed' : ended !== undefined ? 'ONLY A TIMEOUT' : 'NOT NOTICED';
  console.log(`${verdict}  ${row.name}  (${seconds} s)  ${by ?? ended ?? trouble ?? row.noticedBy}`);
  return by !== undefined;
}

/** Half a minute of chaos with one noria. Each broken invariant counts as a failed test. */
async function runChaos(copy: string): Promise<Played> {
  const output = await run(copy, [
    'test/chaos/main.ts',
    '--minutes',
    '0.5',
    '--only',
    'one process',
    '--seed',
    '1',
  ]);
  const [, broken = ''] = output.split('Broken invariants:');
  const failed = [...broken.matchAll(/^- (.*)$/gm)].map(([, text = '']) => `chaos: ${text}`);
  return {
    failed,
    timedOut: [],
    trouble: failed.length === 0 ? output.slice(-500) : undefined,
  };
}
