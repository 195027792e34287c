/**
 * Fetches test suites from public registries with their usual clients, and unpacks them into a cache folder outside the
 * checkout. It fetches nothing that the folder already has.
 */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { basename, join } from 'node:path';
import type { DebianSource, Edit, Sdist, Source, Suite } from './suite.ts';

const HERE = import.meta.dirname;
const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'noria-foreign');
const PACKAGES = join(HERE, 'node/package.json');
const REQUIREMENTS = join(HERE, 'python/requirements.txt');
const LIMIT_MS = 300_000;

/** Where a prepared suite is. */
export interface Prepared {
  readonly folder: string;
  readonly python: string;
  readonly modules: string;
}

export function resultsFile(suite: Suite): string {
  return join(CACHE, `${suite.name}.results`);
}

/** @throws Error that says what could not be fetched, and why. */
export function prepare(suite: Suite): Prepared {
  mkdirSync(CACHE, { recursive: true });
  const python = join(prepareTools('python', REQUIREMENTS, installPython), 'bin/python');
  const modules = join(prepareTools('node', PACKAGES, installNode), 'node_modules');
  const folder = join(CACHE, 'suites', suite.name);
  // Each run unpacks the suite again: an earlier run may have left files, and the edits may have changed.
  rmSync(folder, { recursive: true, force: true });
  for (const { source, folder: part } of suite.support ?? [])
    cpSync(join(unpack(source), part), join(folder, part), { recursive: true });
  const source = unpack(suite.source);
  cpSync(source, folder, { recursive: true });
  for (const [from, to] of suite.copies ?? []) cpSync(join(HERE, from), join(folder, to));
  for (const edit of suite.edits ?? []) apply(edit, folder);
  if (suite.source.registry === 'go') writeOverlay(folder, source, suite.edits ?? []);
  return { folder, python, modules };
}

/** Returns a separate folder for each content of the list of packages. `install` fills the folder. */
function prepareTools(kind: string, list: string, install: (folder: string) => void): string {
  const state = createHash('sha256').update(readFileSync(list)).digest('hex').slice(0, 12);
  const folder = join(CACHE, `${kind}-${state}`);
  if (existsSync(join(folder, 'complete'))) return folder;
  rmSync(folder, { recursive: true, force: true });
  install(folder);
  writeFileSync(join(folder, 'complete'), '');
  return folder;
}

function installPython(folder: string): void {
  run('python3', ['-m', 'venv', folder]);
  const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check'];
  run(join(folder, 'bin/python'), [...pip, '-r', REQUIREMENTS]);
}

function installNode(folder: string): void {
  mkdirSync(folder);
  cpSync(PACKAGES, join(folder, 'package.json'));
  run('npm', ['install', '--silent', '--no-audit', '--no-fund', '--prefix', folder]);
}

function unpack(source: Source): string {
  switch (source.registry) {
    case 'go':
      return join(run('go', ['env', 'GOROOT']).trim(), 'src', source.package);
    case 'pypi':
      return unpackInto(`${source.package}-${source.version}`, (into) => fetchSdist(source, into));
    case 'debian':
      return unpackInto(`${source.package}-${source.version}`, (into) => fetchDebianSource(source, into));
  }
}

/** Unpacks the archive that `fetchArchive` puts into a folder. A folder under its final name is complete. */
function unpackInto(name: string, fetchArchive: (into: string) => string): string {
  const folder = join(CACHE, 'sources', name);
  if (existsSync(folder)) return folder;
  const partial = `${folder}.partial`;
  rmSync(partial, { recursive: true, force: true });
  const content = join(partial, 'content');
  mkdirSync(content, { recursive: true });
  run('tar', ['-xf', fetchArchive(partial), '-C', content, '--strip-components=1']);
  renameSync(content, folder);
  rmSync(partial, { recursive: true });
  return folder;
}

function fetchSdist({ package: name, version }: Sdist, into: string): string {
  const what = ['--no-deps', '--no-binary', ':all:', `${name}==${version}`];
  run('python3', ['-m', 'pip', 'download', '--quiet', '--disable-pip-version-check', '-d', into, ...what]);
  const archive = readdirSync(into).find((file) => file.endsWith('.tar.gz'));
  if (archive === undefined) throw new Error(`PyPI has no source archive of ${name} ${version}`);
  return join(into, archive);
}

/** Uses its own package lists, because those of the machine usually do not include source packages. */
function fetchDebianSource({ package: name, release, archive }: DebianSource, into: string): string {
  mkdirSync(join(into, 'lists/partial'), { recursive: true });
  writeFileSync(
    join(into, 'debian.sources'),
    `Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: ${release}\nComponents: main\n` +
      'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n',
  );
  const settings = {
    'Dir::Etc::sourcelist': join(into, 'debian.sources'),
    'Dir::Etc::sourceparts': '-',
    'Dir::State::lists': join(into, 'lists'),
    'APT::Sandbox::User': 'root',
  };
  const options = Object.entries(settings).flatMap(([key, value]) => ['-o', `${key}=${value}`]);
  run('apt-get', [...options, 'update', '-qq']);
  try {
    run(
      'apt-get',
      [...options, 'source', '-qq', '--download-only', '--tar-only', `${name}/${release}`],
      into,
    );
  } catch (error) {
    if (!existsSync(join(into, archive))) throw error; // otherwise only another archive of the package failed
  }
  return join(into, archive);
}

/** Makes Go compile the edited files instead of its own. */
function writeOverlay(folder: string, original: string, edits: readonly Edit[]): void {
  const replaced = edits.map(({ file }) => [join(original, file), join(folder, file)]);
  writeFileSync(join(folder, 'overlay.json'), JSON.stringify({ Replace: Object.fromEntries(replaced) }));
}

function apply({ file, from, to }: Edit, folder: string): void {
  const path = join(folder, file);
  const text = readFileSync(path, 'utf8');
  if (!text.includes(from))
    throw new Error(`${basename(folder)}: ${file} does not contain ${JSON.stringify(from)}`);
  writeFileSync(path, text.replaceAll(from, to));
}

/** @throws Error with the last line that the command printed. */
function run(command: string, args: readonly string[], cwd?: string): string {
  try {
    return execFileSync(command, args, {
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'pipe'],
      timeout: LIMIT_MS,
      ...(cwd === undefined ? {} : { cwd }),
    });
  } catch (error) {
    const printed = error instanceof Error && 'stderr' in error ? String(error.stderr).trim() : String(error);
    throw new Error(printed.split('\n').at(-1) || String(error), { cause: error });
  }
}
