/**
 * `npm run bench:fleet`: what many replicas of a fleet cost, and how long a member takes to be usable everywhere. The replicas are
 * the real classes without listeners, all in one process, on a real Valkey or Redis server from the search path.
 *
 *   npm run bench:fleet                   5, 50, 150 and 300 replicas, then a large state; about ten minutes
 *   npm run bench:fleet -- --quick        10 replicas and a small state, about a minute
 *   npm run bench:fleet -- 10 50          these numbers of replicas
 *   npm run bench:fleet -- --state        only the large state
 */
import { createConnection } from 'node:net';
import { type DemoStore, openDemoStore } from '../src/commands/demo.ts';
import { formatTable } from '../src/commands/table.ts';
import { Children, cpuMsOfPid } from './children.ts';
import { quantile } from './rounds.ts';

const MEMBERS = 1_000;
const BUSY_PER_SECOND = 2_000;
const SECONDS = 5;
const DRAWS = 20;
/** The share of its beats that each replica has to send before anything is measured. */
const SETTLED = 0.9;
const MAX_SETTLES = 20;
const LARGE = 100_000;
/** What the other replica does while one joins. */
const STATE_USES_PER_SECOND = 200;

interface Size {
  readonly replicas: number;
  readonly idleBytes: number;
  readonly idlePercent: number;
  readonly busyBytes: number;
  readonly busyPercent: number;
  readonly beatsShare: number;
  readonly losses: number;
  readonly usableMs: readonly [number, number];
  readonly replicaMiB: number;
  readonly storeMiB: number;
}

/** Sends one command to the store. @returns the text of the answer. */
function ask({ port }: DemoStore, command: string): Promise<string> {
  const { promise, resolve, reject } = Promise.withResolvers<string>();
  const socket = createConnection(port, '127.0.0.1', () => socket.write(`${command}\r\n`));
  let text = '';
  socket.on('error', reject);
  socket.on('data', (chunk) => {
    text += chunk;
    const length = Number(/^\$(\d+)\r\n/.exec(text)?.[1] ?? Infinity);
    if (text.length < length) return;
    socket.destroy();
    resolve(text);
  });
  return promise;
}

async function numberIn(store: DemoStore, section: string, name: string): Promise<number> {
  return Number(new RegExp(`^${name}:(\\d+)`, 'm').exec(await ask(store, `INFO ${section}`))?.[1]);
}

async function bytesOf(store: DemoStore): Promise<number> {
  const [input, output] = await Promise.all(
    ['total_net_input_bytes', 'total_net_output_bytes'].map((name) => numberIn(store, 'stats', name)),
  );
  return (input ?? 0) + (output ?? 0);
}

async function measureSize(children: Children, store: DemoStore, count: number): Promise<Size> {
  const empty = await numberIn(store, 'memory', 'used_memory');
  const replicas = children.fleet();
  const { residentMiB: bare } = await replicas.work({ kind: 'close' });
  const place = { storePort: store.port, fleet: `bench-${count}` };
  const opened = { kind: 'open', ...place, replicas: count, members: MEMBERS } as const;
  const { residentMiB } = await replicas.work(opened);
  let losses = 0;
  const load = async (perSecond: number) => {
    // What opened the replicas, or another program, may still keep this machine busy: then replicas beat late.
    for (let left = MAX_SETTLES; left > 0; left -= 1) {
      const { beats } = await replicas.work({ kind: 'use', perSecond, seconds: 2 });
      if (beats >= SETTLED * 2 * count) break;
    }
    const [bytes, cpu, startedAt] = [await bytesOf(store), cpuMsOfPid(store.pid), performance.now()];
    const { beats, losses: lost } = await replicas.work({ kind: 'use', perSecond, seconds: SECONDS });
    const ms = performance.now() - startedAt;
    losses += lost;
    return {
      bytes: (await bytesOf(store)) - bytes,
      percent: (100 * (cpuMsOfPid(store.pid) - cpu)) / ms,
      beats,
      seconds: ms / 1_000,
    };
  };
  const idle = await load(0);
  const busy = await load(BUSY_PER_SECOND);
  const { latenciesMs } = await replicas.work({ kind: 'draw', count: DRAWS });
  const used = await numberIn(store, 'memory', 'used_memory');
  await replicas.work({ kind: 'close' });
  replicas.child.kill();
  return {
    replicas: count,
    idleBytes: idle.bytes / idle.beats,
    idlePercent: idle.percent,
    busyBytes: busy.bytes / busy.beats,
    busyPercent: busy.percent,
    beatsShare: idle.beats / (count * idle.seconds),
    losses,
    usableMs: [quantile(latenciesMs, 0.5), quantile(latenciesMs, 0.99)],
    replicaMiB: (residentMiB - bare) / count,
    storeMiB: (used - empty) / 1_048_576,
  };
}

