import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, test } from 'vitest';

test('terminal: in a pipe, lines have no maximum width', async () => {
  const module = new URL('../../src/commands/terminal.ts', import.meta.url).href;
  const code = `import { openTerminal } from '${module}'; openTerminal().print(String(openTerminal().columns));`;
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', code]);
  expect(stdout).toBe('Infinity\n');
});
