/** Snippets of docs/clients.md: fenced blocks whose info string is a language, a client and what the snippet shows. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

export interface Snippet {
  readonly language: string;
  readonly client: string;
  readonly shows: 'rotation' | 'session';
  readonly text: string;
}

/** Every snippet of the page that is to be run, in its order. */
export function readSnippets(page: string): Snippet[] {
  return [
    ...readFileSync(page, 'utf8').matchAll(/^```(\S+) (\S+) (rotation|session)\n([\s\S]*?)^```$/gm),
  ].map(([, language = '', client = '', shows, text = '']) => ({
    language,
    client,
    shows: shows === 'session' ? 'session' : 'rotation',
    text,
  }));
}

/** Modules that the Python snippets import, and pip. */
const PYTHON_MODULES = ['requests', 'httpx', 'aiohttp', 'scrapy', 'selenium', 'pip'];

/** The Python of this machine that has the most of them, and which it has. */
export const PYTHON = findPython();

function findPython(): { readonly command: string; readonly modules: readonly string[] } {
  const question = `import importlib.util as u; print(*[m for m in ${JSON.stringify(PYTHON_MODULES)} if u.find_spec(m)])`;
  const found = ['python3', '/usr/bin/python3'].map((command) => {
    const { status, stdout } = spawnSync(command, ['-c', question], { encoding: 'utf8' });
    return { command, modules: status === 0 ? stdout.trim().split(/\s+/).filter(Boolean) : [] };
  });
  return found.reduce((best, next) => (next.modules.length > best.modules.length ? next : best), {
    command: 'python3',
    modules: [],
  });
}

/** Whether this machine has a command. */
export function hasCommand(name: string): boolean {
  return spawnSync('which', [name]).status === 0;
}

const fromHere = createRequire(import.meta.url);

/** Whether a package can be imported from the checkout. */
export function hasPackage(name: string): boolean {
  try {
    fromHere.resolve(name);
    return true;
  } catch {
    return false; // handled: that is the answer
  }
}
