/** What the scenarios of the benchmark share. */
import { type Children, type Client, cpuMs, type Running } from './children.ts';
import type { Load, LoadOf } from './load.ts';
import type { Report, Row } from './report.ts';
import { measureInRounds } from './rounds.ts';
import type { SubjectOptions } from './subject.ts';
import type { World } from './world.ts';

export interface Bench {
  readonly children: Children;
  /** Runs the loads of most scenarios, one at a time. */
  readonly client: Client;
  readonly report: Report;
  /** The world in which all members and targets work. */
  readonly world: World;
  /**
   * Whether to use smaller loads and fewer rounds, for CI. They show whether something is broken, but give no exact
   * figures.
   */
  readonly quick: boolean;
}

export const MEMBERS = 40;
export const US_PER_MS = 1_000;
const CONCURRENT_TUNNELS = 64;
/** With the warm rounds, this makes 24,000 tunnels: the compiler of the largest subject works for about 20,000. */
const WARM_TUNNELS = 16_000;

/** A ratio is noria's figure divided by proxy-chain's. */
export const PROXIES = ['noria', 'proxy-chain'] as const;

/** A new noria, and the proxy with which it is compared. */
export type Pair = Readonly<Record<(typeof PROXIES)[number], Running>>;

export async function openPair({ children }: Bench, options: SubjectOptions): Promise<Pair> {
  const noria = await children.subject('noria', options);
  return { noria, 'proxy-chain': await children.subject('proxy-chain', options) };
}

export function closePair(pair: Readonly<Record<string, Running>>): void {
  for (const { child } of Object.values(pair)) child.kill();
}

/** The options of a subject whose members all work. It uses all of them. */
export function workingMembers(world: World, protocol: SubjectOptions['protocol']): SubjectOptions {
  return { world, protocol, members: MEMBERS, usable: MEMBERS };
}

/** Tunnels of HTTP clients through the subject to the echo target. */
export function tunnels(
  { world }: Bench,
  { port }: Running,
  options: Pick<LoadOf<'tunnels'>, 'count'> & Partial<LoadOf<'tunnels'>>,
): LoadOf<'tunnels'> {
  const { echoPort: target } = world;
  return { kind: 'tunnels', via: 'http', port, target, concurrency: CONCURRENT_TUNNELS, ...options };
}

/** Opens tunnels until the compiler has finished with the code of the subject. */
export async function warmUp(bench: Bench, subject: Running): Promise<void> {
  await bench.client.loadOrThrow(tunnels(bench, subject, { count: WARM_TUNNELS }));
}

/** Runs a load. Returns the subject's CPU time for each completed tunnel, byte or request, and the latencies. */
export async function measureLoad(
  { client }: Bench,
  subject: Running,
  load: Load,
  readCpuMs = cpuMs,
): Promise<{ readonly cpuUs: number; readonly latenciesMs: readonly number[] }> {
  const before = readCpuMs(subject);
  const { done, latenciesMs } = await client.loadOrThrow(load);
  return { cpuUs: (US_PER_MS * (readCpuMs(subject) - before)) / done, latenciesMs };
}

/** Measures both proxies in alternating rounds and adds the row to the report. */
export async function compare(
  { report }: Bench,
  pair: Pair,
  row: Omit<Row, 'noria' | 'proxy-chain' | 'ratio'>,
  rounds: number,
  measure: (subject: Running, name: keyof Pair) => Promise<number>,
): Promise<void> {
  const { medians, ratio } = await measureInRounds(pair, PROXIES, rounds, measure);
  report.add({ ...row, ...medians, ratio });
}
