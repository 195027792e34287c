/**
 * Each file in test/fixtures/config is an invalid configuration. The comments at its top list all its errors in order,
 * as `#! LINE:COLUMN: PATH: MESSAGE`.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { parseConfig } from '../../src/config/load.ts';
import { ConfigError, formatProblem } from '../../src/config/problems.ts';
import { hasCode } from '../../src/core/faults.ts';

const FOLDER = 'test/fixtures/config';
const ENV = { PRODUCT: 'short-classic', NUMBER: '12', EMPTY: '', SECRET: 'hunter2' };
const FILES = readdirSync(FOLDER).filter((name) => name.endsWith('.yaml'));

test('invalid configurations: the folder has fixtures', () => {
  expect(FILES.length).toBeGreaterThan(20);
});

test.each(FILES)('invalid configurations: %s has exactly the errors it states, without secrets', (name) => {
  const [head, text] = split(readFileSync(`${FOLDER}/${name}`, 'utf8'));
  const error = errorOf(text, name);
  const shown = error.problems.map((problem) =>
    formatProblem('', { ...problem, excerpt: undefined }).slice(1),
  );
  expect(shown).toEqual(head);
  expect(hasCode(error, 'bad-config')).toBe(true);
  expect(error.message).not.toContain('hunter2');
  expect(JSON.stringify([error.problems, error.context])).not.toContain('hunter2');
  for (const { line, excerpt } of error.problems) {
    expect(excerpt === undefined || excerpt.startsWith(`${String(line).padStart(5)} | `)).toBe(true);
  }
});

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
