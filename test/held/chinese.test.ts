/** Every reason and every advice in the code has a Chinese text. */
import { globSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parseAst } from 'vitest/node';
import { translate } from '../../src/core/chinese.ts';

type Node = Readonly<Record<string, unknown>>;

/** The parts whose reasons reach the page, the command line or a client. */
const FILES = globSync('src/{daemon,dialer,listener,pool,refill}/**/*.ts').toSorted();
/** The names of properties, variables and parameters that hold such a text. */
const NAMES = /^(?:reason|advice|summary|what|why)$|_ADVICE$/;
/** For a client whose language noria cannot know, because its request is malformed. */
const OTHER_READERS = /^(?:badRequest|invalid)$/;

const isNode = (value: unknown): value is Node => typeof value === 'object' && value !== null;
const nameOf = (node: unknown): string =>
  isNode(node) ? String(node['name'] ?? (isNode(node['property']) ? nameOf(node['property']) : '')) : '';
const childrenOf = (node: Node): Node[] =>
  Object.values(node).flatMap((value) =>
    Array.isArray(value) ? value.filter(isNode) : isNode(value) ? [value] : [],
  );

function* walk(node: Node): Generator<Node> {
  yield node;
  for (const child of childrenOf(node)) yield* walk(child);
}

/** The functions of a tree that take such a text, with the place of the parameter. */
function takersIn(tree: Node): Map<string, number> {
  const found = new Map<string, number>();
  for (const node of walk(tree)) {
    const isMethod = node['type'] === 'MethodDefinition';
    const made = isMethod ? node['value'] : node;
    if (!isNode(made) || !Array.isArray(made['params'])) continue;
    const at = made['params'].findIndex((parameter) => NAMES.test(nameOf(parameter)));
    const name = nameOf(isMethod ? node['key'] : node['id']);
    if (at !== -1 && name !== '') found.set(name, at);
  }
  return found;
}

/** The sentences that an expression can yield; values in them are numbers. */
function* sentencesOf(node: Node): Generator<string> {
  const { type, value } = node;
  if (type === 'CallExpression' || type === 'NewExpression') return;
  if (type === 'Literal' && typeof value === 'string') yield value;
  else if (type === 'TemplateLiteral') yield filledIn(node);
  else if (type === 'ConditionalExpression') {
    for (const branch of [node['consequent'], node['alternate']])
      if (isNode(branch)) yield* sentencesOf(branch);
  } else for (const child of childrenOf(node)) yield* sentencesOf(child);
}

function filledIn(node: Node): string {
  const quasis = node['quasis'] as readonly { value: { cooked: string } }[];
  const values = (node['expressions'] as readonly Node[]).map((expression) => {
    const [, noun] = (expression['arguments'] ?? []) as readonly Node[];
    if (nameOf(expression['callee']) === 'formatCount') return `7 ${String(noun?.['value'])}s`;
    return nameOf(expression['callee']) === 'roughDuration' ? '7 s' : '7';
  });
  return quasis.map(({ value }, at) => value.cooked + (values[at] ?? '')).join('');
}

function* textsIn(tree: Node, takers: ReadonlyMap<string, number>): Generator<string> {
  for (const node of walk(tree)) {
    const { type } = node;
    const holder = nameOf(type === 'Property' || type === 'MethodDefinition' ? node['key'] : node['id']);
    const value = node['value'] ?? node['init'];
    if (type === 'Property' || type === 'VariableDeclarator') {
      if (NAMES.test(holder) && isNode(value)) yield* sentencesOf(value);
    }
    if (type !== 'CallExpression' && type !== 'NewExpression') continue;
    const callee = nameOf(node['callee']);
    const at = takers.get(callee);
    const argument = at === undefined ? undefined : (node['arguments'] as readonly Node[])[at];
    if (argument !== undefined && !OTHER_READERS.test(callee)) yield* sentencesOf(argument);
  }
}

test('chinese: every reason and every advice in the code is translated', () => {
  const trees = FILES.map((file) => parseAst(readFileSync(file, 'utf8'), { lang: 'ts' }) as unknown as Node);
  const takers = new Map(trees.flatMap((tree) => [...takersIn(tree)]));
  const texts = new Set(trees.flatMap((tree) => [...textsIn(tree, takers)]));
  const sentences = [...texts].filter((text) => /[a-z]{2,} [a-z]+ [a-z]{2,}/i.test(text));
  expect(sentences.length).toBeGreaterThan(80);
  const missing = sentences.filter(
    (text) =>
      /[a-z]{2,} [a-z]{2,} [a-z]{2,} /.test(translate(text, 'zh-CN')) || translate(text, 'zh-CN') === text,
  );
  expect(missing).toEqual([]);
});
