/**
 * Measures latency over a network: the members are some milliseconds away. latency.ts starts this program on the
 * network of far-network.py, whose addresses it uses. It prints its rows as JSON.
 */
import { MEMBERS, workingMembers } from './bench.ts';
import { Children, type Client, type CountedWorld, type Running } from './children.ts';
import type { Row } from './report.ts';
import { quantile } from './rounds.ts';
import type { SubjectName, SubjectOptions } from './subject.ts';

const quick = process.argv.includes('--quick');
/** Measures only the paths whose names contain this text. */
const only = process.argv.slice(2).find((argument) => !argument.startsWith('--')) ?? '';
const MEMBER_HOSTS = { listen: '10.9.0.1', reach: '10.9.0.2' };
/**
 * The rates of the loads. At the low rate all proxies run at the same time. The first seconds of each load are not
 * counted.
 */
const RATES = [
  { rate: 20, warmSeconds: quick ? 1 : 4, seconds: quick ? 2 : 6, atOnce: true },
  { rate: 500, warmSeconds: 1, seconds: quick ? 1 : 2, atOnce: false },
] as const;

type Subject = Extract<SubjectName, 'noria' | 'proxy-chain' | 'bare'>;

interface Path {
  readonly name: string;
  readonly options: Pick<SubjectOptions, 'protocol' | 'login'>;
  readonly subjects: readonly Subject[];
  /** If set, the load consists of plain HTTP requests instead of tunnels, to this number of hosts in turn. */
  readonly requests?: { readonly targets: number };
}

const ALL = ['noria', 'proxy-chain', 'bare'] as const;
const PATHS: readonly Path[] = [
  { name: 'HTTP member', options: { protocol: 'http' }, subjects: ALL },
  { name: 'SOCKS5 member', options: { protocol: 'socks5' }, subjects: ALL },
  { name: 'SOCKS5 member with login', options: { protocol: 'socks5', login: true }, subjects: ALL },
  { name: 'SOCKS4 member', options: { protocol: 'socks4' }, subjects: ALL },
  {
    name: 'plain HTTP request, pair in use',
    options: { protocol: 'http' },
    subjects: ['noria', 'proxy-chain'],
    requests: { targets: 1 },
  },
  {
    name: 'plain HTTP request, new pair',
    options: { protocol: 'http' },
    subjects: ['noria', 'proxy-chain'],
    requests: { targets: 40_000 },
  },
];

interface Started {
  readonly name: Subject;
  readonly running: Running;
  readonly far: CountedWorld;
  readonly client: Client;
}

interface Figures {
  readonly p50: number;
  readonly p99: number;
  /** How many connections the members accepted for each tunnel or request. */
  readonly opened: number;
}

const children = new Children();
const rows: Row[] = [];
try {
  for (const path of PATHS) if (path.name.includes(only)) await measure(path);
} finally {
  children.close();
}
console.log(JSON.stringify(rows));

async function measure(path: Path): Promise<void> {
  const started = await Promise.all(path.subjects.map((name) => start(path, name)));
  for (const { rate, warmSeconds, seconds, atOnce } of RATES) {
    const figures = new Map<Subject, Figures>();
    const run = async (one: Started) => {
      await load(path, one, rate, warmSeconds);
      const before = await one.far.accepted();
      const latenciesMs = await load(path, one, rate, seconds);
      const opened = ((await one.far.accepted()) - before) / latenciesMs.length;
      const [p50, p99] = [quantile(latenciesMs, 0.5), quantile(latenciesMs, 0.99)];
      figures.set(one.name, { p50, p99, opened });
    };
    if (atOnce) await Promise.all(started.map(run));
    else for (const one of started) await run(one);
    addRows(`${path.name}, ${rate} a second`, figures);
  }
  for (const { running, far, client } of started)
    for (const { child } of [running, far, client]) child.kill();
}

async function start({ options }: Path, name: Subject): Promise<Started> {
  const far = await children.countedWorld({
    members: MEMBERS,
    faults: [],
    memberHosts: MEMBER_HOSTS,
    memberLogin: options.login === true,
  });
  const { world } = far;
  const running = await children.subject(name, { ...workingMembers(world, options.protocol), ...options });
  return { name, running, far, client: children.client() };
}

async function load(
  { requests }: Path,
  { running: { port }, far: { world }, client }: Started,
  rate: number,
  seconds: number,
): Promise<readonly number[]> {
  const common = { port, rate, count: seconds * rate, concurrency: 512 };
  const { latenciesMs } = await client.loadOrThrow(
    requests === undefined
      ? { ...common, kind: 'tunnels', via: 'http', target: world.echoPort, onlyOpen: true }
      : { ...common, kind: 'requests', target: world.httpPort, targets: requests.targets },
  );
  return latenciesMs;
}

function addRows(line: string, figures: ReadonlyMap<Subject, Figures>): void {
  for (const [which, unit] of [
    ['p50', 'ms'],
    ['p99', 'ms'],
    ['opened', 'connections'],
  ] as const) {
    const [noria = Number.NaN, proxyChain, bare] = ALL.map((subject) => figures.get(subject)?.[which]);
    rows.push({
      scenario: `${line}: ${which}`,
      line,
      ...(which === 'opened' && { column: "noria's connections per tunnel" }),
      unit,
      noria,
      ...(proxyChain !== undefined && { 'proxy-chain': proxyChain }),
      ...(bare !== undefined && { bare }),
    });
  }
}
