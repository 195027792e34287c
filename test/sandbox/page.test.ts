/** The lists of docs/sandbox.md are complete, and its examples work. */
import { readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { parseConfig } from '../../src/config/load.ts';
import { CONTROL_ROUTES } from '../../src/sandbox/sandbox.ts';
import { behaviourSchema, faultSchema, loadScenario } from '../../src/sandbox/scenario.ts';
import { conditionSchema } from '../../src/sandbox/settings.ts';
import { open } from './client.ts';

const page = readFileSync('docs/sandbox.md', 'utf8');

/** The rows of the table under a header, cell by cell. */
function table(header: string): readonly (readonly string[])[] {
  const after = page.slice(page.indexOf(`\n| ${header} |`) + 1).split('\n');
  const rows = after.slice(2, after.indexOf(''));
  expect(rows.length, `nothing under ${header}`).toBeGreaterThan(2);
  return rows.map((row) =>
    row
      .split('|')
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

const names = (header: string) => table(header).map(([name = '']) => name.replaceAll('`', ''));
const block = (mark: string) => new RegExp(`\`\`\`yaml\n(${mark}[\\s\\S]*?)\`\`\``).exec(page)?.[1] ?? '';

test('docs/sandbox.md: lists the default instances', async () => {
  const sandbox = await open();
  const listed = table('product').map(([product = '', id, password]) => [
    product.replaceAll('`', ''),
    id,
    password,
  ]);
  expect(listed).toEqual(sandbox.instances.map(({ product, id, password }) => [product, id, password]));
  expect(page).toContain(`\`${sandbox.account.username}\` with the password \`${sandbox.account.password}\``);
});

test('docs/sandbox.md: lists the conditions, faults and behaviours of the code', () => {
  expect(names('condition')).toEqual(Object.keys(conditionSchema.shape));
  const faults = faultSchema.options.flatMap(({ shape }) => [...shape.fault._zod.values]);
  expect(names('fault').toSorted()).toEqual(faults.toSorted());
  const behaviours = behaviourSchema.options.flatMap(({ shape }) => [...shape.how._zod.values]);
  expect(names('behaviour').toSorted()).toEqual(behaviours.toSorted());
});

test('docs/sandbox.md: lists the links', async () => {
  const sandbox = await open();
  const listed = table('link').map(([link = '', pace]) => [link.replaceAll('`', ''), pace]);
  expect(listed).toEqual(sandbox.links.map(({ name, paceMs }) => [`/links/${name}`, `${paceMs / 1_000} s`]));
});

test('docs/sandbox.md: lists the requests of the control API', () => {
  const listed = table('request').map(([request = '', does]) => [request.replaceAll('`', ''), does]);
  expect(listed).toEqual(
    Object.entries(CONTROL_ROUTES).map(([route, [does]]) => [route.replace(' ', ' /_control/'), does]),
  );
});

test('docs/sandbox.md: the configuration is valid and names existing instances', async () => {
  const sandbox = await open();
  const config = parseConfig(block('service:'), 'noria.yaml', { env: {} });
  for (const { product, instance } of config.sources) {
    expect(instance).toBe(sandbox.instances.find((known) => known.product === product)?.id);
  }
  expect(config.sources).toHaveLength(2);
});

test('docs/sandbox.md: the scenario is valid', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'noria-page-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const path = join(folder, 'bad-day.yaml');
  await writeFile(path, block('rules:'));
  const scenario = await loadScenario(path);
  expect([scenario.rules?.length, scenario.members?.length]).toEqual([3, 2]);
});
