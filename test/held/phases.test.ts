import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { MEMBER_MOVES } from '../../src/pool/member.ts';
import { SOURCE_MOVES } from '../../src/refill/reaction.ts';

const page = readFileSync('docs/architecture.md', 'utf8');
const diagrams = [...page.matchAll(/stateDiagram-v2\n([\s\S]*?)```/g)].map(([, diagram = '']) =>
  [...diagram.matchAll(/(\w+) --> (\w+)/g)].map(([, from, to]) => `${from} -> ${to}`),
);

const TABLES: readonly (readonly [what: string, moves: Readonly<Record<string, readonly string[]>>])[] = [
  ['member', MEMBER_MOVES],
  ['source', SOURCE_MOVES],
];

for (const [at, [what, moves]] of TABLES.entries()) {
  test(`docs/architecture.md: the diagram of a ${what} draws exactly the moves in the code`, () => {
    const coded = Object.entries(moves).flatMap(([from, nexts]) => nexts.map((to) => `${from} -> ${to}`));
    expect(coded.length, 'nothing to compare').toBeGreaterThan(0);
    expect([...(diagrams[at] ?? [])].sort()).toEqual(coded.sort());
  });
}
