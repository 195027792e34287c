/** `noria demo --story` shows what it announces, and ends by itself without a terminal. */
import { execFile } from 'node:child_process';
import { expect, test } from 'vitest';
import { runProgram } from '../../src/commands/program.ts';
import { fakeTerminal } from '../commands/fake-terminal.ts';
import { NORIA } from './noria-process.ts';

const [PROGRAM, ...BEFORE] = NORIA;

interface StoryRun {
  readonly exitCode: number;
  readonly out: string;
}

function runStory(...args: string[]): Promise<StoryRun> {
  return new Promise((resolve) => {
    execFile(
      PROGRAM,
      [...BEFORE, 'demo', '--story', '--port', '0', '--admin-port', '0', '--target-port', '0', ...args],
      { timeout: 100_000 },
      (error, out) => {
        const exitCode = error === null ? 0 : typeof error.code === 'number' ? error.code : -1;
        resolve({ exitCode, out });
      },
    );
  });
}

/** The exits that a chapter shows, one per line. */
function exitsOf(chapter: string): string[] {
  return [...chapter.matchAll(/^ {3}(127[.\d:]+)$/gm)].map(([, exit = '']) => exit);
}

test('story: each chapter shows what its title announces', async () => {
  const { exitCode, out } = await runStory('--members', '8');
  const [, rotation = '', session = '', death = '', target = ''] = out.split(/^\d\. /m);
  expect(new Set(exitsOf(rotation)).size).toBeGreaterThanOrEqual(4);
  expect(exitsOf(session).length).toBe(4);
  expect(new Set(exitsOf(session)).size).toBe(1);
  expect(death).toMatch(/next request: status 200 through 127\S+, after [2-9] attempts/);
  expect(target.match(/status 502 target-unreachable/g)?.length).toBe(3);
  const [, before, after] = /Faults of members: (\d+) before, (\d+) after/.exec(target) ?? [];
  expect(after).toBe(before);
  expect(out.match(/See http/g)?.length).toBe(4);
  expect(out).not.toContain('This step failed');
  expect(exitCode).toBe(0);
});

test('story: refuses too few members and names the minimum', async () => {
  const terminal = fakeTerminal();
  expect(await runProgram(['demo', '--story', '--members', '2'], terminal)).toBe(2);
  expect(terminal.errors()).toContain('--story needs --members 4 or more');
});
