import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { openTestSandbox, sourceLine, startNoria } from '../support/noria.ts';

const page = readFileSync('docs/admin-api.md', 'utf8');

interface Description {
  readonly paths: Readonly<
    Record<string, Readonly<Record<string, { readonly summary: string; readonly responses: object }>>>
  >;
}

test('docs/admin-api.md: the requests, their answers and what they do are those that the API describes', async () => {
  const sandbox = await openTestSandbox({ members: 1 });
  const noria = await startNoria({ sources: [sourceLine(sandbox, 'pure', 'short-pure', 'size: 1')] });
  const { paths } = (await (await fetch(`${noria.admin}/openapi.json`)).json()) as Description;
  const described = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, { summary, responses }]) => {
      const statuses = Object.keys(responses).filter((status) => status !== 'default');
      return `${method.toUpperCase()} ${path} | ${statuses.join(', ')} | ${summary}`;
    }),
  );
  const listed = [...page.matchAll(/^\| `([A-Z]+ \S+)` \| ([\d, ]+) \| (.*) \|$/gm)].map(
    ([, request, statuses, summary]) => `${request} | ${statuses} | ${summary}`,
  );
  expect(described.length).toBeGreaterThan(15);
  expect(listed.sort()).toEqual(described.sort());
});

test('docs/admin-api.md: its example of a failure is what the API says', async () => {
  const sandbox = await openTestSandbox({ members: 1 });
  const noria = await startNoria({ sources: [sourceLine(sandbox, 'pure', 'short-pure', 'size: 1')] });
  const answer = await fetch(`${noria.admin}/api/sources/town/pause`, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
  });
  const shown = /```json\n([\s\S]*?)```/.exec(page)?.[1] ?? '';
  expect(await answer.json()).toEqual(JSON.parse(shown));
});
