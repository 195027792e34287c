import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const EXPORT = /^export (?:declare |abstract |async )*(?:function\*?|class|interface|type|const|let) (\w+)/gm;

test('src: an exported name is exported by one file', () => {
  const filesOf = new Map<string, string[]>();
  for (const file of readdirSync('src', { recursive: true, encoding: 'utf8' })) {
    if (!file.endsWith('.ts')) continue;
    for (const [, name = ''] of readFileSync(join('src', file), 'utf8').matchAll(EXPORT)) {
      filesOf.set(name, [...(filesOf.get(name) ?? []), file]);
    }
  }
  expect(filesOf.size, 'found no exported name').toBeGreaterThan(100);
  expect([...filesOf].filter(([, files]) => new Set(files).size > 1)).toEqual([]);
});
