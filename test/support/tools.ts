/**
 * Programs and packages of this machine that tests use. A test that needs a missing one is skipped. `.ci/run` installs
 * them all and fails if a test is skipped.
 */
import { spawnSync } from 'node:child_process';
import { accessSync, constants, existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { delimiter, join } from 'node:path';

/** Whether a program of this name is in the search path. */
export function hasCommand(name: string): boolean {
  return (process.env['PATH'] ?? '').split(delimiter).some((folder) => isExecutable(join(folder, name)));
}

/** The path of a Chromium or Chrome; undefined if none is installed. */
export const CHROMIUM = [
  process.env['CHROMIUM'],
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
].find((path) => path !== undefined && existsSync(path));

const PYTHON_MODULES = ['requests', 'httpx', 'aiohttp', 'scrapy', 'pip', 'h11'];
/** From this version on, `httpx.Client` has the option `proxy`, which docs/clients.md uses. */
const HTTPX = '0.26';

/**
 * The Python installation that has the highest number of the modules in docs/clients.md, and the modules that it has.
 */
export const PYTHON = findPython();

/** `.ci/run` creates `.venv`. */
function findPython(): { readonly command: string; readonly modules: readonly string[] } {
  const question = `
import importlib.util
modules = [name for name in ${JSON.stringify(PYTHON_MODULES)} if importlib.util.find_spec(name)]
if "httpx" in modules:
    import httpx
    if tuple(map(int, httpx.__version__.split(".")[:2])) < (${HTTPX.replace('.', ', ')}): modules.remove("httpx")
print(*modules)`;
  const candidates = ['.venv/bin/python3', 'python3', '/usr/bin/python3'].map((command) => {
    const { status, stdout } = spawnSync(command, ['-c', question], { encoding: 'utf8' });
    return { command, modules: status === 0 ? stdout.trim().split(/\s+/).filter(Boolean) : [] };
  });
  return candidates.reduce((best, next) => (next.modules.length > best.modules.length ? next : best), {
    command: 'python3',
    modules: [],
  });
}

const fromHere = createRequire(import.meta.url);

/** Whether a package can be imported from the checkout. */
export function hasPackage(name: string): boolean {
  try {
    fromHere.resolve(name);
    return true;
  } catch {
    return false; // handled: the result is false
  }
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false; // handled: the result is false
  }
}
