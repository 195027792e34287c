import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { ROUTES } from '../../src/admin/proxy-pool.ts';
import { parseConfig } from '../../src/config/load.ts';

const page = readFileSync('docs/proxy-pool.md', 'utf8');

test('docs/proxy-pool.md: lists every path with its answer', () => {
  const listed = [...page.matchAll(/^\| `GET (\/[^`]*)` \| (.*) \|$/gm)].map(([, path, about]) => [
    path,
    about,
  ]);
  expect(listed.length).toBeGreaterThan(5);
  expect(listed).toEqual(Object.entries(ROUTES));
});

test('docs/proxy-pool.md: the configurations are valid', () => {
  const source =
    'sources: [{ name: a, product: shared, instance: "1", password: p, baseUrl: "https://s.example" }]\n';
  const found = [...page.matchAll(/```yaml\n([\s\S]*?)```/g)].map(([, yaml = '']) =>
    parseConfig(source + yaml, 'noria.yaml', { env: {} }),
  );
  expect(found.map(({ listeners }) => listeners.map(({ session }) => session))).toEqual([
    ['none', 'port'],
    ['none', 'port'],
  ]);
});
