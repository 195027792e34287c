/**
 * `npm run bench`: noria beside a bare proxy-chain in the same run, interleaved. The primary figure is CPU time of the proxy's
 * own process (Linux: /proc); load, members and targets have processes of their own. bench/README.md says how to read it.
 */
import { type ChildProcess, execFileSync, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { arch, cpus, loadavg, platform } from 'node:os';
import { fileURLToPath } from 'node:url';
import type { Load, LoadResult } from './load.ts';
import { SUBJECTS, type SubjectName, type SubjectOptions } from './subject.ts';
import type { Trouble, World, WorldOptions } from './world.ts';

const MEMBERS = 40;
/** Milliseconds of one tick of /proc/PID/stat: USER_HZ is 100 on every Linux that Node runs on. */
const TICK_MS = 10;
const NAMES = Object.keys(SUBJECTS) as SubjectName[]; // the table's own keys
const quick = process.argv.includes('--quick');

interface Row {
  readonly scenario: string;
  readonly unit: string;
  readonly noria: number;
  readonly 'proxy-chain': number;
  /** noria to proxy-chain. */
  readonly ratio: number;
  /** What the ratio should not exceed; absent where there is no target. */
  readonly target?: number;
}

interface Running {
  readonly child: ChildProcess;
  readonly port: number;
}

function start(file: string): ChildProcess {
  const path = fileURLToPath(new URL(file, import.meta.url));
  return fork(path, { stdio: ['ignore', 'ignore', 'inherit', 'ipc'] });
}

/** One question and its answer over the channel of a child. */
async function ask<Answer>(child: ChildProcess, message: object): Promise<Answer> {
  const answered = new AbortController();
  const ended = once(child, 'exit', { signal: answered.signal }).then(([code]) => {
    throw new Error(`a process of the bench ended with ${code}`);
  });
  ended.catch(() => {}); // ignored: aborted when the answer came first
  try {
    child.send(message);
    const [answer] = await Promise.race([once(child, 'message', { signal: answered.signal }), ended]);
    return answer;
  } finally {
    answered.abort();
  }
}

/** CPU time that a process has used, ms, of its own and in the kernel for it. */
function cpuMs({ pid }: ChildProcess): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
  return (Number(fields[11]) + Number(fields[12])) * TICK_MS;
}

function memoryKib({ pid }: ChildProcess): number {
  return Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]);
}

