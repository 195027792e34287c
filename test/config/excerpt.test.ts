import { expect, test } from 'vitest';
import { parseConfig } from '../../src/config/load.ts';
import { ConfigError } from '../../src/config/problems.ts';

/** The excerpts of all problems, in order. */
function excerptsOf(text: string): string {
  try {
    parseConfig(text, 'noria.yaml', { env: {} });
  } catch (error) {
    if (error instanceof ConfigError) return error.problems.map(({ excerpt = 'none' }) => excerpt).join('\n');
    throw error;
  }
  throw new Error('the text is valid');
}

test('excerpt: the pointer is below its place, also after a masked value and at the start of one', () => {
  expect(
    excerptsOf(
      'account: { key: hunter2hunter2, username: someone, x: 1 }\nservice: { baseUrl: "https://a" }',
    ),
  ).toBe(
    [
      '    1 | account: { key: [secret], username: someone, x: … }',
      '      |                 ^',
      '    1 | account: { key: [secret], username: someone, x: … }',
      '      |                                              ^',
    ].join('\n'),
  );
});

test('excerpt: a pointer into a masked value points at its start', () => {
  expect(
    excerptsOf('account: { username: a, password: { b: hunter2 } }\nservice: { baseUrl: "https://a" }'),
  ).toBe(
    [
      '    1 | account: { username: a, password: [secret] }',
      '      |                                   ^',
    ].join('\n'),
  );
  expect(
    excerptsOf('account: { username: a, password: { ? [hunter2] : b } }\nservice: { baseUrl: "https://a" }'),
  ).toContain(
    [
      '    1 | account: { username: a, password: [secret] }',
      '      |                                   ^',
    ].join('\n'),
  );
});

test('excerpt: the pointer is below its place after wide characters and tabs', () => {
  const city =
    'sources: [{ name: 广东, product: nix, instance: 1, password: x }]\nservice: { baseUrl: "https://a" }';
  expect(excerptsOf(city).split('\n')[3]).toBe('      |                   \u3000\u3000           ^');
  expect(excerptsOf('log:\t{\tlevel:\tnix }\nworkers: 0')).toContain(
    '    1 | log:\t{\tlevel:\tnix }\n      |     \t \t      \t^',
  );
});

test('excerpt: a long line is cut to the surroundings of the place', () => {
  const [, , line = '', pointer = ''] = excerptsOf(
    `pool: { ${' '.repeat(200)}size: 0${' '.repeat(200)} }`,
  ).split('\n');
  expect(line.length).toBeLessThan(170);
  expect(line[pointer.indexOf('^')]).toBe('0');
});

test('excerpt: masks a text in place of a map, the value of an unknown key, and comments', () => {
  for (const text of [
    'admin: [hunter2]',
    'admin: hunter2',
    'state: hunter2',
    'other: hunter2',
    'pool: 1 # hunter2',
  ]) {
    expect(excerptsOf(text), text).not.toContain('hunter2');
  }
});

test('excerpt: shows only the first key of a line if the file is not valid YAML', () => {
  expect(excerptsOf('pool:\n  size: "hunter2')).toBe('    2 |   size: …\n      |          ^');
  expect(excerptsOf('pool:\n  - hunter2: [\nx')).not.toContain(': h');
  expect(excerptsOf('hunter2 "\n: [')).toBe('none');
});
