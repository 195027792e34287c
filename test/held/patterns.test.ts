/**
 * No pattern in src takes more than linear time: an answer of a link, a header or a line of a file may be a megabyte.
 * recheck proves it from the pattern, or searches for a text that makes the pattern slow.
 */
import { globSync, readFileSync } from 'node:fs';
import { check } from 'recheck';
import { expect, test, vi } from 'vitest';
import { parseAst } from 'vitest/node';

interface Pattern {
  readonly file: string;
  readonly source: string;
  readonly flags: string;
}

/** Modules that build patterns. The test records what the first three build; the others join literal texts. */
const BUILDERS = [
  '../../src/service/link/address-text.ts',
  '../../src/service/link/decode-link.ts',
  '../../src/service/decode-text.ts',
  '../../src/core/secret.ts',
  '../../src/sandbox/links/link-server.ts',
] as const;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;

function* literals(node: unknown, file: string): Generator<Pattern> {
  if (Array.isArray(node)) for (const each of node) yield* literals(each, file);
  if (!isObject(node) || Array.isArray(node)) return;
  const { regex } = node;
  if (isObject(regex)) yield { file, source: String(regex['pattern']), flags: String(regex['flags']) };
  for (const value of Object.values(node)) if (isObject(value)) yield* literals(value, file);
}

function constructed(node: unknown): number {
  if (Array.isArray(node)) return node.reduce((sum: number, each) => sum + constructed(each), 0);
  if (!isObject(node)) return 0;
  const { type, callee } = node;
  const own = type === 'NewExpression' && isObject(callee) && callee['name'] === 'RegExp' ? 1 : 0;
  return Object.values(node).reduce((sum: number, value) => sum + constructed(value), own);
}

const modules = globSync('src/**/*.ts').map((file) => ({
  file,
  tree: parseAst(readFileSync(file, 'utf8'), { lang: 'ts' }),
}));

async function builtPatterns(): Promise<Pattern[]> {
  const built: Pattern[] = [];
  vi.resetModules();
  const original = RegExp;
  globalThis.RegExp = new Proxy(original, {
    construct(target, [source, flags]: [string, string?]) {
      built.push({ file: 'built', source, flags: flags ?? '' });
      return new target(source, flags);
    },
  });
  try {
    const [, , { compileLayout }] = await Promise.all([
      import(BUILDERS[0]),
      import(BUILDERS[1]),
      import(BUILDERS[2]),
    ]);
    compileLayout('exclusive', '{ip}:{port},{adr};{area}|{id} {timeout}');
  } finally {
    globalThis.RegExp = original;
  }
  return built;
}

test('src: only the listed modules build patterns', () => {
  const builders = modules.filter(({ tree }) => constructed(tree) > 0).map(({ file }) => file);
  expect(builders.sort()).toEqual(BUILDERS.map((path) => path.replace('../../', '')).sort());
});

test('src: every pattern takes linear time', { timeout: 120_000 }, async () => {
  const built = await builtPatterns();
  expect(built.length).toBeGreaterThan(2);
  const all = [...modules.flatMap(({ file, tree }) => [...literals(tree, file)]), ...built];
  const unique = new Map(all.map((pattern) => [`/${pattern.source}/${pattern.flags}`, pattern]));
  expect(unique.size, 'found no pattern').toBeGreaterThan(100);
  const unproven: string[] = [];
  for (const [text, { file, source, flags }] of unique) {
    const found = await check(source, flags, { timeout: 20_000 });
    const what = found.status === 'vulnerable' ? found.complexity.summary : found.status;
    if (found.status !== 'safe') unproven.push(`${file}: ${text} is ${what}`);
  }
  expect(unproven).toEqual([]);
});
