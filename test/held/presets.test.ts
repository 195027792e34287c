/** The presets load, read the answers that the vendors document, and are listed in docs/links.md and its translation. */
import { readdirSync, readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import type { LinkSource } from '../../src/config/config.ts';
import { parseConfig } from '../../src/config/load.ts';
import { decode, lines } from '../service/link/decode.ts';
import { inBothLanguages } from '../support/translations.ts';

const PRESETS = readdirSync('docs/presets').flatMap((file) =>
  file.endsWith('.yaml') ? [file.slice(0, -5)] : [],
);
const PAGES = inBothLanguages('docs/links.md');

/** The expected entries of each fixture. */
const ENTRIES: Readonly<Record<string, readonly string[]>> = {
  asiyun: ['192.0.2.1:28229 198.51.100.1 四川-成都', '192.0.2.2:28230 198.51.100.2 四川-成都'],
  dataeyes: ['192.0.2.1:40016 172000 河北-唐山', '192.0.2.2:40006 95000 河北-唐山'],
  juliangip: ['192.0.2.1:31114 172000', '192.0.2.2:48581 95000'],
  kuaidaili: ['192.0.2.1:15174 172000', '192.0.2.2:22381 95000'],
  pinzan: ['192.0.2.1:30001 电信 2026abc1/s3cret1', '192.0.2.2:30002 联通 2026abc2/s3cret2'],
  qg: [
    '192.0.2.1:59419 172000 198.51.100.1 河南省商丘市 电信',
    '192.0.2.2:21504 95000 198.51.100.2 江苏省淮安市 电信',
  ],
  xiaoxiangdaili: ['192.0.2.1:3000 172000', '192.0.2.2:3000 95000 198.51.100.2'],
  zhima: ['192.0.2.1:4256 172000 江苏省苏州市 电信', '192.0.2.2:4231 95000 福建省厦门市 联通'],
};

/** Returns a valid value for a variable. */
const variableValue = (name = '') => (name.endsWith('ADDRESS') ? 'http://192.0.2.9' : 'abcdef123456');

function sourceOf(preset: string): LinkSource {
  const yaml = readFileSync(`docs/presets/${preset}.yaml`, 'utf8');
  const env = Object.fromEntries(
    [...yaml.matchAll(/\$\{(\w+)\}/g)].map(([, name]) => [name, variableValue(name)]),
  );
  const [source] = parseConfig(yaml, `${preset}.yaml`, { env }).sources;
  if (source?.product !== 'link') throw new Error(`${preset} has no link`);
  return source;
}

function decodeFixture(preset: string, recognise = false) {
  const { answer, login, upstream } = sourceOf(preset);
  const text = readFileSync(`test/fixtures/links/${preset}.json`, 'utf8');
  return decode(text, recognise ? {} : answer, { login, protocol: upstream.protocol });
}

test('presets: there are at least six', () => {
  expect(PRESETS.length).toBeGreaterThanOrEqual(6);
  expect(PRESETS).toEqual(Object.keys(ENTRIES));
});

test.each(PRESETS)('presets: %s loads and reads the answer of its vendor', (preset) => {
  const { code, entries, dropped } = decodeFixture(preset);
  expect({ code, dropped }).toEqual({ code: '10001', dropped: {} });
  expect(lines({ ...decodeFixture(preset), entries })).toEqual(ENTRIES[preset]);
});

test.each(PRESETS)('presets: the answer of %s is recognised without its rules, too', (preset) => {
  const addresses = decodeFixture(preset, true).entries.map(({ host, port }) => `${host}:${port}`);
  expect(addresses).toEqual(ENTRIES[preset]?.map((entry) => entry.split(' ')[0]));
});

test.each(PAGES)('$file: names the page of each preset, and what is not verified', ({ text }) => {
  for (const preset of PRESETS) {
    const row = text.split('\n').find((line) => line.includes(`presets/${preset}.yaml)`));
    expect(row?.split(' | '), preset).toHaveLength(4);
    expect(row).toMatch(/https?:\/\//);
  }
});

const GATEWAYS = readdirSync('docs/presets/gateways').map((file) => file.replace(/\.yaml$/, ''));

test.each(inBothLanguages('docs/gateways.md'))(
  '$file: names each gateway preset with its user name and its page',
  ({ text }) => {
    expect(GATEWAYS.length).toBeGreaterThanOrEqual(12);
    for (const preset of GATEWAYS) {
      const yaml = readFileSync(`docs/presets/gateways/${preset}.yaml`, 'utf8');
      const row = text.split('\n').find((line) => line.includes(`presets/gateways/${preset}.yaml)`));
      expect(row, preset).toContain(/username: "([^"]+)"/.exec(yaml)?.[1]);
      expect(row, preset).toContain(/https:\S+/.exec(yaml)?.[0]);
    }
  },
);
