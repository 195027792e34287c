/**
 * No pattern in src takes more than linear time: an answer of a link, a header or a line of a file may be a megabyte.
 * recheck proves it from the pattern.
 */
import { globSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { check } from 'recheck';
import { expect, test } from 'vitest';
import { parseAst } from 'vitest/node';

interface Pattern {
  readonly file: string;
  readonly source: string;
  readonly flags: string;
}

/**
 * Modules that build patterns. The test records what the first two build. The others join literal texts, and layouts
 * with bounded repetitions, which test/service/hostile-answers.test.ts runs.
 */
const BUILDERS = [
  '../../src/service/link/address-text.ts',
  '../../src/service/link/decode-link.ts',
  '../../src/service/decode-text.ts',
  '../../src/core/secret.ts',
  '../../src/sandbox/links.ts',
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
  const original = RegExp;
  globalThis.RegExp = new Proxy(original, {
    construct(target, [source, flags]: [string, string?]) {
      built.push({ file: 'built', source, flags: flags ?? '' });
      return new target(source, flags);
    },
  });
  try {
    await Promise.all([BUILDERS[0], BUILDERS[1]].map((path) => import(`${path}?built`))); // not the module that is loaded already
  } finally {
    globalThis.RegExp = original;
  }
  return built;
}

/** The patterns that this checkout has proved: a proof takes some 30 ms of CPU. */
const PROVED = 'node_modules/.cache/linear-patterns.json';
/** recheck cannot prove a pattern with a lookahead or with large bounds. Such a pattern runs over texts of this length. */
const TIMED_LENGTH = 50_000;
/** A quadratic pattern needs several seconds for a text, a linear one less than a millisecond. */
const MAX_CPU_MICROSECONDS = 500_000;
const UNITS = [' ', ',', ':', '.', '[', ']', '1', 'a', 'F', '-', '/', '"', '\n', '\t'];

function readProved(): Set<string> {
  try {
    return new Set<string>(JSON.parse(readFileSync(PROVED, 'utf8')));
  } catch {
    return new Set(); // handled: without the file, the test proves every pattern
  }
}

/** Returns a text over which the pattern takes too long. */
function slowText({ source, flags }: Pattern): string | undefined {
  const pattern = new RegExp(source, flags);
  const units = UNITS.flatMap((one) => UNITS.map((other) => one + other));
  return units.find((unit) => {
    const text = `${unit.repeat(TIMED_LENGTH / 2)}x`;
    const before = process.threadCpuUsage();
    text.replace(pattern, '');
    const { user, system } = process.threadCpuUsage(before);
    return user + system > MAX_CPU_MICROSECONDS;
  });
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
  const proved = readProved();
  const slow: string[] = [];
  for (const [text, pattern] of unique) {
    if (proved.has(text)) continue;
    const found = await check(pattern.source, pattern.flags, { checker: 'automaton', timeout: 2_000 });
    const what = found.status === 'vulnerable' ? found.complexity.summary : undefined;
    const over = found.status === 'unknown' ? slowText(pattern) : undefined;
    if (what === undefined && over === undefined) proved.add(text);
    else slow.push(`${pattern.file}: ${text} is ${what ?? `slow over ${JSON.stringify(over)}`}`);
  }
  mkdirSync('node_modules/.cache', { recursive: true });
  writeFileSync(PROVED, JSON.stringify([...proved]));
  expect(slow).toEqual([]);
});
