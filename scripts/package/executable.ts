/**
 * Makes noria one file: Node itself, with a bundle of noria and its dependencies, and the files that noria serves, as a single
 * executable application (https://nodejs.org/docs/latest-v24.x/api/single-executable-applications.html).
 */
import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, existsSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { rolldown } from 'rolldown';

/** The mark in Node's binary that postject changes, from Node's documentation. */
const FUSE = 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2';
/** The compiled code contains hashes of strings: with one seed, every build is the same. Node refuses code of another --hash-seed. */
const SEEDS = ['--random-seed=1'];
const POSTJECT = 'node_modules/postject/dist/cli.js';
const ENTRY = 'scripts/package/entry.ts';
const PRETTY = "createRequire(import.meta.url)('pino-pretty')";

/** Bundles noria into one CommonJS file. The bundle contains no path of this machine. */
export async function bundle(file: string): Promise<void> {
  const build = await rolldown({
    input: ENTRY,
    platform: 'node',
    plugins: [
      {
        name: 'pino-pretty',
        // src/core/log.ts loads this package only when it needs it, in a way that a bundler does not see.
        transform: (code, id) =>
          id.endsWith('src/core/log.ts') ? replaceOnce(code, PRETTY, "require('pino-pretty')") : null,
      },
    ],
    // import.meta.resolve has no meaning in the executable, whose files are assets
    checks: { emptyImportMeta: false },
    logLevel: 'warn',
  });
  await build.write({
    file,
    format: 'cjs',
    codeSplitting: false,
    minify: { compress: true, mangle: false, codegen: true },
    comments: false,
  });
  await build.close();
}

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
    /** Contains the bundle, `noria.cjs`. */
    readonly folder: string;
    readonly isOwnPlatform: boolean;
  },
): Promise<void> {
  const blob = join(folder, 'sea.blob');
  const settings = {
    main: 'noria.cjs', // relative: the blob contains this path
    output: 'sea.blob',
    disableExperimentalSEAWarning: true,
    useCodeCache: isOwnPlatform, // only Node of that platform can compile for it
    assets: Object.fromEntries(Object.entries(assets).map(([name, path]) => [name, resolve(path)])),
  };
  writeFileSync(join(folder, 'sea.json'), JSON.stringify(settings));
  execFileSync(process.execPath, [...SEEDS, '--experimental-sea-config', 'sea.json'], {
    cwd: folder,
    stdio: 'pipe',
  });
  copyFileSync(node, file);
  chmodSync(file, 0o755);
  // its output is about sections that it does not need
  execFileSync(process.execPath, [POSTJECT, file, 'NODE_SEA_BLOB', blob, '--sentinel-fuse', FUSE], {
    stdio: 'pipe',
  });
}

/** Returns where this checkout has Node for an architecture, or undefined. */
export function nodeFor(arch: string): string | undefined {
  if (arch === process.arch) return process.execPath;
  return ['node_modules', 'node_modules/.cache']
    .map((folder) => join(folder, `node-linux-${arch}/bin/node`))
    .find((path) => existsSync(path));
}
