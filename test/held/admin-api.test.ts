import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { ADMIN_ERRORS } from '../../src/admin/openapi.ts';
import { openTestAdmin } from '../admin/open-test-admin.ts';

const page = readFileSync('docs/admin-api.md', 'utf8');

interface Description {
  readonly paths: Readonly<Record<string, Readonly<Record<string, { readonly summary: string }>>>>;
}

async function describeApi(): Promise<Description> {
  const { url } = await openTestAdmin();
  return (await (await fetch(`${url}/openapi.json`)).json()) as Description;
}

test('docs/admin-api.md: lists exactly the routes of the API', async () => {
  const { paths } = await describeApi();
  const coded = Object.entries(paths).flatMap(([path, operations]) =>
    Object.keys(operations).map(
      (method) =>
        `${method.toUpperCase()} ${path.replace(/\{(\w+)\}/g, (_, name: string) => name.toUpperCase())}`,
    ),
  );
  const listed = [...page.matchAll(/^\| `((?:GET|POST|PUT|DELETE) [^`]+)` \|/gm)].map(([, route]) => route);
  expect(coded.length).toBeGreaterThan(20);
  expect(listed.sort()).toEqual(coded.sort());
});

test('docs/admin-api.md: lists every error code with its status', () => {
  const listed = [...page.matchAll(/^\| `([\w-]+)` \| (\d+) \|/gm)].map(([, code, status]) => [
    code,
    Number(status),
  ]);
  expect(listed).toEqual(Object.entries(ADMIN_ERRORS));
});

test('docs/admin-api.md: the example of an error is what the API answers', async () => {
  const { url } = await openTestAdmin();
  const headers = { 'content-type': 'application/json' };
  const answer = await fetch(`${url}/api/sources/town/pause`, { method: 'POST', headers });
  const shown = /```json\n(.*?)```/s.exec(page)?.[1] ?? '';
  expect(await answer.json()).toEqual(JSON.parse(shown));
});

test('admin: the description has a summary and an error response for every route', async () => {
  const { paths } = await describeApi();
  for (const [path, operations] of Object.entries(paths)) {
    for (const [method, operation] of Object.entries(operations)) {
      expect(operation.summary, `${method} ${path}`).toMatch(/\w/);
      expect(operation, `${method} ${path}`).toHaveProperty('responses.default');
    }
  }
});
