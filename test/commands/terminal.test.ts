import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';
import { printFailure } from '../../src/commands/terminal.ts';
import { FAULTS, NoriaError } from '../../src/core/faults.ts';
import { fakeTerminal } from './fake-terminal.ts';

test('terminal: in a pipe, lines have no maximum width', async () => {
  const module = new URL('../../src/commands/terminal.ts', import.meta.url).href;
  const code = `import { openTerminal } from '${module}'; openTerminal().print(String(openTerminal().columns));`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', code]);
  expect(stdout).toBe('Infinity\n');
});

test.each(['fleet-store-lost', 'service-transport', 'service-blocked'] as const)(
  'terminal: after %s, a command does not say that noria tries again',
  (code) => {
    const english = fakeTerminal({ env: {} });
    printFailure(english, new NoriaError(code, 'no answer'));
    expect(english.errors()).toMatch(/\n {2}(?!.*noria (retries|waits|continues)).* the command again\.\n/);
    const chinese = fakeTerminal({ env: { LANG: 'zh_CN.UTF-8' } });
    printFailure(chinese, new NoriaError(code, 'no answer'));
    expect(chinese.errors()).toMatch(/\n {2}\p{Script=Han}.*运行命令。\n/u);
  },
);

test.each([
  [{ LANG: 'zh_CN.UTF-8' }, FAULTS['daemon-unreachable'].chinese[1]],
  [{ LC_ALL: 'zh_TW.UTF-8', LANG: 'C' }, FAULTS['daemon-unreachable'].chinese[1]],
  [{ LC_ALL: 'C', LANG: 'zh_CN.UTF-8' }, FAULTS['daemon-unreachable'].advice],
  [{}, FAULTS['daemon-unreachable'].advice],
])('terminal: prints the advice for a failure in the language of the locale: %j', (env, advice) => {
  const terminal = fakeTerminal({ env });
  printFailure(terminal, new NoriaError('daemon-unreachable', 'no answer'));
  expect(terminal.errors()).toContain(`\n  ${advice}\n`);
});
