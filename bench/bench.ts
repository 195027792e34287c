/** What the scenarios of the benchmark share. */
import type { Children, Running } from './children.ts';
import type { Report, Row } from './report.ts';
import { type Figures, measureInRounds } from './rounds.ts';
import type { SubjectOptions } from './subject.ts';
import type { World } from './world.ts';

export interface Bench {
  readonly children: Children;
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

/** A new noria, and the proxy with which it is compared. */
export interface Pair {
  readonly noria: Running;
  readonly 'proxy-chain': Running;
}

export async function openPair({ children }: Bench, options: SubjectOptions): Promise<Pair> {
  const noria = await children.subject('noria', options);
  return { noria, 'proxy-chain': await children.subject('proxy-chain', options) };
}

export function closePair(pair: Pair): void {
  for (const { child } of Object.values(pair) as Running[]) child.kill();
}

/** The options of a subject whose members all work. It uses all of them. */
export function workingMembers(world: World, protocol: SubjectOptions['protocol']): SubjectOptions {
  return { world, protocol, members: MEMBERS, usable: MEMBERS };
}

/** Measures both proxies in alternating rounds and adds the row to the report. */
export async function compare(
  { report }: Bench,
  pair: Pair,
  row: Omit<Row, 'noria' | 'proxy-chain' | 'ratio'>,
  rounds: number,
  measure: (subject: Running, name: keyof Pair) => Promise<number>,
): Promise<void> {
  const { medians, ratio }: Figures<keyof Pair> = await measureInRounds(
    { ...pair },
    ['noria', 'proxy-chain'],
    rounds,
    measure,
  );
  report.add({ ...row, ...medians, ratio });
}
