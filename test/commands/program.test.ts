import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { buildProgram, runProgram } from '../../src/commands/program.ts';
import { readVersion } from '../../src/core/version.ts';
import { testFolder, writeIn } from '../journeys/noria-process.ts';
import { fakeTerminal } from './fake-terminal.ts';

const tree = await buildProgram([], fakeTerminal(), () => {});
const names = tree.commands.map((command) => command.name());

async function run(args: readonly string[], given: Parameters<typeof fakeTerminal>[0] = {}) {
  const terminal = fakeTerminal(given);
  const exitCode = await runProgram(args, terminal);
  return { exitCode, out: terminal.printed(), err: terminal.errors() };
}

test('program: has the documented commands', () => {
  expect([...names].sort()).toEqual([
    'areas',
    'check',
    'completion',
    'demo',
    'extract',
    'fleet',
    'instances',
    'key',
    'link',
    'members',
    'pause',
    'refill',
    'reload',
    'resume',
    'run',
    'sandbox',
    'sessions',
    'simulate',
    'sites',
    'status',
    'usage',
    'why',
  ]);
});

describe('program: --help', () => {
  test.each(names)('%s shows examples that use its own options', async (name) => {
    const { exitCode, out, err } = await run([name, '--help']);
    expect({ exitCode, err }).toEqual({ exitCode: 0, err: '' });
    const examples = [...out.matchAll(/^ {2}noria (.*)$/gm)].map(([, words = '']) => words.split(' '));
    expect(examples.length, 'examples').toBeGreaterThan(0);
    const command = tree.commands.find((candidate) => candidate.name() === name);
    const flags = [...(command?.options ?? []), ...tree.options].flatMap(({ long, short }) => [long, short]);
    for (const [first, ...words] of examples) {
      expect(first).toBe(name);
      const pipe = words.findIndex((word) => /^[|<>]/.test(word));
      const used = words.slice(0, pipe < 0 ? undefined : pipe).filter((word) => /^-./.test(word));
      expect(flags).toEqual(expect.arrayContaining(used));
    }
    expect(out, 'colours are for terminals').not.toContain('\u001b');
  });

  test('the overview lists every command and the exit codes', async () => {
    const { out } = await run(['--help']);
    for (const name of names) expect(out).toMatch(new RegExp(`^ {2}${name} `, 'm'));
    expect(out).toMatch(
      /0 success, 1 the operation failed, 2 bad usage or configuration,\n3 noria, the service or the store is unreachable/,
    );
    expect(out.split('\n').filter((line) => line.length > 100)).toEqual([]);
  });
});

test('program: help is as wide as the terminal', async () => {
  const narrow = { ...fakeTerminal(), columns: 70 };
  await runProgram(['run', '--help'], narrow);
  const options = narrow.printed().split('\n').slice(4, 16);
  expect(Math.max(...options.map((line) => line.length))).toBeLessThanOrEqual(70);
});

test('program: --version prints only the version', async () => {
  expect(await run(['--version'])).toEqual({ exitCode: 0, out: `${readVersion()}\n`, err: '' });
});

describe('program: an invalid command line exits with 2 and says on standard error what to do', () => {
  test.each([
    [[], /^Usage: noria/],
    [['statsu'], /^noria: unknown command 'statsu'\n\(Did you mean status\?\)\nRun noria help COMMAND/],
    [['constructor'], /unknown command 'constructor'/],
    [['run', '--wach'], /unknown option '--wach'\n\(Did you mean --watch\?\)/],
    [['run', 'fast'], /too many arguments/],
    [['extract'], /missing required argument 'source'/],
    [['demo', '--port', 'x'], /'x' is invalid\. Expected a port from 1 to 65535, or 0 for a free one/],
    [['demo', '--dead', '1.5'], /Expected a fraction from 0 to 1, for example 0\.2/],
    [['demo', '--host', '0.0.0.0:80'], /Expected an address without a port, for example 0\.0\.0\.0/],
    [['demo', '--host', '0.0.0.0', '--story'], /--story works only on loopback: remove --host/],
    [['sandbox', '--members', '0'], /Expected a whole number from 1 to 1000/],
    [
      ['simulate', '--hours', '20-8'],
      /Expected a start hour and an end hour, each from 0 to 24, for example 8-20/,
    ],
    [['completion', 'tcsh'], /Allowed choices are bash, zsh, fish/],
    [['--log-level', 'loud', 'key'], /Allowed choices are trace, debug, info/],
    [['pause'], /missing required argument 'source'/],
    [['members', 'evcit', 'm1'], /Allowed choices are evict/],
    [['members', 'evict'], /needs the ID of a member; "noria members" lists the IDs/],
    [['members', 'evict', 'm1', '--source', 'city'], /use --source only to list members/],
    [['sessions', 'rotate'], /needs the ID of a session; "noria sessions" lists the IDs/],
    [['sessions', 'forget', 'a', '--close'], /use --close only with "noria sessions rotate ID"/],
    [['status', '--admin', 'ftp://x'], /--admin ftp:\/\/x: the scheme must be http or https/],
    [['key'], /no password on standard input/],
    ...['check', 'run', 'status'].map(
      (command) =>
        [
          [command, '-c', '/nonexistent/noria.yaml'],
          /^(noria: )?\/nonexistent\/noria\.yaml: the file does not exist; check the path\n/,
        ] as const,
    ),
  ] as const)('%j', async (args, expected) => {
    const { exitCode, out, err } = await run(args);
    expect({ exitCode, out }).toEqual({ exitCode: 2, out: '' });
    expect(err).toMatch(expected);
  });
});