const median = (values: readonly number[]): number =>
  [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
const at = (sorted: readonly number[], share: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;

class Bench {
  readonly rows: Row[] = [];
  readonly load = start('load.ts');
  readonly #children: ChildProcess[] = [this.load];

  async world(options: WorldOptions): Promise<World> {
    const child = start('world.ts');
    this.#children.push(child);
    return ask(child, options);
  }

  async subject(name: SubjectName, options: SubjectOptions): Promise<Running> {
    const child = start(SUBJECTS[name]);
    this.#children.push(child);
    const { port } = await ask<{ port: number }>(child, options);
    return { child, port };
  }

  /** Runs the same load through each subject in turn, so many rounds, after one round that only warms up. */
  async interleave(
    subjects: Record<SubjectName, Running>,
    rounds: number,
    measure: (subject: Running) => Promise<number>,
  ): Promise<Record<SubjectName, number>> {
    const figures: Record<SubjectName, number[]> = { noria: [], 'proxy-chain': [] };
    for (let round = 0; round <= rounds; round += 1) {
      for (const name of NAMES) {
        const figure = await measure(subjects[name]);
        if (round > 0) figures[name].push(figure);
      }
    }
    return { noria: median(figures.noria), 'proxy-chain': median(figures['proxy-chain']) };
  }

  note(scenario: string, unit: string, figures: Record<SubjectName, number>, target?: number): void {
    const ratio = figures.noria / figures['proxy-chain'];
    console.error(`${scenario}: ${ratio.toFixed(2)}`);
    this.rows.push({ scenario, unit, ...figures, ratio, ...(target === undefined ? {} : { target }) });
  }

  /** CPU of the subject for one load, divided by what was done. @throws when anything failed: a figure of failures is none. */
  async cpuPer(subject: Running, load: Load): Promise<number> {
    const before = cpuMs(subject.child);
    const { done, failed } = await ask<LoadResult>(this.load, load);
    if (failed > 0) throw new Error(`${failed} of ${done + failed} failed: ${JSON.stringify(load)}`);
    return (cpuMs(subject.child) - before) / done;
  }

  close(): void {
    for (const child of this.#children) child.kill();
  }
}

const US_PER_MS = 1_000;

async function measureTunnels(bench: Bench, world: World): Promise<void> {
  const [count, rounds] = quick ? [2_000, 2] : [6_000, 5];
  for (const protocol of ['http', 'socks5'] as const) {
    const options: SubjectOptions = { world, protocol, members: MEMBERS, usable: MEMBERS };
    const subjects = {
      noria: await bench.subject('noria', options),
      'proxy-chain': await bench.subject('proxy-chain', options),
    };
    const members = protocol === 'http' ? 'HTTP members' : 'SOCKS5 members';
    const tunnels = (port: number): Load => ({
      kind: 'tunnels',
      via: 'http',
      port,
      target: world.echoPort,
      count,
      beside: 64,
    });
    const cpu = await bench.interleave(
      subjects,
      rounds,
      async (subject) => US_PER_MS * (await bench.cpuPer(subject, tunnels(subject.port))),
    );
    bench.note(`tunnel set-up, HTTP in, ${members}`, 'CPU µs each', cpu, 0.55);
    if (protocol === 'http') await measureOneWay(bench, world, subjects, rounds);
    for (const { child } of Object.values(subjects)) child.kill();
  }
}

/** Everything that is measured on one pair of subjects with HTTP members. */
async function measureOneWay(
  bench: Bench,
  world: World,
  subjects: Record<SubjectName, Running>,
  rounds: number,
): Promise<void> {
  const scale = quick ? 1 : 4;
  // proxy-chain takes no SOCKS5 clients: its HTTP tunnels stand beside.
  const socksIn = await bench.interleave(
    subjects,
    rounds,
    async (subject) =>
      US_PER_MS *
      (await bench.cpuPer(subject, {
        kind: 'tunnels',
        via: subject === subjects.noria ? 'socks5' : 'http',
        port: subject.port,
        target: world.echoPort,
        count: 1_500 * scale,
        beside: 64,
      })),
  );
  bench.note('tunnel set-up, SOCKS5 in (beside HTTP in)', 'CPU µs each', socksIn, 0.55);

  const gets = await bench.interleave(
    subjects,
    rounds,
    async ({ child, port }) =>
      US_PER_MS *
      (await bench.cpuPer(
        { child, port },
        { kind: 'gets', port, target: world.httpPort, count: 3_000 * scale, beside: 32 },
      )),
  );
  bench.note('absolute-form GET, kept connections', 'CPU µs each', gets, 0.8);

  const pings = await bench.interleave(
    subjects,
    rounds,
    async ({ child, port }) =>
      US_PER_MS *
      (await bench.cpuPer(
        { child, port },
        { kind: 'pings', port, target: world.echoPort, count: 6_000 * scale, beside: 32 },
      )),
  );
  bench.note('small messages inside tunnels', 'CPU µs each', pings);

  const GIGABYTE = 1e9;
  const bytes = quick ? 200e6 : 500e6;
  const bulk = await bench.interleave(
    subjects,
    rounds,
    async ({ child, port }) =>
      ((await bench.cpuPer({ child, port }, { kind: 'bulk', port, target: world.bulkPort, bytes })) *
        GIGABYTE) /
      US_PER_MS,
  );
  bench.note('bulk download', 'CPU s per GB', bulk, 0.6);

  const paced: Record<'p50' | 'p99', Record<SubjectName, number>> = {
    p50: { noria: 0, 'proxy-chain': 0 },
    p99: { noria: 0, 'proxy-chain': 0 },
  };
  for (const name of NAMES) {
    const { latenciesMs } = await ask<LoadResult>(bench.load, {
      kind: 'tunnels',
      via: 'http',
      port: subjects[name].port,
      target: world.echoPort,
      count: 1_000 * scale,
      beside: 256,
      rate: 500,
    } satisfies Load);
    paced.p50[name] = at(latenciesMs, 0.5);
    paced.p99[name] = at(latenciesMs, 0.99);
  }
  bench.note('paced at 500/s, p50', 'ms', paced.p50);
  bench.note('paced at 500/s, p99', 'ms', paced.p99, 0.5);

  for (const count of quick ? [500] : [2_000, 9_000]) {
    const held: Record<SubjectName, number> = { noria: 0, 'proxy-chain': 0 };
    for (const name of NAMES) {
      const { child, port } = subjects[name];
      const before = memoryKib(child);
      const { failed } = await ask<LoadResult>(bench.load, {
        kind: 'hold',
        port,
        target: world.echoPort,
        count,
      } satisfies Load);
      if (failed > 0) throw new Error(`${name} did not hold ${failed} of ${count} tunnels`);
      held[name] = Math.max(0, memoryKib(child) - before) / count;
      await ask(bench.load, { kind: 'release' } satisfies Load);
    }
    bench.note(`idle tunnels, ${count} held`, 'KiB each', held, 0.8);
  }
}

/** 8 of 40 refuse, 4 are silent, 4 answer 502, 4 are slow by 2 s: how many tunnels come about, from a cold start and later. */
async function measureBadPool(bench: Bench): Promise<void> {
  const troubles: Trouble[] = [
    ...Array<Trouble>(8).fill('refusing'),
    ...Array<Trouble>(4).fill('silent'),
    ...Array<Trouble>(4).fill('502'),
    ...Array<Trouble>(4).fill('slow'),
  ];
  const world = await bench.world({ members: MEMBERS, troubles });
  const options: SubjectOptions = { world, protocol: 'http', members: MEMBERS, usable: MEMBERS };
  for (const [phase, count] of [
    ['cold', 400],
    ['later', 1_000],
  ] as const) {
    if (phase === 'cold') {
      for (const name of NAMES) bad[name] = await bench.subject(name, options);
    }
    const succeeded: Record<SubjectName, number> = { noria: 0, 'proxy-chain': 0 };
    const p99: Record<SubjectName, number> = { noria: 0, 'proxy-chain': 0 };
    for (const name of NAMES) {
      const subject = bad[name];
      if (subject === undefined) continue;
      const { done, failed, latenciesMs } = await ask<LoadResult>(bench.load, {
        kind: 'tunnels',
        via: 'http',
        port: subject.port,
        target: world.echoPort,
        count: quick ? count / 2 : count,
        beside: 200,
        rate: 100,
      } satisfies Load);
      succeeded[name] = (100 * done) / (done + failed);
      p99[name] = at(latenciesMs, 0.99);
    }
    bench.note(`bad pool, ${phase}: tunnels that come about`, '%', succeeded);
    bench.note(`bad pool, ${phase}: p99 of those`, 'ms', p99);
  }
}

const bad: Partial<Record<SubjectName, Running>> = {};

function print(rows: readonly Row[]): void {
  const number = (value: number) => (value >= 100 ? value.toFixed(0) : value.toFixed(2));
  const cells = rows.map((row) => [
    row.scenario,
    row.unit,
    number(row.noria),
    number(row['proxy-chain']),
    row.ratio.toFixed(2),
    row.target === undefined ? '' : `≤ ${row.target}${row.ratio > row.target ? '  missed' : ''}`,
  ]);
  const table = [['', 'unit', 'noria', 'proxy-chain', 'ratio', 'target'], ...cells];
  const widths = [0, 1, 2, 3, 4, 5].map((column) =>
    Math.max(...table.map((row) => (row[column] ?? '').length)),
  );
  for (const row of table) {
    console.log(
      row
        .map((cell, column) =>
          column < 2 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0),
        )
        .join('  ')
        .trimEnd(),
    );
  }
}

function commit(): string {
  try {
    return execFileSync('git', ['rev-parse', '--short', 'HEAD'], { encoding: 'utf8' }).trim();
  } catch {
    return 'unknown'; // handled: not a checkout
  }
}

if (platform() !== 'linux') {
  console.error('the bench reads CPU time from /proc: it needs Linux');
  process.exit(1);
}
const bench = new Bench();
try {
  const world = await bench.world({ members: MEMBERS, troubles: [] });
  await measureTunnels(bench, world);
  await measureBadPool(bench);
} finally {
  bench.close();
}
print(bench.rows);
const result = {
  date: new Date().toISOString(),
  commit: commit(),
  node: process.version,
  machine: { arch: arch(), cpus: cpus().length, model: cpus()[0]?.model, load: loadavg()[0] },
  rows: bench.rows,
};
mkdirSync(new URL('results/', import.meta.url), { recursive: true });
const file = fileURLToPath(new URL(`results/${result.date.replaceAll(':', '-')}.json`, import.meta.url));
writeFileSync(file, `${JSON.stringify(result, undefined, 2)}\n`);
console.log(`\nwritten to ${file}`);
process.exit(0);