function printSizes(sizes: readonly Size[]): void {
  const column = (title: string, cell: (size: Size) => string) => ({ title, align: 'right', cell }) as const;
  const lines = formatTable(
    sizes,
    [
      column('REPLICAS', ({ replicas }) => String(replicas)),
      column('IDLE B/BEAT', ({ idleBytes }) => idleBytes.toFixed(0)),
      column('STORE IDLE', ({ idlePercent }) => `${idlePercent.toFixed(1)} %`),
      column('BUSY B/BEAT', ({ busyBytes }) => busyBytes.toFixed(0)),
      column('STORE BUSY', ({ busyPercent }) => `${busyPercent.toFixed(1)} %`),
      column('BEATS/S EACH', ({ beatsShare }) => beatsShare.toFixed(2)),
      column('LOSSES', ({ losses }) => String(losses)),
      column('USABLE P50', ({ usableMs: [p50] }) => `${p50.toFixed(0)} ms`),
      column('P99', ({ usableMs: [, p99] }) => `${p99.toFixed(0)} ms`),
      column('MIB/REPLICA', ({ replicaMiB }) => replicaMiB.toFixed(1)),
      column('STORE MIB', ({ storeMiB }) => storeMiB.toFixed(1)),
    ],
    200,
  );
  console.log(lines.join('\n'));
}

/** A state with many members and sessions: how long a replica takes to load it, and whether that costs another one its store. */
async function measureState(
  children: Children,
  store: DemoStore,
  count: number,
  joinSeconds: number,
): Promise<void> {
  const empty = await numberIn(store, 'memory', 'used_memory');
  const [holder, joiner] = [children.fleet(), children.fleet()];
  const place = { storePort: store.port, fleet: 'bench-state' };
  await holder.work({ kind: 'open', ...place, replicas: 1, members: count });
  const openingAt = performance.now();
  await holder.work({ kind: 'hold', sessions: count });
  const openedMs = performance.now() - openingAt;
  const joining = joiner.work({ kind: 'join', ...place, members: count });
  const used = await holder.work({ kind: 'use', perSecond: STATE_USES_PER_SECOND, seconds: joinSeconds });
  const joined = await joining;
  const [first = 0, all = 0] = joined.latenciesMs;
  const reloaded = await holder.work({ kind: 'reload' });
  const [again = 0] = reloaded.latenciesMs;
  const storeMiB = ((await numberIn(store, 'memory', 'used_memory')) - empty) / 1_048_576;
  const thousands = count.toLocaleString('en');
  const seconds = (ms: number) => `${(ms / 1_000).toFixed(1)} s`;
  console.log(
    [
      `${thousands} members and ${thousands} sessions, in a store of ${storeMiB.toFixed(0)} MiB:`,
      `  open the sessions on one replica: ${seconds(openedMs)}`,
      `  a new replica can use its first member after ${seconds(first)}, and all after ${seconds(all)}`,
      `  a replica that holds all sessions loads members and sessions again in ${seconds(again)}`,
      `  meanwhile the other replica lost the store ${used.losses} times and sent ${used.beats} beats in ${joinSeconds} s`,
      `  memory of the processes: ${joined.residentMiB.toFixed(0)} and ${reloaded.residentMiB.toFixed(0)} MiB`,
    ].join('\n'),
  );
  for (const each of [joiner, holder]) {
    await each.work({ kind: 'close' });
    each.child.kill();
  }
}

const args = process.argv.slice(2);
const quick = args.includes('--quick');
const given = args.map(Number).filter((count) => count > 0);
const counts = args.includes('--state') ? [] : given.length > 0 ? given : quick ? [10] : [5, 50, 150, 300];
const store = await openDemoStore();
if (store === undefined) {
  console.error('neither valkey-server nor redis-server is in the search path');
  process.exit(1);
}
const children = new Children();
try {
  for (const count of counts) printSizes([await measureSize(children, store, count)]);
  if (given.length === 0) await measureState(children, store, quick ? LARGE / 20 : LARGE, quick ? 10 : 40);
} finally {
  children.close();
  await store.close();
}
