/** Scenarios: decoded from a file or an object, applied to answers and members, and refused if they are invalid. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openSandbox } from '../../src/sandbox/sandbox.ts';
import { behaviourFrom, loadScenario } from '../../src/sandbox/scenario.ts';
import { ask, draw, open } from './client.ts';

async function fileWith(content: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'noria-scenario-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const path = join(folder, 'scenario.yaml');
  await writeFile(path, content);
  return path;
}

test('scenario: a YAML file sets rules and behaviours', async () => {
  const path = await fileWith(`
rules:
  - { operation: short-classic, times: 1, answer: { code: 12009 } } # a number works like a string
  - operation: shared
    answer: { fault: bom }
members:
  - { product: short-classic, first: 2, behaviour: { how: refuse } }
  - { product: short-classic, first: 3, behaviour: { how: slow, ms: 800 } }
`);
  const sandbox = await open({ paceMs: 0, scenario: path });
  expect((await ask(sandbox, 'short-classic')).code).toBe('12009');
  await draw(sandbox, 'short-classic', { count: '4' });
  const behaviours = sandbox.members().map(({ behaviour }) => behaviour);
  expect(behaviours).toEqual([
    { how: 'refuse' },
    { how: 'refuse' },
    { how: 'slow', ms: 800 },
    { how: 'good' },
  ]);
  expect(sandbox.rules.list()).toMatchObject([{ operation: 'shared', answer: { fault: 'bom' } }]);
});

test('scenario: a file may contain JSON or be empty', async () => {
  const json = await fileWith(JSON.stringify({ rules: [{ answer: { code: '12006' } }] }));
  expect(await loadScenario(json)).toEqual({ rules: [{ answer: { code: '12006' } }] });
  expect(await loadScenario(await fileWith(''))).toEqual({});
});

test.each([
  ['rules: [{ answer: { fault: nothing } }]', /rules\.0\.answer/],
  ['rules: [{ operation: shorts, answer: { code: "1" } }]', /rules\.0\.operation/],
  ['members: [{ behaviour: { how: slow } }]', /members\.0\.behaviour\.ms/],
  ['members: [{ share: 2, behaviour: { how: good } }]', /members\.0\.share/],
  ['colour: red', /colour/],
  ['rules: {', /cannot be read/],
])('scenario: the refusal of %s names the invalid field', async (content, field) => {
  const path = await fileWith(content);
  const opening = openSandbox({ scenario: path });
  await expect(opening).rejects.toMatchObject({ code: 'bad-config', message: expect.stringMatching(field) });
  await expect(opening).rejects.toThrow(path);
});

test('scenario: a missing file is refused', async () => {
  await expect(openSandbox({ scenario: '/nowhere/scenario.yaml' })).rejects.toMatchObject({
    code: 'bad-config',
  });
});

test('scenario: a share is a probability, and the first matching rule decides', () => {
  const rules = [
    { share: 0.3, behaviour: { how: 'refuse' } },
    { product: 'shared', behaviour: { how: 'silent' } },
  ] as const;
  const behaviour = (product: 'shared' | 'free', thrown: number) =>
    behaviourFrom(rules, { product, n: 0, random: () => thrown });
  expect(behaviour('shared', 0.29)).toEqual({ how: 'refuse' });
  expect(behaviour('shared', 0.3)).toEqual({ how: 'silent' });
  expect(behaviour('free', 0.3)).toBeUndefined();
});
