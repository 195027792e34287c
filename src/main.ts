#!/usr/bin/env node
/**
 * Runs the command that argv names and sets the exit code. Checks the version of Node before it imports anything else.
 */
import { mkdirSync } from 'node:fs';
import * as module from 'node:module';
import { isAbsolute, join } from 'node:path';

const OLDEST_NODE = 22;

if (Number.parseInt(process.versions.node, 10) < OLDEST_NODE) {
  process.stderr.write(
    `noria needs Node ${OLDEST_NODE} or newer, and this is Node ${process.versions.node}: install Node 24, then run noria again.\n`,
  );
  process.exit(2);
}
cacheCompiledCode(process.env);
const { runProgram } = await import('./commands/program.ts');
const { openTerminal } = await import('./commands/terminal.ts');

process.exitCode = await runProgram(process.argv.slice(2), openTerminal());

/**
 * The compile cache halves the CPU time of a start. Its folder belongs to this user: in a shared folder, another user
 * could place code.
 */
function cacheCompiledCode({ XDG_CACHE_HOME: cacheHome = '', HOME: home = '' }: NodeJS.ProcessEnv): void {
  const dir = join(isAbsolute(cacheHome) ? cacheHome : join(home, '.cache'), 'noria');
  if (!isAbsolute(dir)) return;
  try {
    mkdirSync(dir, { recursive: true, mode: 0o700 });
    module.enableCompileCache(dir);
  } catch {
    // ignored: without a writable folder, noria only starts more slowly
  }
}
