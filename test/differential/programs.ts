/** Programs in other languages: each starts for one test and ends with it. */
import { type ChildProcessByStdio, execFile, spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable, Writable } from 'node:stream';
import { promisify } from 'node:util';
import { onTestFinished } from 'vitest';

export type Program = ChildProcessByStdio<Writable, Readable, null>;

/**
 * Whether to run the tests in Go, which needs half a minute of CPU time to compile. `.ci/run` sets NORIA_CLIENTS=all.
 */
export const RUNS_COMPILED = process.env['NORIA_CLIENTS'] === 'all';

export function startProgram(command: string, args: readonly string[]): Program {
  const program = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
  onTestFinished(async () => {
    const exited = new Promise((resolve) => program.once('exit', resolve));
    if (program.exitCode === null && program.kill('SIGKILL')) await exited;
  });
  return program;
}

/** Compiles counterpart.go. @returns the path of the program. */
export async function buildGo(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'noria-go-'));
  onTestFinished(() => rm(folder, { recursive: true }));
  const program = join(folder, 'counterpart');
  const GOCACHE = process.env['GOCACHE'] ?? join(homedir(), '.cache', 'go-build');
  const env = { ...process.env, GOCACHE, GO111MODULE: 'off' };
  await promisify(execFile)('go', ['build', '-o', program, join(import.meta.dirname, 'counterpart.go')], {
    env,
  });
  return program;
}
