/**
 * One bundle of noria with its packages, for the norias that tests start as processes: from it, noria starts in two thirds of the
 * CPU time that it needs from source. Its name is a hash of the source, so that a change gets a build of its own.
 */
import { createHash, randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { rolldown } from 'rolldown';

/** The variable that names the bundle's entry. */
export const BUILD = 'NORIA_TEST_BUILD';

const FOLDER = 'node_modules/.cache/noria-build';
/** Builds of this age belong to no running test. */
const OLD_MS = 24 * 3_600_000;
/** This module starts workers from the file beside its own, which is the bundle's. All others read files beside their source. */
const BESIDE_BUNDLE = 'workers-plane.ts';

/** @returns the path of the bundle's entry. Builds only what is not there. */
export async function buildNoria(): Promise<string> {
  const root = process.cwd();
  const folder = join(root, FOLDER, hashOfSource(root));
  const entry = join(folder, 'main.js');
  if (existsSync(entry)) return entry;
  removeOldBuilds(join(root, FOLDER));
  const draft = `${folder}.${randomUUID()}`;
  const build = await rolldown({
    input: { main: join(root, 'src/main.ts'), worker: join(root, 'src/plane/workers/worker.ts') },
    platform: 'node',
    plugins: [
      {
        name: 'source files',
        transform: (code, id) =>
          id.includes('node_modules') || id.endsWith(BESIDE_BUNDLE)
            ? null
            : code.replaceAll('import.meta.url', JSON.stringify(pathToFileURL(id).href)),
      },
    ],
    logLevel: 'warn',
  });
  await build.write({ dir: draft, format: 'esm' });
  await build.close();
  try {
    renameSync(draft, folder);
  } catch (error) {
    if (!existsSync(entry)) throw error;
    rmSync(draft, { recursive: true, force: true }); // another run of the tests was first
  }
  return entry;
}

function hashOfSource(root: string): string {
  const hash = createHash('sha256').update(root);
  const files = readdirSync(join(root, 'src'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .sort();
  for (const name of files) hash.update(name).update(readFileSync(join(root, 'src', name)));
  return hash
    .update(readFileSync(join(root, 'package-lock.json')))
    .digest('hex')
    .slice(0, 16);
}

function removeOldBuilds(folder: string): void {
  mkdirSync(folder, { recursive: true });
  for (const name of readdirSync(folder)) {
    const path = join(folder, name);
    if (statSync(path).mtimeMs < Date.now() - OLD_MS) rmSync(path, { recursive: true, force: true });
  }
}
