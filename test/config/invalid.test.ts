/**
 * Configurations that are wrong, one a file of test/fixtures/config: the comments at its head are the problems it earns,
 * `#! LINE:COLUMN: PATH: MESSAGE`, all of them, in their order.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parseConfig } from '../../src/config/load.ts';
import { ConfigError, formatProblem } from '../../src/config/problems.ts';
import { hasCode } from '../../src/core/faults.ts';

const FOLDER = 'test/fixtures/config';
const ENV = { PRODUCT: 'short-classic', NUMBER: '12', EMPTY: '', SECRET: 'hunter2' };
const FILES = readdirSync(FOLDER).filter((name) => name.endsWith('.yaml'));

test('invalid configurations: there are some to walk', () => {
  expect(FILES.length).toBeGreaterThan(20);
});

test.each(FILES)(
  'invalid configurations: %s earns exactly the problems it states, and shows no secret',
  (name) => {
    const [head, text] = split(readFileSync(`${FOLDER}/${name}`, 'utf8'));
    const error = errorOf(text, name);
    const told = error.problems.map((problem) =>
      formatProblem('', { ...problem, excerpt: undefined }).slice(1),
    );
    expect(told).toEqual(head);
    expect(hasCode(error, 'bad-config')).toBe(true);
    expect(error.message).not.toContain('hunter2');
    expect(JSON.stringify([error.problems, error.context])).not.toContain('hunter2');
    for (const { line, excerpt } of error.problems) {
      expect(excerpt === undefined || excerpt.startsWith(`${String(line).padStart(5)} | `)).toBe(true);
    }
  },
);

function split(file: string): [head: string[], text: string] {
  const lines = file.split('\n');
  const head = lines.filter((line) => line.startsWith('#! '));
  return [head.map((line) => line.slice(3)), lines.filter((line) => !line.startsWith('#! ')).join('\n')];
}

function errorOf(text: string, name: string): ConfigError {
  try {
    parseConfig(text, `/nowhere/${name}`, { env: ENV });
  } catch (error) {
    if (error instanceof ConfigError) return error;
    throw error;
  }
  throw new Error(`${name} is valid`);
}
