import { spawnSync } from 'node:child_process';
import { beforeAll, describe, expect, test } from 'vitest';
import { runProgram } from '../../src/commands/program.ts';
import { hasCommand } from '../support/tools.ts';
import { fakeTerminal } from './fake-terminal.ts';

const SHELLS = ['bash', 'zsh', 'fish'] as const;
const scripts = new Map<string, string>();

beforeAll(async () => {
  for (const shell of SHELLS) {
    const terminal = fakeTerminal();
    expect(await runProgram(['completion', shell], terminal)).toBe(0);
    scripts.set(shell, terminal.printed());
  }
});

/** Returns the completions that a real shell offers for a command line, one per line. */
type Ask = (script: string, line: string) => string[];

const ask: { readonly [S in (typeof SHELLS)[number]]: Ask } = {
  bash: (script, line) => {
    const words = line.split(' ').map((word) => `'${word}'`);
    const setUp = `COMP_WORDS=(${words.join(' ')}); COMP_CWORD=${words.length - 1}; compopt() { :; }`;
    return run('bash', ['--norc', '-c', `${script}\n${setUp}; _noria; printf '%s\\n' "\${COMPREPLY[@]}"`]);
  },
  // zsh completes only in an interactive shell, so stubs of its completion functions print their arguments.
  zsh: (script, line) => {
    const words = line.split(' ');
    const setUp = [
      'compdef() { : }; _message() { : }; compadd() { shift; print -l -- "$@" }; _files() { print -l -- *(N) }',
      '_describe() { [[ $1 == -o ]] && shift; local each; for each in ${(P)2}; do print -r -- ${each%%:*}; done }',
      `words=(${words.map((word) => `'${word}'`).join(' ')}); CURRENT=${words.length}`,
    ];
    return run('zsh', ['-f', '-c', [...setUp, script, '_noria'].join('\n')]).filter((offer) =>
      offer.startsWith(words.at(-1) ?? ''),
    );
  },
  fish: (script, line) =>
    run('fish', ['--no-config', '-c', `${script}\ncomplete -C '${line}'`]).map(
      (offer) => offer.split('\t')[0] ?? '',
    ),
};

function run(shell: string, args: readonly string[]): string[] {
  // bash warns about a locale that the machine does not have; fish finds no file in a folder with other letters in `C`.
  const { stdout, stderr } = spawnSync(shell, args, {
    encoding: 'utf8',
    env: { ...process.env, LC_ALL: 'C.UTF-8' },
  });
  expect(stderr).toBe('');
  return stdout.split('\n').filter((offer) => offer !== '');
}

for (const shell of SHELLS) {
  describe.skipIf(!hasCommand(shell))(`completion: ${shell}`, () => {
    const offers = (line: string) => ask[shell](scripts.get(shell) ?? '', line);

    test('offers commands in place of the first argument', () => {
      expect(offers('noria s').sort()).toEqual(['sandbox', 'sessions', 'simulate', 'sites', 'status']);
      expect(offers('noria --log-level debug ru')).toEqual(['run']);
    });

    test('offers the flags of the given command', () => {
      expect(offers('noria run --w')).toEqual(['--watch']);
      expect(offers('noria check --w')).toEqual([]);
    });

    test('offers the possible values of a flag or an argument', () => {
      expect(offers('noria run --log-level de')).toEqual(['debug']);
      expect(offers('noria completion fi')).toEqual(['fish']);
      expect(offers('noria instances --status near')).toEqual(['near-expiry']);
      expect(offers('noria help extr')).toEqual(['extract']);
      expect(offers('noria sessions ro')).toEqual(['rotate']);
      expect(offers('noria members ev')).toEqual(['evict']);
    });

    test('offers files after -c, and nothing after a flag with a number', () => {
      expect(offers('noria run -c vitest.conf')).toEqual(['vitest.config.ts']);
      expect(offers('noria run --config vitest.conf')).toEqual(['vitest.config.ts']);
      expect(offers('noria demo --port p')).toEqual([]);
    });
  });
}

test.skipIf(!hasCommand('zsh'))(
  'completion: zsh takes the script, as a file of its path and by source',
  () => {
    const script = scripts.get('zsh') ?? '';
    expect(script.split('\n')[0]).toBe('#compdef noria');
    run('zsh', ['-f', '-c', `autoload -U compinit; compinit -u -D; ${script}\n(( $+functions[_noria] ))`]);
  },
);
