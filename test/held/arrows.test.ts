import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { expect, test } from 'vitest';

/** Files that may import anything: they build the parts, or are the command line. */
const KNOW_EVERYTHING = new Set(['.', 'commands', 'daemon']);

const page = readFileSync('docs/architecture.md', 'utf8');
const diagram = /flowchart BT\n([\s\S]*?)```/.exec(page)?.[1] ?? '';
const arrows = new Set([...diagram.matchAll(/(\w+) --> (\w+)/g)].map(([, from, to]) => `${from} -> ${to}`));
const files = readdirSync('src', { recursive: true, encoding: 'utf8' }).filter((file) =>
  file.endsWith('.ts'),
);

const folderOf = (file: string) => dirname(file).split('/')[0] ?? '.';

function importsOf(file: string): string[] {
  return pathsIn(file, readFileSync(join('src', file), 'utf8'));
}

/** Imports that are there when the code runs: two types may name each other. */
function loadsOf(file: string): string[] {
  return pathsIn(file, readFileSync(join('src', file), 'utf8').replaceAll(/^import type [^;]*;/gm, ''));
}

function pathsIn(file: string, text: string): string[] {
  return [...text.matchAll(/(?:from|import\() ?'(\.[^']+\.ts)'/g)].map(([, specifier = '']) =>
    relative(resolve('src'), resolve('src', dirname(file), specifier)),
  );
}

test('docs/architecture.md: folders import only along the drawn arrows', () => {
  expect(arrows.size * files.length, 'nothing to compare').toBeGreaterThan(0);
  const strays = files
    .filter((file) => !KNOW_EVERYTHING.has(folderOf(file)))
    .flatMap((file) =>
      importsOf(file)
        .map(folderOf)
        .filter((to) => to !== folderOf(file) && !arrows.has(`${folderOf(file)} -> ${to}`))
        .map((to) => `${file}: ${folderOf(file)} -> ${to}`),
    );
  expect(strays).toEqual([]);
});

test('docs/architecture.md: every drawn arrow is one that the code uses', () => {
  const used = new Set(
    files.flatMap((file) => importsOf(file).map((to) => `${folderOf(file)} -> ${folderOf(to)}`)),
  );
  expect([...arrows].filter((arrow) => !used.has(arrow))).toEqual([]);
});

test('docs/architecture.md: no file loads itself by way of others', () => {
  const visiting = new Set<string>();
  const done = new Set<string>();
  const cycles: string[] = [];
  const visit = (file: string, path: readonly string[]): void => {
    if (done.has(file)) return;
    if (visiting.has(file)) {
      cycles.push([...path, file].join(' -> '));
      return;
    }
    visiting.add(file);
    for (const imported of loadsOf(file)) visit(imported, [...path, file]);
    visiting.delete(file);
    done.add(file);
  };
  for (const file of files) visit(file, []);
  expect(cycles).toEqual([]);
});