test('program: exits with 3 when the daemon does not answer', async () => {
  const { exitCode, out, err } = await run(['status', '--admin', '127.0.0.1:1']);
  expect({ exitCode, out }).toEqual({ exitCode: 3, out: '' });
  expect(err).toMatch(
    /^noria: no answer from http:\/\/127\.0\.0\.1:1 \(--admin\): nothing listens there\n {2}Start noria with the command noria run/,
  );
});

test('program: all errors of a configuration are printed with their position', async () => {
  const file = writeIn(testFolder(), 'noria.yaml', 'sorces: []\npool: { size: -3 }\n');
  const { exitCode, out, err } = await run(['check', '-c', file]);
  expect({ exitCode, out }).toEqual({ exitCode: 2, out: '' });
  expect(err).toContain(`${file}:1:1: sorces: unknown key; did you mean sources?`);
  expect(err).toContain(`${file}:2:15: pool.size: `);
});

test('program: key reads standard input and prints the key to standard output', async () => {
  const { exitCode, out, err } = await run(['key'], { input: '12345678\n' });
  expect({ exitCode, out, err }).toEqual({ exitCode: 0, out: '83aa400af464c76d\n', err: '' });
});

test('program: simulate makes no network calls', async () => {
  const text = `
service: { baseUrl: "http://127.0.0.1:1" }
sources: [{ name: city, product: short-classic, instance: "1", password: "12345678", size: 2 }]
`;
  const file = writeIn(testFolder(), 'noria.yaml', text);
  const args = ['simulate', '-c', file, '--requests', '1,8-9=3', '--hours', '8-9', '--json'];
  const { exitCode, out } = await run(args);
  expect(exitCode).toBe(0);
  const report = JSON.parse(out);
  expect(report).toMatchObject({ days: 1, seed: 1 });
  expect(report.clients.served, '3 a minute in the only hour').toBeGreaterThan(120);
  expect(report.clients.served).toBeLessThan(240);
  expect(report.drawn).toBe(report.used + report.wasted);
});

test('program: check reports a state folder that noria cannot use, and exits with 2', async () => {
  const folder = testFolder();
  const source = 'sources: [{ name: a, product: short-classic, instance: "1", akey: 0123456789abcdef }]';
  const text = `service: { baseUrl: "https://extract.example" }\n${source}\nstate: { dir: "${folder}/state" }\n`;
  const file = writeIn(folder, 'noria.yaml', text);
  expect(await run(['check', '-c', file])).toMatchObject({ exitCode: 0 });
  mkdirSync(join(folder, 'state', 'snapshot.json'), { recursive: true });
  const { exitCode, err } = await run(['check', '-c', file]);
  expect(exitCode).toBe(2);
  expect(err).toContain(
    `error: state.dir: ${folder}/state/snapshot.json is a directory, not a regular file; remove it`,
  );
});

test.each([['-c', 'x.yaml'], ['--config', 'x.yaml'], ['--config=x.yaml'], ['-cx.yaml']])(
  'program: %s %s may stand before the command',
  async (...option) => {
    const after = await run(['check', ...option]);
    expect(after.err).toContain('x.yaml');
    expect(await run([...option, 'check'])).toEqual(after);
    expect(await run([...option, 'key'])).toMatchObject({
      exitCode: 2,
      err: expect.stringMatching(/unknown option '(-c|--config)/),
    });
  },
);
