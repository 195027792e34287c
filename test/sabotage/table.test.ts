/** Every row of the table of sabotages still fits the code. `npm run sabotage` shows that it is noticed. */
import { existsSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { EQUIVALENT } from './equivalent.ts';
import { applied, SABOTAGES } from './table.ts';

test('sabotage: the text of each row occurs once in its file, and the test that must notice it exists', () => {
  expect(SABOTAGES.length).toBeGreaterThanOrEqual(40);
  expect(new Set(SABOTAGES.map(({ name }) => name)).size).toBe(SABOTAGES.length);
  const problems = SABOTAGES.flatMap((row) => {
    const { name, file, noticedBy } = row;
    if (noticedBy !== 'chaos' && !existsSync(noticedBy))
      return [`"${name}" names ${noticedBy}, which does not exist`];
    try {
      applied(row, readFileSync(file, 'utf8'));
      return [];
    } catch (error) {
      return [String(error)];
    }
  });
  expect(problems).toEqual([]);
});

test('sabotage: .ci/run plays ten rows of at least six families', () => {
  const quick = SABOTAGES.filter((row) => row.quick);
  expect(quick).toHaveLength(10);
  expect(new Set(quick.map(({ name }) => name.split(':')[0])).size).toBeGreaterThanOrEqual(6);
});

test('mutants: the line of each equivalent one occurs once in its file', () => {
  const moved = EQUIVALENT.filter(([file, line]) => readFileSync(file, 'utf8').split(line).length !== 2);
  expect(moved).toEqual([]);
});
