/** The documentation is consistent: links work, every page is linked, and commands, files and keys exist. */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, test } from 'vitest';
import { parse } from 'yaml';
import { buildProgram } from '../../src/commands/program.ts';
import type { Terminal } from '../../src/commands/terminal.ts';
import { parseConfig } from '../../src/config/load.ts';
import { TRANSLATED_PAGES, translationOf } from '../support/translations.ts';

const docs = readdirSync('docs', { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.md'))
  .map((file) => join('docs', file));
const pages = [...readdirSync('.').filter((file) => file.endsWith('.md')), ...docs];

const textOf = (page: string): string => readFileSync(page, 'utf8');

/** Returns a page without fenced code and code spans, in which brackets are not links. */
const prose = (page: string): string =>
  textOf(page)
    .replace(/^```[\s\S]*?^```$/gm, '')
    .replace(/`[^`\n]*`/g, 'code');

interface Link {
  readonly page: string;
  readonly path: string;
  readonly anchor: string;
}

/** The links of a page to files of the repository. `path` is relative to the repository. */
function linksOf(page: string): Link[] {
  return [...prose(page).matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target = '']) => target)
    .filter((target) => !/^[a-z]+:/.test(target))
    .map((target) => {
      const [path = '', anchor = ''] = target.split('#');
      return { page, path: path === '' ? page : normalize(join(dirname(page), path)), anchor };
    });
}

/** The anchors that GitHub generates for a page's headings. */
function anchorsOf(page: string): string[] {
  return [
    ...textOf(page)
      .replace(/^```[\s\S]*?^```$/gm, '')
      .matchAll(/^#+ (.*)$/gm),
  ].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, '')
      .replaceAll(/\s/g, '-'),
  );
}

test('docs: every link leads to an existing file and heading', () => {
  const links = pages.flatMap(linksOf);
  expect(links.length).toBeGreaterThan(60);
  const dead = links.filter(
    ({ path, anchor }) => !existsSync(path) || (anchor !== '' && !anchorsOf(path).includes(anchor)),
  );
  expect(dead).toEqual([]);
});

test('docs: every page can be reached from the README', () => {
  const found = new Set<string>();
  const follow = (page: string): void => {
    if (found.has(page)) return;
    found.add(page);
    for (const { path } of linksOf(page)) {
      if (!existsSync(path)) continue;
      const isFolder = statSync(path).isDirectory();
      for (const next of isFolder
        ? docs.filter((file) => dirname(file) === normalize(path).replace(/\/$/, ''))
        : [path])
        if (next.endsWith('.md')) follow(next);
    }
  };
  follow('README.md');
  expect(docs.length).toBeGreaterThan(8);
  expect(pages.filter((page) => !found.has(page))).toEqual([]);
});

test('docs: every source and test file that a page names exists', () => {
  const named = pages.flatMap((page) =>
    [...textOf(page).matchAll(/`((?:src|test|bench|scripts|docs)\/[\w./-]*\w\/?)`/g)].map(
      ([, path = '']) => ({ page, path }),
    ),
  );
  expect(named.length).toBeGreaterThan(20);
  expect(named.filter(({ path }) => !path.includes('NAME') && !existsSync(path))).toEqual([]);
});

test('docs: every noria command and option on a page exists', async () => {
  const silent: Terminal = {
    print: () => {},
    printError: () => {},
    interactive: false,
    colour: false,
    columns: 80,
    rows: 24,
    write: () => {},
    env: {},
    readHidden: () => Promise.resolve(''),
  };
  const program = await buildProgram([], silent, () => {});
  const optionsOf = new Map(
    program.commands.map((command) => [
      command.name(),
      new Set([
        '--help',
        ...[program, command].flatMap(({ options }) => options.flatMap(({ long, short }) => [long, short])),
      ]),
    ]),
  );
  const shown = pages.flatMap((page) => commandsOf(textOf(page)).map((line) => ({ page, line })));
  expect(shown.length).toBeGreaterThan(30);
  const unknown = shown.filter(({ line }) => {
    const [command = '', ...words] = line.split(/\s+/);
    const options = optionsOf.get(command);
    return (
      command !== 'help' &&
      words.some((word) => word.startsWith('-') && !options?.has(word.replace(/=.*/, '')))
    );
  });
  expect(unknown).toEqual([]);
  expect(
    shown.filter(({ line }) => !optionsOf.has(line.split(/\s+/)[0] ?? '') && !line.startsWith('help')),
  ).toEqual([]);
});

/** Returns the arguments of `noria` in code spans and at the start of lines of fenced code. */
function commandsOf(text: string): string[] {
  const call = /^(?:\$ )?(?:npx )?(?:npm run )?noria (?:-- )?([a-z][^#|;&)]*)/;
  const spans = [...text.replace(/^```[\s\S]*?^```$/gm, '').matchAll(/`([^`\n]+)`/g)].map(
    ([, span = '']) => span,
  );
  const fenced = [...text.matchAll(/^```(\w*).*\n([\s\S]*?)^```$/gm)]
    .filter(([, language = '']) => ['sh', 'console', 'text', ''].includes(language))
    .flatMap(([, , code = '']) => code.split('\n'));
  return [...spans, ...fenced].flatMap((line) => call.exec(line)?.[1]?.trim() ?? []);
}

test.each(['README.md', 'README.zh-CN.md'])('%s: its configuration is valid', (page) => {
  const text = textOf(page);
  const yaml = /```yaml\n([\s\S]*?)```/.exec(text)?.[1] ?? '';
  const { warnings, sources } = parseConfig(yaml, 'noria.yaml', { env: { CITY_PASSWORD: 'sandbox4' } });
  expect(sources.map(({ name }) => name)).toEqual(['city']);
  expect(warnings.map(({ path }) => path)).toEqual(['service.baseUrl']); // plain HTTP, as in the service's own examples
});

test('docs/clients.md: the configuration is valid', () => {
  const yaml = /```yaml\n([\s\S]*?)```/.exec(textOf('docs/clients.md'))?.[1] ?? '';
  const source =
    'sources: [{ name: a, product: shared, instance: "1", password: p, baseUrl: "https://s.example" }]\n';
  const { listeners } = parseConfig(source + yaml, 'noria.yaml', { env: {} });
  expect(listeners.length).toBe(3);
});

test.each(TRANSLATED_PAGES)(
  '%s: its translation names the same commands, and each links to the other',
  (page) => {
    const translation = translationOf(page);
    expect(linksOf(page).map(({ path }) => path)).toContain(translation);
    expect(linksOf(translation).map(({ path }) => path)).toContain(page);
    const namesOf = (file: string) => new Set(commandsOf(textOf(file)).map((line) => line.split(/\s+/)[0]));
    expect([...namesOf(page).difference(namesOf(translation))]).toEqual([]);
  },
);

test('docs/migrating.md: every configuration key of noria exists', () => {
  const configuration = textOf('docs/configuration.md');
  const keys = [
    ...textOf('docs/migrating.md').matchAll(
      /`((?:sources|pool|rotation|dial|health|listeners|admin|log)(?:\[\])?\.[\w.]+)/g,
    ),
  ].map(([, key = '']) => key);
  expect(keys.length).toBeGreaterThan(30);
  expect(keys.filter((key) => !configuration.includes(`\`${key}\``))).toEqual([]);
});

test('.github: the forms and the workflow are valid YAML', () => {
  const files = readdirSync('.github', { recursive: true, encoding: 'utf8' }).filter((file) =>
    file.endsWith('.yml'),
  );
  expect(files.length).toBeGreaterThan(2);
  for (const file of files) expect(parse(textOf(join('.github', file))), file).toHaveProperty('name');
});
