/**
 * Makes noria one file: Node itself, with a bundle of noria and its dependencies, and the files that noria serves, as a single
 * executable application (https://nodejs.org/docs/latest-v24.x/api/single-executable-applications.html).
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { rolldown } from 'rolldown';

/** The mark in Node's binary that postject changes, from Node's documentation. */
const FUSE = 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2';
/** The compiled code contains hashes of strings: with one seed, every build is the same. Node refuses code of another --hash-seed. */
const SEEDS = ['--random-seed=1'];
const POSTJECT = fileURLToPath(new URL('../../node_modules/postject/dist/cli.js', import.meta.url));
/** Not node_modules itself: npm would link node_modules/.bin/node to the Node of the other platform. */
export const OTHER_NODES = 'node_modules/.cache';
const ENTRY = 'scripts/package/entry.ts';
/** Compiles the given files of the current folder for parts.cjs. The result contains the names as they are given. */
const COMPILE = `
const { readFileSync, writeFileSync } = require('node:fs');
const { Script } = require('node:vm');
for (const file of process.argv.slice(1)) {
  writeFileSync(file + '.cache', new Script(readFileSync(file, 'utf8'), { filename: './' + file }).createCachedData());
}`;
const PRETTY = "createRequire(import.meta.url)('pino-pretty')";

/**
 * Bundles noria into functions for `parts.cjs`, one in each file. No file contains a path of this machine.
 *
 * @returns the files, by their names as assets.
 */
export async function bundle(folder: string): Promise<Record<string, string>> {
  const build = await rolldown({
    input: { noria: ENTRY },
    platform: 'node',
    plugins: [
      {
        name: 'noria',
        transform: (code, id) => CHANGES.find(([file]) => id.endsWith(file))?.[1](code) ?? null,
      },
    ],
    // import.meta.resolve has no meaning in the executable, whose files are assets
    checks: { emptyImportMeta: false },
    logLevel: 'warn',
  });
  const { output } = await build.write({
    dir: folder,
    format: 'cjs',
    entryFileNames: '[name].cjs',
    chunkFileNames: '[name].cjs',
    minify: { compress: true, mangle: false, codegen: true },
    comments: false,
  });
  await build.close();
  const parts: Record<string, string> = {};
  for (const { fileName } of output) {
    const file = join(folder, fileName);
    const code = asAscii(readFileSync(file, 'utf8')).replaceAll(
      DYNAMIC_IMPORT,
      'Promise.resolve(require($1))',
    );
    writeFileSync(file, `(function (exports, require, module, __filename) {${code}\n})`);
    parts[`code/${fileName}`] = file;
  }
  return parts;
}

/** A script of node:vm cannot import, not even Node's own modules. */
const DYNAMIC_IMPORT = /\bimport\(([`"]node:[\w/]+[`"])\)/g;

/** With one character above U+00FF, V8 would hold the whole text with two bytes for each character. */
function asAscii(code: string): string {
  if (/\\[^\0-\x7f]/.test(code))
    throw new Error('the bundle has a backslash before a character that is not ASCII');
  return code.replace(/[^\0-\x7f]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** The files that the bundle changes, and how. */
const CHANGES: readonly (readonly [file: string, change: (code: string) => string])[] = [
  // loaded only when noria needs it, in a way that a bundler does not see
  ['src/core/log.ts', (code) => replaceOnce(code, PRETTY, "require('pino-pretty')")],
  // noria has its own messages in two languages; zod's have fifty
  ['zod/v4/locales/index.js', () => "export { default as en } from './en.js';"],
];

function replaceOnce(text: string, part: string, by: string): string {
  if (text.split(part).length !== 2) throw new Error(`the bundle needs exactly one ${part}`);
  return text.replace(part, by);
}

/**
 * Writes an executable.
 *
 * @param node - Node for the platform of the executable. Its version must be that of the Node that runs this script.
 * @param assets - the files to include, by the name under which noria reads them.
 */
export async function writeExecutable(
  file: string,
  {
    node,
    assets,
    folder,
    isOwnPlatform,
  }: {
    readonly node: string;
    readonly assets: Readonly<Record<string, string>>;
    /** Where `bundle` wrote. */
    readonly folder: string;
    readonly isOwnPlatform: boolean;
  },
): Promise<void> {
  const run = (...args: string[]) => execFileSync(process.execPath, args, { cwd: folder, stdio: 'pipe' });
  const caches: Record<string, string> = {};
  if (isOwnPlatform) {
    const codes = Object.entries(assets).filter(([name]) => name.startsWith('code/'));
    run(...SEEDS, '-e', COMPILE, ...codes.map(([, path]) => basename(path)));
    for (const [name, path] of codes) caches[`${name}.cache`] = `${path}.cache`;
  }
  copyFileSync('scripts/package/parts.cjs', join(folder, 'parts.cjs'));
  const settings = {
    main: 'parts.cjs', // relative: the blob contains this path
    output: 'sea.blob',
    disableExperimentalSEAWarning: true,
    assets: Object.fromEntries(
      Object.entries({ ...assets, ...caches }).map(([name, path]) => [name, resolve(path)]),
    ),
  };
  writeFileSync(join(folder, 'sea.json'), JSON.stringify(settings));
  run(...SEEDS, '--experimental-sea-config', 'sea.json');
  copyFileSync(node, file);
  chmodSync(file, 0o755);
  run(POSTJECT, file, 'NODE_SEA_BLOB', 'sea.blob', '--sentinel-fuse', FUSE);
}

/** Returns where this checkout has Node for an architecture, or undefined. */
export function nodeFor(arch: string): string | undefined {
  if (arch === process.arch) return process.execPath;
  const path = `${OTHER_NODES}/node_modules/node-linux-${arch}/bin/node`;
  return existsSync(path) ? path : undefined;
}
