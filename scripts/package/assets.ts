/** The files that noria reads at run time, by the name that they have as assets of the single executable. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { UPLOT_FILES } from '../../src/admin/page-files.ts';

const PAGE = 'src/admin/page';

export function readAssetPaths(): Record<string, string> {
  const page = readdirSync(PAGE)
    .filter((name) => /\.(html|css|js|svg)$/.test(name))
    .map((name) => [`page/${name}`, join(PAGE, name)]);
  const uplot = Object.entries(UPLOT_FILES).map(([name, specifier]) => [
    `page/${name}`,
    fileURLToPath(import.meta.resolve(specifier)),
  ]);
  const docs = readdirSync('docs', { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .map((name) => [`docs/${name}`, join('docs', name)]);
  const all = [...page, ...uplot, ...docs].sort(([a = ''], [b = '']) => (a < b ? -1 : 1));
  return { 'package.json': 'package.json', ...Object.fromEntries(all) };
}
