/** The Python installation of this machine that the tests use. A separate file, because the search starts processes. */
import { spawnSync } from 'node:child_process';
import { resolve } from 'node:path';

interface Python {
  readonly command: string;
  readonly modules: readonly string[];
}

export const MODULES = ['requests', 'httpx', 'aiohttp', 'scrapy', 'pip', 'h11', 'curl_cffi'];
/** From this version on, `httpx.Client` has the option `proxy`, which docs/clients.md uses. */
const HTTPX = '0.26';

/** `.ci/run` creates `.venv`. */
const COMMANDS = [resolve('.venv/bin/python3'), 'python3', '/usr/bin/python3'];

/** Prints the modules of an installation. It imports none of them, because an import takes longer than the search. */
const SEARCH = `
from importlib.metadata import version
from importlib.util import find_spec
modules = [name for name in ${JSON.stringify(MODULES)} if find_spec(name)]
if "httpx" in modules and tuple(map(int, version("httpx").split(".")[:2])) < (${HTTPX.replace('.', ', ')}):
    modules.remove("httpx")
print(*modules)`;

/**
 * The Python installation that has the highest number of the modules in docs/clients.md, and the modules that it has.
 */
export const PYTHON = findPython();

function findPython(): Python {
  let best: Python = { command: 'python3', modules: [] };
  for (const command of COMMANDS) {
    const { status, stdout } = spawnSync(command, ['-c', SEARCH], { encoding: 'utf8' });
    const modules = status === 0 ? stdout.trim().split(/\s+/).filter(Boolean) : [];
    if (modules.length > best.modules.length) best = { command, modules };
    if (modules.length === MODULES.length) break;
  }
  return best;
}
