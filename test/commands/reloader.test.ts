import { mkdirSync, renameSync, symlinkSync, unlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { changedKeys, Reloader } from '../../src/commands/run.ts';
import type { Config } from '../../src/config/config.ts';
import { loadConfig, parseConfig } from '../../src/config/load.ts';
import { createLog } from '../../src/core/log.ts';
import { testFolder, writeIn } from '../journeys/noria-process.ts';
import { until } from '../support/until.ts';

const yaml = (size: number, more = '') => `
sources:
  - { name: city, product: shared, instance: "1", password: hunter2, baseUrl: "https://s.example" }
pool: { size: ${size} }
${more}
`;

/** Watches a file for a daemon that accepts every configuration. */
function follow(file: string) {
  const read = () => loadConfig(file, { env: {} });
  const sizes: number[] = [];
  const lines: string[] = [];
  const phases: string[] = [];
  const startConfig = read();
  let config = startConfig;
  const reloader = new Reloader({
    daemon: Promise.resolve({
      startConfig,
      get config() {
        return config;
      },
      reload: async (next: Config) => {
        config = next;
        sizes.push(next.pool.size);
        return [];
      },
    }),
    log: createLog({
      level: 'info',
      format: 'json',
      destination: { write: (line) => void lines.push(line) },
    }),
    file,
    read,
    onPhase: (phase) => void phases.push(phase),
  });
  const watching = reloader.onFileChange();
  onTestFinished(() => watching[Symbol.dispose]());
  return { reloader, sizes, lines, phases };
}

test('reload: a file that an editor replaces is read again', async () => {
  const folder = testFolder();
  const file = writeIn(folder, 'noria.yaml', yaml(5));
  const { sizes, phases } = follow(file);
  renameSync(writeIn(folder, 'noria.yaml.new', yaml(6)), file);
  await until('the first change', () => sizes.length === 1);
  renameSync(writeIn(folder, 'noria.yaml.new', yaml(7)), file);
  await until('the second change', () => sizes.length === 2);
  expect(sizes).toEqual([6, 7]);
  expect(phases).toEqual(['reloading', 'ready', 'reloading', 'ready']);
});

test('reload: a changed Kubernetes ConfigMap is read again', async () => {
  // In Kubernetes, noria.yaml is a link to ..data/noria.yaml, and ..data is a link to ..DATE. An update renames a new
  // link to ..data.
  const folder = testFolder();
  for (const [version, size] of [
    ['..one', 5],
    ['..two', 6],
  ] as const) {
    mkdirSync(join(folder, version));
    writeIn(join(folder, version), 'noria.yaml', yaml(size));
  }
  symlinkSync('..one', join(folder, '..data'));
  symlinkSync('..data/noria.yaml', join(folder, 'noria.yaml'));
  const { sizes } = follow(join(folder, 'noria.yaml'));
  symlinkSync('..two', join(folder, '..data_tmp'));
  renameSync(join(folder, '..data_tmp'), join(folder, '..data'));
  await until('the change', () => sizes.length === 1);
  expect(sizes).toEqual([6]);
});

test('reload: a missing file is refused, and read when it exists again', async () => {
  const folder = testFolder();
  const file = writeIn(folder, 'noria.yaml', yaml(5));
  const { sizes, lines } = follow(file);
  unlinkSync(file);
  await until('the refusal', () => lines.some((line) => line.includes('configuration refused')));
  writeFileSync(file, yaml(8));
  await until('the change', () => sizes.length === 1);
  expect(sizes).toEqual([8]);
});

test('reload: each reload reports the changes since the start that need a restart, until they are undone', async () => {
  const folder = testFolder();
  const file = writeIn(folder, 'noria.yaml', yaml(5, 'workers: 2'));
  const { reloader, sizes, lines } = follow(file);
  writeFileSync(file, yaml(5, 'workers: 3'));
  await until('the watcher reloads', () => sizes.length > 0);
  expect(await reloader.reload('test')).toMatchObject({ changed: [], restart: ['workers'] });
  expect(lines.map((line) => JSON.parse(line)).at(-1)).toMatchObject({
    msg: 'some changes need a restart',
    keys: ['workers'],
  });
  writeFileSync(file, yaml(5, 'workers: 2'));
  expect(await reloader.reload('test')).toMatchObject({ restart: [] });
});

const config = (text: string) => parseConfig(text, 'noria.yaml', { env: {} });

test('reload: changes are named without values', () => {
  const before = config(yaml(5));
  expect(changedKeys(before, config(yaml(5)))).toEqual([]);
  const next = `
sources:
  - { name: city, product: shared, instance: "1", password: hunter3, baseUrl: "https://s.example" }
  - { name: harbour, product: shared, instance: "2", password: hunter2, baseUrl: "https://s.example" }
pool: { size: 5 }
listeners: [{ address: "127.0.0.1:9000" }]
state: off
`;
  expect(changedKeys(before, config(next))).toEqual([
    'state',
    'source city changed',
    'source harbour added',
    'listener 127.0.0.1:8888 removed',
    'listener 127.0.0.1:9000 added',
  ]);
});

/** The keys of Config that are no section, and the sections whose entries are compared one by one. */
const NO_SECTIONS = ['file', 'warnings', 'sources', 'listeners'];

test('reload: every section of the configuration is compared', () => {
  const text = `${yaml(5, 'fleet: { url: "redis://127.0.0.1:6379" }')}proxyPool: {}\n`;
  const before = config(text);
  expect(changedKeys(before, config(text))).toEqual([]);
  const names = Object.keys(before).filter((name) => !NO_SECTIONS.includes(name));
  expect(names).toContain('fleet');
  expect(names).toContain('proxyPool');
  for (const name of names) {
    expect(changedKeys(before, { ...before, [name]: 'changed' })).toEqual([name]);
  }
});
