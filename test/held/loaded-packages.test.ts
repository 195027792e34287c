/** Which packages a process loads at its start. Each costs CPU time and memory in every noria, or in every worker. */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, test } from 'vitest';

/**
 * The packages that a file and its imports load, without type-only and dynamic imports. node:http counts as a package: its
 * import also loads Node's fetch.
 */
function packagesOf(entry: string): Set<string> {
  const packages = new Set<string>();
  const seen = new Set<string>();
  const visit = (file: string): void => {
    if (seen.has(file)) return;
    seen.add(file);
    const text = readFileSync(file, 'utf8');
    for (const [, specifier = ''] of text.matchAll(/^(?:import|export) (?!type )[^;]*?from '([^']+)';$/gm)) {
      if (specifier.startsWith('.')) visit(join(dirname(file), specifier));
      else if (!specifier.startsWith('node:') || specifier === 'node:http') packages.add(specifier);
    }
  };
  visit(entry);
  expect(seen.size, `the imports of ${entry}`).toBeGreaterThan(50);
  return packages;
}

test('loaded packages: a worker process loads only the list of public suffixes, which tells the sites apart', () => {
  expect(packagesOf('src/plane/workers/worker.ts')).toEqual(new Set(['tldts']));
});

test('loaded packages: a noria loads the packages of the admin API, proxyPool and the fleet only if it has them', () => {
  expect([...packagesOf('src/daemon/daemon.ts')].sort()).toEqual([
    'node:http',
    'p-queue',
    'pino',
    'tldts',
    'zod',
  ]);
});
