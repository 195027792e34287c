/** What every scenario is given. */
import type { Children, Running } from './children.ts';
import type { Report, Row } from './report.ts';
import { type Figures, inTurn } from './rounds.ts';
import type { SubjectOptions } from './subject.ts';
import type { World } from './world.ts';

export interface Bench {
  readonly children: Children;
  readonly report: Report;
  /** Good members, and targets. */
  readonly world: World;
  /** Smaller loads and fewer rounds: for CI, which looks for what is broken, not for figures. */
  readonly quick: boolean;
}

/** Members of every world. */
export const MEMBERS = 40;

/** noria and the proxy it is compared to, started anew. */
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

/** What all good members are to a subject. */
export function goodMembers(world: World, protocol: SubjectOptions['protocol']): SubjectOptions {
  return { world, protocol, members: MEMBERS, usable: MEMBERS };
}

/** Measures both in turn and notes the row. */
export async function compare(
  { report }: Bench,
  pair: Pair,
  about: Omit<Row, 'noria' | 'proxy-chain' | 'ratio'>,
  rounds: number,
  measure: (subject: Running, name: keyof Pair) => Promise<number>,
): Promise<void> {
  const { medians, ratio }: Figures<keyof Pair> = await inTurn(
    { ...pair },
    ['noria', 'proxy-chain'],
    rounds,
    measure,
  );
  report.add({ ...about, ...medians, ratio });
}
