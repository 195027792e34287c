/**
 * `npm run mutants -- SOURCE… [TEST…]`: makes the usual small changes to the named files and folders of `src/`, one after the other, in a
 * copy of the checkout, and runs the tests of their folders and those named (of `npm test`, not of `npm run test:all`). Prints each mutant
 * that no test notices, and the scores. `--sample 40` tries 40 mutants, spread over all of them. Not part of `.ci/run`: a mutant takes
 * some seconds.
 *
 * Survivors that change nothing:
 *   state/pace-file.ts      `let broken = false`: the callback sets it first
 *   state/pace-file.ts      `own.call === undefined` of `combineEntries`: its caller has returned without a call
 *   refill/exit-rotation.ts `address === undefined` of `#next`: the map has no such key
 */
import { globSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { parseAst } from 'vitest/node';
import { type Limits, runTests, TOO_LONG, withCopies } from './copies.ts';

interface Mutant {
  readonly file: string;
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
const files = filesOf(
  positionals.filter((path) => path.startsWith('src')),
  '*.ts',
);
const sources = new Map(files.map((file) => [file, readFileSync(file, 'utf8')]));
const tests = filesOf(
  [
    ...positionals.filter((path) => !path.startsWith('src')),
    ...files.map((file) => dirname(file).replace('src', 'test')),
  ],
  '*.test.ts',
);
const all = files.flatMap((file) => [...mutantsOf(parseAst(textOf(file), { lang: 'ts' }), file)]);
const step = Math.max(1, all.length / Number(values.sample ?? all.length));
const chosen = all.filter((_, index) => Math.floor(index / step) !== Math.floor((index - 1) / step));
process.exitCode = await withCopies(Number(values.parallel), tryAll);

async function tryAll(copies: readonly string[]): Promise<number> {
  const control = await runTests(copies[0] ?? '', tests, ['--project=noria'], {
    testMs: 300_000,
    allMs: undefined,
  });
  const broken = [...control.failed, ...control.timedOut];
  if (broken.length > 0 || control.trouble !== undefined) {
    console.log(`without a mutant: ${broken.join('; ')} ${control.trouble ?? ''}`);
    return 1;
  }
  const waiting = [...chosen];
  const lived: Mutant[] = [];
  let onlySlow = 0;
  await Promise.all(
    copies.map(async (copy) => {
      for (let mutant = waiting.shift(); mutant !== undefined; mutant = waiting.shift()) {
        const verdict = await tryOne(copy, mutant, control.tookMs);
        if (verdict === 'slow') onlySlow += 1;
        if (verdict !== 'lives') continue;
        lived.push(mutant);
        console.log(`lives: ${textOfMutant(mutant)}`);
      }
    }),
  );
  for (const file of files) printScore(file, lived, (mutant) => mutant.file === file);
  printScore('in all', lived, () => true);
  console.log(`${onlySlow} of the killed only reached a time limit; ${all.length} mutants exist`);
  return 0;
}

/** Runs the tests that are about the mutant's file first, then the others. */
async function tryOne(
  copy: string,
  { file, start, end, by }: Mutant,
  tookMs: ReadonlyMap<string, number>,
): Promise<'killed' | 'slow' | 'lives'> {
  const name = basename(file, '.ts');
  const isNear = (test: string) =>
    basename(test).startsWith(name) || readFileSync(test, 'utf8').includes(`/${name}.ts'`);
  const source = textOf(file);
  writeFileSync(join(copy, file), source.slice(0, start) + by + source.slice(end));
  try {
    for (const group of [tests.filter(isNear), tests.filter((test) => !isNear(test))]) {
      if (group.length === 0) continue;
      const controlMs = group.reduce((sum, test) => sum + (tookMs.get(test) ?? 0), 0);
      // Far above what the unchanged code takes, so that a busy machine kills no mutant.
      const limits: Limits = { testMs: 10_000 + 2 * controlMs, allMs: 30_000 + 5 * controlMs };
      const options = ['--project=noria', '--bail=1'];
      const { failed, timedOut, trouble } = await runTests(copy, group, options, limits);
      if (failed.length > 0) return 'killed';
      if (timedOut.length > 0 || trouble === TOO_LONG) return 'slow';
      if (trouble !== undefined) return 'killed';
    }
    return 'lives';
  } finally {
    writeFileSync(join(copy, file), source);
  }
}

function printScore(title: string, lived: readonly Mutant[], counts: (mutant: Mutant) => boolean): void {
  const tried = chosen.filter(counts).length;
  if (tried === 0) return;
  const killed = tried - lived.filter(counts).length;
  console.log(`${title}: ${killed} of ${tried} mutants killed (${Math.round((100 * killed) / tried)} %)`);
}

function textOfMutant({ file, start, end, by }: Mutant): string {
  const source = textOf(file);
  const line = source.slice(0, start).split('\n').length;
  return `${file}:${line}: ${oneLine(source.slice(start, end))} -> ${oneLine(by) || 'nothing'}`;
}

/** The named files, and those below the named folders. */
function filesOf(paths: readonly string[], pattern: string): string[] {
  const found = paths.flatMap((path) =>
    statSync(path, { throwIfNoEntry: false })?.isFile() === true
      ? [path]
      : globSync(join(path, '**', pattern)).sort(),
  );
  return [...new Set(found)];
}

function textOf(file: string): string {
  return sources.get(file) ?? '';
}

/** The mutants of a node and of all nodes in it. */
function* mutantsOf(node: unknown, file: string): Generator<Mutant> {
  if (Array.isArray(node)) for (const each of node) yield* mutantsOf(each, file);
  if (!isNode(node) || node.type.startsWith('TS') || node.type === 'ImportDeclaration') return;
  for (const mutant of ownMutants(node, textOf(file))) yield { file, ...mutant };
  for (const value of Object.values(node)) if (typeof value === 'object') yield* mutantsOf(value, file);
}

function* ownMutants(node: Node, source: string): Generator<Omit<Mutant, 'file'>> {
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
    // A caller that asks for a boolean takes undefined for false, and false itself is changed above.
    if (!['undefined', 'false'].includes(source.slice(from, to)))
      yield { start: from, end: to, by: 'undefined as never' };
  }
}

type Node = { readonly type: string; readonly start: number; readonly end: number } & Readonly<
  Record<string, unknown>
>;

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null && 'type' in value && typeof value.type === 'string';
}

function oneLine(text: string): string {
  return text.replace(/\s+/g, ' ').slice(0, 90);
}
