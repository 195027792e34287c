import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { expect, test } from 'vitest';

/** Folders that may import anything, because they build the parts or are the command line. */
const IMPORT_ANYTHING = new Set(['src', 'commands', 'daemon']);

const page = readFileSync('docs/architecture.md', 'utf8');
const diagram = /flowchart BT\n([\s\S]*?)```/.exec(page)?.[1] ?? '';
const arrows = new Set(
  [...diagram.matchAll(/(\w+) --> (.*)/g)].flatMap(([, from, to = '']) =>
    to.split(' & ').map((each) => `${from} -> ${each}`),
  ),
);
const drawn = new Set([...diagram.matchAll(/\w+/g)].map(([name]) => name));
const files = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((file) =>
  file.endsWith('.ts'),
);

/** Returns the deepest folder of the file that the diagram draws, or its folder in `src`. */
function folderOf(file: string): string {
  const folders = dirname(file).split('/');
  return folders.findLast((folder) => drawn.has(folder)) ?? folders[0]?.replace('.', 'src') ?? '';
}

/** Returns all imports of a file, including type-only and dynamic ones. */
function importsOf(file: string): string[] {
  const text = readFileSync(join('src', file), 'utf8');
  return [...text.matchAll(/(?:from|import\() ?'(\.[^']+\.ts)'/g)].map(([, specifier = '']) =>
    relative(resolve('src'), resolve('src', dirname(file), specifier)),
  );
}

test('docs/architecture.md: folders import only along the drawn arrows', () => {
  expect(arrows.size * files.length, 'nothing to compare').toBeGreaterThan(0);
  const strays = files
    .filter((file) => !IMPORT_ANYTHING.has(folderOf(file)))
    .flatMap((file) =>
      importsOf(file)
        .map(folderOf)
        .filter((to) => to !== folderOf(file) && !arrows.has(`${folderOf(file)} -> ${to}`))
        .map((to) => `${file}: ${folderOf(file)} -> ${to}`),
    );
  expect(strays).toEqual([]);
});

test('docs/architecture.md: the diagram draws every folder, and every arrow is in use', () => {
  const folders = readdirSync('src', { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const missing = folders
    .map(({ name }) => name)
    .filter((name) => !drawn.has(name) && !IMPORT_ANYTHING.has(name));
  expect(missing).toEqual([]);
  const used = new Set(
    files.flatMap((file) => importsOf(file).map((to) => `${folderOf(file)} -> ${folderOf(to)}`)),
  );
  expect([...arrows].filter((arrow) => !used.has(arrow))).toEqual([]);
});

test('src: no import cycles, type-only imports included', () => {
  const path: string[] = [];
  const done = new Set<string>();
  const cycles: string[] = [];
  const visit = (file: string): void => {
    if (path.includes(file)) cycles.push([...path.slice(path.indexOf(file)), file].join(' -> '));
    if (done.has(file) || path.includes(file)) return;
    path.push(file);
    importsOf(file).forEach(visit);
    path.pop();
    done.add(file);
  };
  files.forEach(visit);
  expect(cycles).toEqual([]);
});
