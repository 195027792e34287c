/**
 * `npm run mutants -- FILE TEST…`: makes the usual small changes to one file, one after the other, in a copy of the checkout, and runs
 * the tests. Prints each mutant that no test notices, and the score. `--sample 40` tries 40 of the mutants, spread over the file.
 * Not part of `.ci/run`: a mutant takes some seconds.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { parseAst } from 'vitest/node';
import { runTests, withCopies } from './copies.ts';

interface Mutant {
  readonly start: number;
  readonly end: number;
  readonly by: string;
}

const OPERATORS: Readonly<Record<string, string>> = {
  '<': '<=',
  '<=': '<',
  '>': '>=',
  '>=': '>',
  '===': '!==',
  '!==': '===',
  '+': '-',
  '-': '+',
  '*': '/',
  '/': '*',
  '&&': '||',
  '||': '&&',
};

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { sample: { type: 'string' }, parallel: { type: 'string', default: '2' } },
});
const [file = '', ...tests] = positionals;
const source = readFileSync(file, 'utf8');
const all = [...mutantsOf(parseAst(source, { lang: 'ts' }))];
const step = Math.max(1, all.length / Number(values.sample ?? all.length));
const chosen = Array.from(
  { length: Math.floor(all.length / step) },
  (_, index) => all[Math.floor(index * step)],
);
process.exitCode = await withCopies(Number(values.parallel), tryAll);

async function tryAll(copies: readonly string[]): Promise<number> {
  const control = await runTests(copies[0] ?? '', tests, []);
  const broken = [...control.failed, ...control.timedOut];
  if (broken.length > 0 || control.trouble !== undefined) {
    console.log(`without a mutant: ${broken.join('; ')} ${control.trouble ?? ''}`);
    return 1;
  }
  const waiting = chosen.filter((mutant) => mutant !== undefined);
  let killed = 0;
  await Promise.all(
    copies.map(async (copy) => {
      for (let mutant = waiting.shift(); mutant !== undefined; mutant = waiting.shift()) {
        const { start, end, by } = mutant;
        writeFileSync(join(copy, file), source.slice(0, start) + by + source.slice(end));
        const { failed, timedOut, trouble } = await runTests(copy, tests, ['--bail=1']);
        if (failed.length + timedOut.length > 0 || trouble !== undefined) killed += 1;
        else
          console.log(
            `lives: ${file}:${lineOf(start)}: ${oneLine(source.slice(start, end))} -> ${oneLine(by) || 'nothing'}`,
          );
      }
    }),
  );
  const share = Math.round((100 * killed) / chosen.length);
  console.log(`${file}: ${killed} of ${chosen.length} mutants killed (${share} %), of ${all.length} in all`);
  return 0;
}

/** The mutants of a node and of all nodes in it. */
function* mutantsOf(node: unknown): Generator<Mutant> {
  if (Array.isArray(node)) for (const each of node) yield* mutantsOf(each);
  if (!isNode(node) || node.type.startsWith('TS') || node.type === 'ImportDeclaration') return;
  yield* ownMutants(node);
  for (const value of Object.values(node)) if (typeof value === 'object') yield* mutantsOf(value);
}

function* ownMutants(node: Node): Generator<Mutant> {
  const { type, start, end } = node;
  const operator = String(node['operator']);
  const { left, right, test, value, expression } = node;
  if ((type === 'BinaryExpression' || type === 'LogicalExpression') && isNode(left) && isNode(right)) {
    const by = OPERATORS[operator];
    const at = source.indexOf(operator, left.end);
    if (by !== undefined && at < right.start) yield { start: at, end: at + operator.length, by };
  }
  if ((type === 'IfStatement' || type === 'ConditionalExpression') && isNode(test)) {
    for (const by of ['true', 'false']) yield { start: test.start, end: test.end, by: `(${by} as boolean)` };
  }
  if (type === 'Literal' && typeof value === 'boolean') yield { start, end, by: String(!value) };
  if (type === 'UnaryExpression' && operator === '!') yield { start, end: start + 1, by: '' };
  if (
    type === 'ExpressionStatement' &&
    isNode(expression) &&
    /^(Call|Await|Assignment|Update)/.test(expression.type)
  )
    yield { start, end, by: ';' };
  if (type === 'ReturnStatement' && isNode(node['argument'])) {
    const { start: from, end: to } = node['argument'];
    if (source.slice(from, to) !== 'undefined') yield { start: from, end: to, by: 'undefined as never' };
  }
}

type Node = { readonly type: string; readonly start: number; readonly end: number } & Readonly<
  Record<string, unknown>
>;

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string';
}

function lineOf(position: number): number {
  return source.slice(0, position).split('\n').length;
}

function oneLine(text: string): string {
  return text.replace(/\s+/g, ' ').slice(0, 90);
}
